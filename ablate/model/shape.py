"""An attention by its sizes: its parts, what they are given, and what they make of it. Loads no torch.

legend: F fused width.
"""

import math
from typing import Any

from ablate.model import fusion, scores
from ablate.model.parts import Part
from ablate.model.spec import AttentionSpec, HeadShape


def form(spec: AttentionSpec) -> str:
    """The form of the attention's fusion: equal forms compute the same function (Fusion.form)."""
    method, options = fusion.method_of(spec.fusion)
    return method.form(spec.heads, options)


def parts_of(spec: AttentionSpec) -> list[tuple[type[Part], Any]]:
    """The classes of its exchangeable parts, each with its options."""
    return [scores.method_of(spec.scores), fusion.method_of(spec.fusion)]


def check_parts(spec: AttentionSpec) -> None:
    """Raises ConfigError if a part does not fit these sizes."""
    shape = head_shape(spec)
    for part, options in parts_of(spec):
        part.check(shape, options)


def value_start(spec: AttentionSpec) -> float:
    """The factor on the initial weights of the values. Without out_proj they are the last projection before
    the residual stream."""
    return 1.0 if spec.out_proj else spec.residual_scale


def fused_width(spec: AttentionSpec) -> int:
    """F."""
    method, options = fusion.method_of(spec.fusion)
    return method.slots(spec.heads, options) * spec.value_width


def head_shape(spec: AttentionSpec, layer: int = 1) -> HeadShape:
    """The sizes that the parts of this attention are given."""
    inside = spec.scale in ("inside", "both") and spec.key_width > 0
    return HeadShape(
        heads=spec.heads,
        key_width=spec.key_width,
        value_width=spec.value_width,
        d_model=spec.d_model,
        scale=1 / math.sqrt(spec.key_width) if inside else 1.0,
        layer=layer,
        rotary=spec.rotary,
        value_start=value_start(spec),
    )
