"""Which set of functions an attention can represent, as a text: equal texts mean equal sets.

Two variants of one class differ in how they are parametrized, and so in how they train, but not in what they
could learn. Head i adds A_i x OV_i to the residual stream, where A_i is its pattern and OV_i, (C, C), a
product of weights. Constants and static maps of a head's values fold into those weights. So if each head has
values of its own, fusion and out_proj matter only by which sets of OV_i they allow: their rank, and which of
them write into the same directions.
"""

from ablate.model import fusion, scores
from ablate.model.spec import AttentionSpec


def function_class(spec: AttentionSpec) -> str:
    """The class as KEY=VALUE …, first for the patterns, then for what the heads write. A variant without a
    known fold is a class of its own."""
    return f"{patterns_of(spec)} {_written(spec)}"


def slots_of(spec: AttentionSpec) -> int | None:
    """The number of slots if the fusion adds heads up within slots, up to a linear map of each head's values;
    None for any other fusion, and if heads share values."""
    method, options = fusion.method_of(spec.fusion)
    return spec.slots if method.folds(spec.heads, options) and spec.value_heads == spec.heads else None


def rank_of_out_proj(spec: AttentionSpec) -> int | None:
    """The rank to which out_rank limits out_proj; None if it is no limit, as it reaches full rank."""
    full = min(spec.fused_width, spec.d_model)
    return spec.out_rank if spec.out_rank is not None and spec.out_rank < full else None


def scale_folds(spec: AttentionSpec) -> bool:
    """Whether the place of 1/√key_width does not matter: inside it folds into W_Q, outside into W_V or
    out_proj."""
    return scores.method_of(spec.scores)[0].scale_folds and fusion.method_of(spec.fusion)[0].homogeneous


def any_scores(spec: AttentionSpec) -> bool:
    """Whether the products q·k of each head can be any bilinear form of two inputs."""
    wide = spec.key_width >= spec.d_model and spec.key_heads == spec.heads
    plain = not (spec.tie_qk or spec.rotary or spec.bias)
    return wide and plain and scores.method_of(spec.scores)[0].bilinear and scale_folds(spec)


def patterns_of(spec: AttentionSpec) -> str:
    """The part of the class that is of the patterns."""
    method, options = scores.method_of(spec.scores)
    parts = [f"scores={method.spelled(options)}", f"heads={spec.heads}"]
    if method.compares and any_scores(spec):
        parts += ["any q·k"]
    elif method.compares:
        parts += [f"key_heads={spec.key_heads}", f"key_width={spec.key_width}"]
        parts += ["tie_qk"] if spec.tie_qk else []
        parts += [f"rope={spec.rope_base:g}"] if spec.rotary else []
        inside = "inside" if spec.scale in ("inside", "both") else "none"
        parts += [] if scale_folds(spec) else [f"scale={inside}"]
    return " ".join(parts)


def _written(spec: AttentionSpec) -> str:
    slots, rank, width = slots_of(spec), rank_of_out_proj(spec), spec.value_width
    if slots is None:
        return _as_it_is(spec)
    if not spec.out_proj and (slots > 1 or _lacks_constant(spec)):
        return f"slices={slots} of {width}{' no constant' if _lacks_constant(spec) else ''}"
    joint = min(rank or slots * width, spec.d_model)
    if joint <= width:
        return f"shared rank={joint}"
    return f"slots={slots} rank={width}" + (f" joint rank={rank}" if rank else "")


def _as_it_is(spec: AttentionSpec) -> str:
    """The description for a fusion that is no static sum, or for values that are shared."""
    parts = [f"fusion={spec.form}", f"value_width={spec.value_width}", f"value_heads={spec.value_heads}"]
    parts += [] if fusion.method_of(spec.fusion)[0].homogeneous else [f"gain={spec.gain:.6g}"]
    parts += [f"out_proj rank={rank_of_out_proj(spec) or 'full'}"] if spec.out_proj else []
    return " ".join(parts)


def _lacks_constant(spec: AttentionSpec) -> bool:
    """Whether the output can't have the constant that a bias of out_proj would add: the biases of the values
    can stand in for it only if each row of a pattern sums to 1."""
    return not spec.out_proj and spec.bias and not scores.method_of(spec.scores)[0].sums_to_one
