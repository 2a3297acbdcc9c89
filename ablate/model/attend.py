"""Softmax attention in two formulations, which compute the same and differ in speed.

PyTorch's fused kernel never holds a whole pattern; the unfused one is products and a softmax. In bfloat16 on
a CPU the fused one can take five times its float32 time, which nobody can know without timing it.

legend: B batch, T time of the queries, S time of the keys and values, P patterns, K key width, W width of all
values that a pattern reads.
"""

import functools
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.compute.fastest import fastest
from ablate.model.masks import CAUSAL, EVERYTHING, Mask

Attend = Callable[[Tensor, Tensor, Tensor, Mask, float, float], Tensor]

SHAPES = ((12, 4, 64, 32), (32, 4, 64, 16), (8, 6, 256, 64))  # (B, P, T, K) of the presets
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.03}  # of the largest entry


def fused(q_BPTK: Tensor, k_BPSK: Tensor, v_BPSW: Tensor, mask: Mask, dropout: float, scale: float) -> Tensor:
    """softmax(scale·QKᵀ) V over what the mask lets each query see, for each pattern: (B, P, T, W).

    Raises ValueError for a mask that does not fit T and S.
    """
    T, S = q_BPTK.shape[-2], k_BPSK.shape[-2]
    if mask == CAUSAL and T == S:  # the same, by a kernel that builds no mask
        return F.scaled_dot_product_attention(
            q_BPTK, k_BPSK, v_BPSW, dropout_p=dropout, is_causal=True, scale=scale
        )
    visible = None if mask == EVERYTHING else mask.visible(T, S, q_BPTK.device)
    return F.scaled_dot_product_attention(
        q_BPTK, k_BPSK, v_BPSW, attn_mask=visible, dropout_p=dropout, scale=scale
    )


def unfused(
    q_BPTK: Tensor, k_BPSK: Tensor, v_BPSW: Tensor, mask: Mask, dropout: float, scale: float
) -> Tensor:
    """The same, by way of the whole pattern."""
    return F.dropout(masked_softmax(scale * q_BPTK @ k_BPSK.mT, mask), dropout) @ v_BPSW


def masked_softmax(scores_BPTS: Tensor, mask: Mask) -> Tensor:
    """Softmax over what the mask lets each query see; 0 elsewhere."""
    if mask == EVERYTHING:
        return torch.softmax(scores_BPTS, -1)
    T, S = scores_BPTS.shape[-2:]
    hidden = _hidden.__wrapped__ if torch.compiler.is_compiling() else _hidden  # compiled, it costs nothing
    return torch.softmax(scores_BPTS + hidden(mask, T, S, scores_BPTS.dtype, scores_BPTS.device), -1)


@functools.lru_cache(maxsize=64)
def _hidden(mask: Mask, T: int, S: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """What is added to scores: −∞ where the mask shows nothing, else 0. Remembered, as a step asks for it in
    every layer."""
    visible = mask.visible(T, S, device)
    return torch.zeros(visible.shape, dtype=dtype, device=device).masked_fill(~visible, float("-inf"))


FORMULATIONS: dict[str, Attend] = {"fused": fused, "unfused": unfused}


@functools.cache
def fastest_attention() -> str:
    """Of bfloat16, on one thread: `fused` or `unfused`. In float32 the fused one is never behind."""
    choices = {name: partial(_seconds, attend) for name, attend in FORMULATIONS.items() if agrees(attend)}
    return fastest("attention", choices)


def agrees(attend: Attend, dtype: torch.dtype = torch.bfloat16) -> bool:
    """Whether it computes in `dtype` what the fused one does in float64 of the same numbers, in value and in
    every gradient, within TOLERANCE."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 3, 17, 8), (2, 3, 17, 8), (2, 3, 17, 5), (2, 3, 17, 5))
    drawn = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    found, exact = _with_gradients(attend, *drawn), _with_gradients(fused, *(t.double() for t in drawn))
    return all(
        (a - b).abs().max() < TOLERANCE[dtype] * b.abs().max() for a, b in zip(found, exact, strict=True)
    )


def _with_gradients(attend: Attend, q: Tensor, k: Tensor, v: Tensor, grad: Tensor) -> list[Tensor]:
    q, k, v = (t.clone().requires_grad_() for t in (q, k, v))
    z = attend(q, k, v, CAUSAL, 0.0, 0.3)
    return [z.detach(), *torch.autograd.grad(z, (q, k, v), grad)]


def _seconds(attend: Attend) -> float:
    total = 0.0
    for B, P, T, K in SHAPES:
        q, k, v = (torch.ones(B, P, T, K, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
        grad = torch.ones(B, P, T, K, dtype=torch.bfloat16)
        began = time.perf_counter()
        torch.autograd.grad(attend(q, k, v, CAUSAL, 0.0, 0.3), (q, k, v), grad)
        total += time.perf_counter() - began
    return total
