"""Every size of a model, as numbers."""

from dataclasses import dataclass

from ablate.config.schema import FusionConfig


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
    fusion: FusionConfig
