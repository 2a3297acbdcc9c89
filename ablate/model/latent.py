"""Keys and values from one latent of low rank (kv_rank), multi-head latent attention: what is held of a token
is c = norm(x W_down), and under rotary positions a key x W_rope that all heads share beside it.

A head's key is [c W_up; turned x W_rope], its value c W_v. Positions turn the shared channels alone, so that
W_up could be absorbed into the queries. See: DeepSeek-AI, "DeepSeek-V2", arXiv 2405.04434, section 2.1.

legend: B batch, S time of the source, C model width, N kv_rank, H heads, K key width, R rope_width.
"""

import torch
from torch import Tensor, nn

from ablate.model.layers import STD, Linear, Nothing
from ablate.model.norm import RMSNorm
from ablate.model.spec import AttentionSpec


class Latent(nn.Module):
    """What keys and values are made of: source_BSC -> (B, S, N + R), the latent and the shared key."""

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__()
        C, N, R = spec.d_model, spec.kv_rank or 0, spec.rope_width
        self.down = Linear(C, N, bias=False, scale=C**-0.5 / STD)  # keeps the variance of its input
        self.norm = RMSNorm(N) if spec.kv_norm else nn.Identity()
        self.shared = Linear(C, R, bias=spec.bias) if R else Nothing()

    def forward(self, source_BSC: Tensor) -> Tensor:
        return torch.cat([self.norm(self.down(source_BSC)), self.shared(source_BSC)], -1)


class FromLatent(nn.Module):
    """Projects the latent to `width` channels for each head and lays the shared key beside each if asked to:
    (B, S, N + R) -> (B, S, H · channels). start: of the weights, for a source of C channels."""

    def __init__(self, spec: AttentionSpec, width: int, *, shared: bool, start: float = 1.0) -> None:
        super().__init__()
        self.rank, self.heads, self.beside = spec.kv_rank or 0, spec.heads, shared
        scale = start * (spec.d_model / self.rank) ** 0.5
        self.up = Linear(self.rank, spec.heads * width, bias=spec.bias, scale=scale)

    def forward(self, held_BSX: Tensor) -> Tensor:
        of_heads = self.up(held_BSX[..., : self.rank])
        if not self.beside:
            return of_heads
        shared = held_BSX[..., None, self.rank :].expand(*held_BSX.shape[:-1], self.heads, -1)
        return torch.cat([of_heads.unflatten(-1, (self.heads, -1)), shared], -1).flatten(-2)
