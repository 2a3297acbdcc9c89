"""Every size of a model, as numbers."""

import math
from dataclasses import dataclass

from ablate.config.schema import PartConfig


@dataclass(frozen=True, kw_only=True)
class HeadShape:
    """The sizes of an attention that its parts need.

    patterns: the first head of each attention pattern (ablate.model.sharing). scale: the factor on the scores
    before softmax.
    """

    heads: int
    key_width: int
    value_width: int
    d_model: int
    patterns: tuple[int, ...]
    scale: float


@dataclass(frozen=True, kw_only=True)
class AttentionSpec:
    """Every size of one multi-head attention, and its parts.

    query_heads, key_heads, value_heads: how many sets of each there are; head i uses set ⌊i·count/heads⌋.
    scale: where 1/√key_width is applied: inside softmax, outside on the heads' outputs, both or none.
    value_gain: another constant factor on the heads' outputs. out_rank: the rank of out_proj as a product of
    two factors; None for one matrix. residual_scale: factor on the initial weights of what writes into the
    residual stream.
    """

    d_model: int
    heads: int
    query_heads: int
    key_heads: int
    value_heads: int
    key_width: int
    value_width: int
    tie_qk: bool
    scale: str
    value_proj: bool
    value_gain: float
    out_proj: bool
    out_rank: int | None
    bias: bool
    dropout: float
    residual_scale: float
    scores: PartConfig
    fusion: PartConfig

    @property
    def gain(self) -> float:
        """The constant factor on the outputs of the heads."""
        outside = self.scale in ("outside", "both")
        return self.value_gain / math.sqrt(self.key_width) if outside else self.value_gain


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Every size of one language model, as numbers, with `auto` and `match` resolved.

    attention: of every layer; it also holds the sizes that all modules share.
    """

    vocab: int
    layers: int
    context: int
    mlp_hidden: int
    attention: AttentionSpec

    @property
    def d_model(self) -> int:
        return self.attention.d_model

    @property
    def bias(self) -> bool:
        return self.attention.bias

    @property
    def dropout(self) -> float:
        return self.attention.dropout

    @property
    def residual_scale(self) -> float:
        return self.attention.residual_scale
