"""The cost of a model in parameters and FLOPs, and the standard model that costs are matched to.

Parameters of a method that is not ablate's are counted on a module. The formulas for all else are per model
unless noted; the tests compare them with the real module and with torch.utils.flop_counter. legend: d model
width, h heads, k key width, v value width, m MLP width, T context.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from ablate import rng
from ablate.model import scores
from ablate.model.parts import HeadShape, Part
from ablate.model.spec import AttentionSpec, ModelSpec, standard

MATRICES = {"gelu": 2, "relu2": 2, "swiglu": 3}  # of an MLP, by its kind


def attention_params(spec: ModelSpec) -> int:
    """Parameters of all attention modules."""
    return sum(layers * _params_of(a) for a, layers in spec.kinds.values())


def _params_of(a: AttentionSpec) -> int:
    """Parameters of one attention."""
    tied = a.key_heads * a.key_width if a.tie_qk else 0
    projections = (a.d_model + a.bias) * (_projected(a) - tied) + a.out_proj * (
        _written(a) + a.bias * a.d_model
    )
    return projections + sum(_params_of_part(a.head_shape(), *part) for part in a.parts)


def _params_of_part(shape: HeadShape, part: type[Part], options: Any) -> int:
    """Parameters of a part; of one that is not ablate's, counted on a module."""
    if part.__module__.startswith("ablate."):
        return part.count_params(shape, options)
    with rng.drawing(0, part.stream, "counted"):
        return sum(param.numel() for param in part(shape, options).parameters())


def _projected(a: AttentionSpec) -> int:
    """Numbers in the queries, keys and values of a token."""
    return (a.heads + a.key_heads) * a.key_width + a.value_heads * a.value_width


def _written(a: AttentionSpec) -> int:
    """Numbers in the matrices of out_proj."""
    fused, d = a.fused_width, a.d_model
    return fused * d if a.out_rank is None else a.out_rank * (fused + d)


def total_params(spec: ModelSpec) -> int:
    """All trainable parameters, counting the tied embedding once. There is a norm before each attention and
    each MLP and one at the end of each stack, and each text has its own positions, if they are learned."""
    d, m, matrices = spec.d_model, spec.mlp_hidden, MATRICES[spec.mlp]
    norm = 2 * d if spec.bias and spec.norm == "layer" else d
    mlp = (matrices * d * m + ((matrices - 1) * m + d if spec.bias else 0) + norm) if m else 0
    texts = 1 if spec.encoder is None else 2
    embeddings = (spec.vocab + (texts * spec.context if spec.position == "learned" else 0)) * d
    norms = norm * (sum(layers for _, layers in spec.kinds.values()) + texts)
    return embeddings + attention_params(spec) + (spec.layers + spec.encoder_layers) * mlp + norms


def flops_per_token(spec: ModelSpec, target_share: float = 1.0) -> int:
    """Matrix-product FLOPs of a forward pass, per token, with full T×T scores and the output layer, which is
    computed at target_share of the positions. With an encoder, per token of a target as long as its source.

    Per layer: 2d for each number in the queries, keys and values; 2Th(k + v) for the scores and their product
    with the values; twice the weights of out_proj; 2dm for each matrix of the MLP; the FLOPs of the parts.
    """
    layers = sum(count * _flops_of(a, spec.context) for a, count in spec.kinds.values())
    mlps = (spec.layers + spec.encoder_layers) * 2 * MATRICES[spec.mlp] * spec.d_model * spec.mlp_hidden
    return layers + mlps + round(target_share * 2 * spec.d_model * spec.vocab)


def _flops_of(a: AttentionSpec, T: int) -> int:
    """Matrix-product FLOPs of one attention, per token."""
    shape, reading = a.head_shape(), a.heads * (a.key_width + a.value_width)
    products = a.d_model * _projected(a) + T * reading + a.out_proj * _written(a)
    rule, options = scores.method_of(a.scores)
    own = sum(part.count_flops(shape, of_part) for part, of_part in a.parts)
    return 2 * products + own + T * rule.count_flops_per_source(shape, options)


COSTS: dict[str, Callable[[ModelSpec], int]] = {"params": total_params, "flops": flops_per_token}


def standard_hidden(d_model: int, mlp: str) -> int:
    """The width of an MLP that costs what two matrices of 4·d_model² do: of a gated one, which has three, to
    the nearest multiple of 8."""
    return 4 * d_model if MATRICES[mlp] == 2 else max(8, 8 * round(d_model / 3))


def reference(spec: ModelSpec) -> ModelSpec:
    """The model that costs are matched to: the same with standard attention and an MLP of standard width."""
    with_standard = spec.with_chosen(**standard(spec.d_model, spec.chosen.heads))
    return dataclasses.replace(with_standard, mlp_hidden=standard_hidden(spec.d_model, spec.mlp))


def relative_cost(spec: ModelSpec, cost: str) -> float:
    """The relative difference between the params or flops of a model and those of its reference."""
    target = COSTS[cost](reference(spec))
    return (COSTS[cost](spec) - target) / target
