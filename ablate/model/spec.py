"""Every size of a model, as numbers."""

from dataclasses import dataclass

from ablate.config.schema import PartConfig


@dataclass(frozen=True)
class HeadShape:
    """What the parts of one attention need to know of its sizes."""

    heads: int
    value_width: int
    d_model: int


@dataclass(frozen=True, kw_only=True)
class AttentionSpec:
    """Every size of one multi-head attention, and its parts.

    residual_scale: what writes into the residual stream starts at this multiple of its draw.
    """

    d_model: int
    heads: int
    key_width: int
    value_width: int
    out_proj: bool
    bias: bool
    dropout: float
    residual_scale: float
    fusion: PartConfig

    @property
    def shape(self) -> HeadShape:
        return HeadShape(self.heads, self.value_width, self.d_model)


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Every size of one language model, as numbers: what `auto` and `match` came to."""

    vocab: int
    d_model: int
    layers: int
    context: int
    mlp_hidden: int
    bias: bool
    dropout: float
    heads: int
    key_width: int
    value_width: int
    out_proj: bool
    fusion: PartConfig

    @property
    def residual_scale(self) -> float:
        """1/√(2·layers): two modules a layer write into the residual stream, as in GPT-2."""
        return (2 * self.layers) ** -0.5

    @property
    def attention(self) -> AttentionSpec:
        """That of every layer."""
        return AttentionSpec(
            d_model=self.d_model,
            heads=self.heads,
            key_width=self.key_width,
            value_width=self.value_width,
            out_proj=self.out_proj,
            bias=self.bias,
            dropout=self.dropout,
            residual_scale=self.residual_scale,
            fusion=self.fusion,
        )
