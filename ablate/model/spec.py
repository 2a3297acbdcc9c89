"""Configs as a model takes them: every size a number. Loads no torch."""

import math
from dataclasses import dataclass, replace
from typing import Any

from ablate.config.schema import STANDARD_FUSION, STANDARD_SCORES, AttentionConfig, ModelConfig, PartConfig
from ablate.model import fusion, scores
from ablate.model.parts import HeadShape, Part

# The parts of two backbones, as the fields of ModelSpec.
GPT2 = {"position": "learned", "norm": "layer", "mlp": "gelu"}
LLAMA = {"position": "rope", "norm": "rms", "mlp": "swiglu"}
STD = 0.02  # standard deviation of every drawn weight, as in GPT-2


def standard(d_model: int, heads: int) -> dict[str, Any]:
    """The fields of the standard attention: softmax, concat, narrow heads that share nothing, out_proj."""
    return {
        "fusion": PartConfig(name=STANDARD_FUSION, options={"normalize": "none"}),
        "scores": PartConfig(name=STANDARD_SCORES, options={}),
        **dict.fromkeys(("heads", "key_heads", "value_heads"), heads),
        **dict.fromkeys(("key_width", "value_width"), d_model // heads),
        "tie_qk": False,
        "scale": "inside",
        "out_proj": True,
        "out_rank": None,
    }


@dataclass(frozen=True, kw_only=True)
class AttentionSpec(AttentionConfig):
    """One multi-head attention, with what it shares with the model around it.

    key_heads, value_heads: how many sets of each there are; head i uses set ⌊i·count/heads⌋. key_width: 0
    without queries and keys. rope_base: of the angles by which queries and keys are turned (layers.Rotary);
    None for no turn. residual_scale: factor on the initial weights of what writes into the residual stream.
    """

    key_heads: int
    value_heads: int
    key_width: int
    value_width: int
    d_model: int
    bias: bool
    dropout: float
    residual_scale: float
    rope_base: float | None = None

    @property
    def rotary(self) -> bool:
        """Whether positions turn queries and keys."""
        return self.rope_base is not None and self.key_width > 0

    @property
    def gain(self) -> float:
        """The constant factor on the outputs of the heads."""
        return 1 / math.sqrt(self.key_width) if self.scale in ("outside", "both") else 1.0

    @property
    def value_start(self) -> float:
        """The factor on the initial weights of the values. Without out_proj they are the last projection
        before the residual stream."""
        return 1.0 if self.out_proj else self.residual_scale

    @property
    def parts(self) -> list[tuple[type[Part], Any]]:
        """The classes of its exchangeable parts, each with its options."""
        return [scores.method_of(self.scores), fusion.method_of(self.fusion)]

    @property
    def form(self) -> str:
        """The form of its fusion: equal forms compute the same function (Fusion.form)."""
        method, options = fusion.method_of(self.fusion)
        return method.form(self.heads, options)

    @property
    def slots(self) -> int:
        """How many vectors of value width the fused vector concatenates."""
        method, options = fusion.method_of(self.fusion)
        return method.slots(self.heads, options)

    @property
    def fused_width(self) -> int:
        """The width of what the fusion makes of the heads of a token."""
        return self.slots * self.value_width

    def head_shape(self, layer: int = 1) -> HeadShape:
        """The sizes that its parts are given."""
        inside = self.scale in ("inside", "both") and self.key_width > 0
        return HeadShape(
            heads=self.heads,
            key_width=self.key_width,
            value_width=self.value_width,
            d_model=self.d_model,
            scale=1 / math.sqrt(self.key_width) if inside else 1.0,
            layer=layer,
            rotary=self.rotary,
            value_start=self.value_start,
        )

    def check_parts(self) -> None:
        """Raises ConfigError if a part does not fit these sizes."""
        for part, options in self.parts:
            part.check(self.head_shape(), options)


@dataclass(frozen=True, kw_only=True)
class ModelSpec(ModelConfig):
    """One model, with `auto` and `match` resolved.

    attention: self-attention in each of `layers`. encoder, cross: attention in the encoder, and from the
    decoder to its output; None for a model of one text. at: which of them the keys of a config apply to; the
    others are standard.
    """

    mlp_hidden: int
    encoder_layers: int
    vocab: int
    at: str
    attention: AttentionSpec
    encoder: AttentionSpec | None = None
    cross: AttentionSpec | None = None

    @property
    def chosen(self) -> AttentionSpec:
        """The attention that the keys of a config apply to; one of them if at=all."""
        return self.kinds["decoder" if self.at == "all" else self.at][0]

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
        changed = {
            fields[kind]: replace(spec, **changes)
            for kind, (spec, _) in self.kinds.items()
            if self.at in ("all", kind)
        }
        return replace(self, **changed)
