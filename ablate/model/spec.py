"""Every size of a model, as numbers."""

import math
from dataclasses import dataclass

from ablate.config.schema import PartConfig


@dataclass(frozen=True, kw_only=True)
class HeadShape:
    """What the parts of one attention need to know of its sizes.

    patterns: the first head of each attention pattern (ablate.model.sharing). scale: what scores are
    multiplied by before softmax.
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

    query_heads, key_heads, value_heads: how many of each there are; head i uses number ⌊i·count/heads⌋.
    scale: where 1/√key_width stands: inside softmax, outside on what the heads read, on both, on none.
    value_gain: another constant there. out_rank: of out_proj, as two factors; None for one matrix.
    residual_scale: what writes into the residual stream starts at this multiple of its draw.
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
        """The constant by which what the heads read is multiplied."""
        outside = self.scale in ("outside", "both")
        return self.value_gain / math.sqrt(self.key_width) if outside else self.value_gain


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Every size of one language model, as numbers: what `auto` and `match` came to.

    attention: that of every layer, which has the sizes that all modules share.
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
