"""Every size of a model, as numbers."""

import math
from dataclasses import dataclass, replace
from typing import Any

from ablate.config.schema import STANDARD_FUSION, STANDARD_SCORES, PartConfig


def standard(d_model: int, heads: int) -> dict[str, Any]:
    """The fields of the standard attention: softmax, concat, narrow heads that share nothing, out_proj."""
    return {
        "fusion": PartConfig(name=STANDARD_FUSION, options={"normalize": "none"}),
        "scores": PartConfig(name=STANDARD_SCORES, options={}),
        **dict.fromkeys(("heads", "query_heads", "key_heads", "value_heads"), heads),
        **dict.fromkeys(("key_width", "value_width"), d_model // heads),
        "tie_qk": False,
        "query_proj": True,
        "scale": "inside",
        "value_proj": True,
        "kv_rank": None,
        "kv_norm": False,
        "rope_width": 0,
        "value_gain": 1.0,
        "out_proj": True,
        "out_rank": None,
    }


# The parts of two backbones, as the keys of model name them.
GPT2 = {"position": "learned", "norm": "layer", "mlp": "gelu"}
LLAMA = {"position": "rope", "norm": "rms", "mlp": "swiglu"}
MATRICES = {"gelu": 2, "relu2": 2, "swiglu": 3}  # of an MLP, by its kind


def standard_hidden(d_model: int, mlp: str) -> int:
    """The width of an MLP that costs what two matrices of 4·d_model² do: of a gated one, which has three, to
    the nearest multiple of 8."""
    return 4 * d_model if MATRICES[mlp] == 2 else max(8, 8 * round(d_model / 3))


@dataclass(frozen=True, kw_only=True)
class HeadShape:
    """The sizes of an attention that its parts need.

    patterns: the first head of each attention pattern (ablate.model.attention.Sharing). scale: the factor on
    the scores before softmax. layer: counts from 1. each: how many values a pattern reads. fused: the width
    of the fused heads. turned: how many channels of queries and keys positions turn.
    """

    heads: int
    key_width: int
    value_width: int
    d_model: int
    patterns: tuple[int, ...]
    scale: float
    layer: int = 1
    each: int = 1
    fused: int = 0
    turned: int = 0

    @property
    def differential_start(self) -> float:
        """λ_0 of differential attention: Ye et al., arXiv 2410.05258."""
        return 0.8 - 0.6 * math.exp(-0.3 * (self.layer - 1))


@dataclass(frozen=True, kw_only=True)
class AttentionSpec:
    """Every size of one multi-head attention, and its parts.

    query_heads, key_heads, value_heads: how many sets of each there are; head i uses set ⌊i·count/heads⌋.
    scale: where 1/√key_width is applied: inside softmax, outside on the heads' outputs, both or none.
    rope_base: of the angles by which queries and keys are turned (ablate.model.position); None for no turn.
    kv_rank: of the latent that keys and values are made of (ablate.model.latent), with a norm if kv_norm;
    rope_width: how many channels of a key are turned then, the only ones that are not made of it.
    value_gain: another constant factor on the heads' outputs. out_proj: false for none, the name of a readout
    in its place. out_rank: its rank as a product of two factors; None for one matrix. residual_scale: factor
    on the initial weights of what writes into the residual stream.
    """

    d_model: int
    heads: int
    query_heads: int
    key_heads: int
    value_heads: int
    key_width: int
    value_width: int
    tie_qk: bool
    query_proj: bool
    scale: str
    value_proj: bool
    value_gain: float
    out_proj: bool | str
    out_rank: int | None
    bias: bool
    dropout: float
    residual_scale: float
    scores: PartConfig
    fusion: PartConfig
    rope_base: float | None = None
    kv_rank: int | None = None
    kv_norm: bool = False
    rope_width: int = 0

    @property
    def turned(self) -> int:
        """How many channels of each query and key positions turn, the last ones."""
        return 0 if not self.rope_base else self.rope_width if self.kv_rank else self.key_width

    @property
    def gain(self) -> float:
        """The constant factor on the outputs of the heads."""
        outside = self.scale in ("outside", "both")
        return self.value_gain / math.sqrt(self.key_width) if outside else self.value_gain


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Every size of one model, as numbers, with `auto` and `match` resolved.

    attention: self-attention in each of `layers`; it also holds the sizes that all modules share. encoder,
    cross: attention in the encoder, which has encoder_layers, and from the decoder to its output; None for a
    model of one text. at: which of them the keys of a config apply to; the others are standard. position,
    norm, mlp: the kinds of its other parts, as the keys of model name them.
    """

    vocab: int
    layers: int
    context: int
    mlp_hidden: int
    attention: AttentionSpec
    encoder_layers: int = 0
    encoder: AttentionSpec | None = None
    cross: AttentionSpec | None = None
    at: str = "all"
    position: str = "learned"
    norm: str = "layer"
    mlp: str = "gelu"

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
    def chosen(self) -> AttentionSpec:
        """The attention that the keys of a config apply to; one of them if at=all."""
        chosen = {"encoder": self.encoder, "cross": self.cross}.get(self.at, self.attention)
        assert chosen is not None, "sizing refuses it"
        return chosen

    @property
    def kinds(self) -> dict[str, tuple[AttentionSpec, int]]:
        """Each kind of attention in the model, decoder, encoder or cross, with the number of its layers."""
        kinds = {"decoder": (self.attention, self.layers)}
        if self.encoder is not None and self.cross is not None:
            kinds |= {"encoder": (self.encoder, self.encoder_layers), "cross": (self.cross, self.layers)}
        return kinds

    def with_chosen(self, **changes: Any) -> "ModelSpec":
        """The spec with these fields changed in the attentions that the keys of a config apply to."""
        fields = {"decoder": "attention", "encoder": "encoder", "cross": "cross"}
        return replace(
            self,
            **{
                fields[kind]: replace(spec, **changes)
                for kind, (spec, _) in self.kinds.items()
                if self.at in ("all", kind)
            },
        )
