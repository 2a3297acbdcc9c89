"""Which functions one attention can be, whatever its weights: equal texts, equal sets of functions.

What differs between two variants of one class is how they are parametrized, so how they train, not what they
could learn. Head i adds A_i x OV_i to the residual stream, where A_i is its pattern and OV_i, (C, C), a
product of weights. Constants, and static maps of a head's values, fold into those weights. So where each head
has values of its own, all that counts of fusion and out_proj is which sets of OV_i there are: what rank they
have, and which of them write into the same directions.
"""

from ablate.model import fusion, scores
from ablate.model.spec import AttentionSpec


def function_class(spec: AttentionSpec) -> str:
    """KEY=VALUE …, of the patterns, then of what is written with them. Without a known fold a variant is a
    class of its own."""
    return f"{_patterns(spec)} {_written(spec)}"


def slots_of(spec: AttentionSpec) -> int | None:
    """How many slots the heads write into side by side, where they are added up in each, up to a linear map
    of each head's own values; None where the fusion is no such thing or the values are not free."""
    method, options = fusion.method_of(spec.fusion)
    if not method.folds(spec.heads, options) or not _has_own_values(spec):
        return None
    return method.slots(spec.heads, options)


def rank_of_out_proj(spec: AttentionSpec) -> int | None:
    """The rank that out_rank sets; None where it sets none, since a product of that rank is any matrix."""
    method, options = fusion.method_of(spec.fusion)
    full = min(method.slots(spec.heads, options) * spec.value_width, spec.d_model)
    return spec.out_rank if spec.out_rank is not None and spec.out_rank < full else None


def scale_folds(spec: AttentionSpec) -> bool:
    """Whether 1/√key_width may stand anywhere: inside it folds into W_Q, outside into W_V or out_proj."""
    return scores.method_of(spec.scores)[0].scale_folds and fusion.method_of(spec.fusion)[0].homogeneous


def _patterns(spec: AttentionSpec) -> str:
    method, options = scores.method_of(spec.scores)
    said = [f"scores={method.spelled(options)}", f"heads={spec.heads}"]
    if method.compares:
        said += [
            f"query_heads={spec.query_heads}",
            f"key_heads={spec.key_heads}",
            f"key_width={spec.key_width}",
        ]
        said += ["tie_qk"] if spec.tie_qk else []
        inside = "inside" if spec.scale in ("inside", "both") else "none"
        said += [] if scale_folds(spec) else [f"scale={inside}"]
    return " ".join(said)


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
    """Of a fusion that is no static sum, or of values that are not free."""
    method, options = fusion.method_of(spec.fusion)
    constant = method.homogeneous and (spec.value_proj or spec.out_proj)
    said = [f"fusion={method.form(spec.heads, options)}", f"value_width={spec.value_width}"]
    said += [f"value_heads={spec.value_heads}"] if spec.value_proj else ["x"]
    said += [] if constant else [f"gain={spec.gain:.6g}"]
    said += [f"out_proj rank={rank_of_out_proj(spec) or 'full'}"] if spec.out_proj else []
    return " ".join(said)


def _has_own_values(spec: AttentionSpec) -> bool:
    return spec.value_proj and spec.value_heads == spec.heads


def _lacks_constant(spec: AttentionSpec) -> bool:
    """Whether out_proj has a bias that those of the values can't take over, as they are not read with
    weights that add up to 1."""
    return not spec.out_proj and spec.bias and not scores.method_of(spec.scores)[0].sums_to_one
