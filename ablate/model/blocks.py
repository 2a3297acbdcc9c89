"""The blocks of a transformer, Pre-LN with exact GELU, and the base class of the models made of them.

legend: B batch, T time, S time of a source, C model width, N vocabulary, K positions that are asked about.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.attend import Attend
from ablate.model.attention import Attention
from ablate.model.layers import Embedding, Linear
from ablate.model.masks import EVERYTHING, Mask
from ablate.model.scores import Scores
from ablate.model.spec import AttentionSpec


class MLP(nn.Module):
    """x -> GELU(x W_up) W_down, with the width, biases and initial scale that spec gives its attention."""

    def __init__(self, hidden: int, spec: AttentionSpec) -> None:
        super().__init__()
        self.up = Linear(spec.d_model, hidden, bias=spec.bias)
        self.down = Linear(hidden, spec.d_model, bias=spec.bias, scale=spec.residual_scale)

    def forward(self, x_BTC: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x_BTC)))


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)) unless mlp_hidden is 0."""

    def __init__(self, spec: AttentionSpec, mask: Mask, mlp_hidden: int) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(spec.d_model, bias=spec.bias)
        self.attention = Attention(spec, mask)
        if mlp_hidden:
            self.norm_2 = nn.LayerNorm(spec.d_model, bias=spec.bias)
            self.mlp = MLP(mlp_hidden, spec)
        else:
            self.mlp = None
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, x_BTC: Tensor, filled_BT: Tensor | None = None) -> Tensor:
        """filled_BT: as in Attention."""
        return self._transformed(self._attended(x_BTC, filled_BT))

    def _attended(self, x_BTC: Tensor, filled_BT: Tensor | None = None) -> Tensor:
        normed_BTC = self.norm_1(x_BTC)
        return x_BTC + self.dropout(self.attention(normed_BTC, normed_BTC, filled_BT))

    def _transformed(self, x_BTC: Tensor) -> Tensor:
        return x_BTC if self.mlp is None else x_BTC + self.dropout(self.mlp(self.norm_2(x_BTC)))


class DecoderBlock(Block):
    """A block with x + cross(norm(x), memory) before its MLP. memory: the output of an encoder."""

    def __init__(self, spec: AttentionSpec, mask: Mask, mlp_hidden: int, cross: AttentionSpec) -> None:
        super().__init__(spec, mask, mlp_hidden)
        self.norm_cross = nn.LayerNorm(spec.d_model, bias=spec.bias)
        self.cross = Attention(cross, EVERYTHING)

    def forward(self, x_BTC: Tensor, memory_BSC: Tensor, filled_BS: Tensor | None = None) -> Tensor:
        """filled_BS: true where the memory is no padding; None if it has none."""
        x_BTC = self._attended(x_BTC)
        x_BTC = x_BTC + self.dropout(self.cross(self.norm_cross(x_BTC), memory_BSC, filled_BS))
        return self._transformed(x_BTC)


class Site(NamedTuple):
    """An attention of a model. kind: encoder, cross, or decoder, which is that of a model of one text, too.
    layer: counts from 1."""

    kind: str
    layer: int
    attention: Attention


class Model(nn.Module, ABC):
    """Predicts each token from those before it, and from a source if it takes one. blocks: of the decoder."""

    token: Embedding
    position: Embedding
    dropout: nn.Dropout
    blocks: Sequence[Block]
    norm: nn.LayerNorm
    product: Callable[[Tensor, Tensor, Tensor | None], Tensor] = staticmethod(F.linear)

    @abstractmethod
    def forward(
        self, tokens_BT: Tensor, asked_K: Tensor | None = None, source_BS: Tensor | None = None
    ) -> Tensor:
        """tokens_BT -> logits_BTN. asked_K: indices of flattened positions; if given, the result is logits_KN
        at these positions only."""

    @abstractmethod
    def sites(self) -> list[Site]:
        """Its attentions, ordered by kind, then by layer."""

    def embedded(self, tokens_BT: Tensor, position: Embedding) -> Tensor:
        """x_BTC, what the blocks begin with."""
        positions_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        return self.dropout(self.token(tokens_BT) + position(positions_T))

    def logits(self, x_BTC: Tensor, asked_K: Tensor | None) -> Tensor:
        """From what the last block returns; asked_K as in `forward`."""
        if asked_K is not None:
            x_BTC = x_BTC.flatten(0, 1)[asked_K]
        return self.product(self.norm(x_BTC), self.token.weight, None)

    def loss(
        self,
        tokens_BT: Tensor,
        targets_BT: Tensor,
        asked_K: Tensor | None = None,
        source_BS: Tensor | None = None,
    ) -> Tensor:
        """Mean cross-entropy in nats over the positions asked about, at least in float32; 0 without any."""
        logits, targets = self(tokens_BT, asked_K, source_BS), targets_BT.flatten()
        if asked_K is not None:
            targets = targets[asked_K]
        if not len(targets):
            return logits.sum()
        dtype = torch.promote_types(logits.dtype, torch.float32)
        return F.cross_entropy(logits.flatten(0, -2).to(dtype), targets)

    def use(self, *, product: Callable[..., Tensor] | None = None, attend: Attend | None = None) -> None:
        """Replace the implementation of every matrix product, or of every softmax attention.

        attend: one of the formulations of ablate.model.attend.
        """
        for module in self.modules():
            if product is not None and isinstance(module, Linear | Model):
                module.product = product
            if attend is not None and isinstance(module, Scores):
                module.attend = attend
