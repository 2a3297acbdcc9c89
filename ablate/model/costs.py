"""The cost of a model in parameters and FLOPs.

Formulas are per model unless noted; the tests compare them with the real module and with
torch.utils.flop_counter. legend: d model width, h heads, k key width, v value width, F fused width, r rank of
out_proj, p patterns, n values that a pattern reads, m MLP width, T context, L layers, N vocabulary.
"""

from collections.abc import Callable
from typing import Any

from ablate.model import fusion, scores
from ablate.model.sharing import head_shape, sharing
from ablate.model.spec import AttentionSpec, ModelSpec


def attention_params(spec: ModelSpec) -> int:
    """Parameters of all attention modules. Each has d·k for each set of queries and of keys, d·v for each set
    of values, F·d or r·(F + d) for the readout, and those of its parts."""
    return sum(layers * _params_of(a) for a, layers in spec.kinds.values())


def _params_of(a: AttentionSpec) -> int:
    keys = 0 if a.tie_qk else a.key_heads
    projected = (a.query_heads + keys) * a.key_width + (a.value_heads * a.value_width if a.value_proj else 0)
    weights, biases = a.d_model * projected + _readout(a), projected + (a.d_model if a.out_proj else 0)
    return weights + (biases if a.bias else 0) + _of_parts(a, "count_params")


def total_params(spec: ModelSpec) -> int:
    """All trainable parameters, counting the tied embedding once. There is a norm before each attention and
    each MLP and one at the end of each stack, and each text has its own positions."""
    d, m = spec.d_model, spec.mlp_hidden
    norm = 2 * d if spec.bias else d
    mlp = (2 * d * m + (m + d if spec.bias else 0) + norm) if m else 0
    texts = 1 if spec.encoder is None else 2
    embeddings = (spec.vocab + texts * spec.context) * d
    norms = norm * (sum(layers for _, layers in spec.kinds.values()) + texts)
    return embeddings + attention_params(spec) + (spec.layers + spec.encoder_layers) * mlp + norms


def flops_per_token(spec: ModelSpec, asked_share: float = 1.0) -> int:
    """Matrix-product FLOPs of a forward pass, per token, with full T×T scores and the output layer, which is
    computed at asked_share of the positions. With an encoder, per token of a target as long as its source.

    Per layer: 2d for each number in the queries, keys and values; 2Tp(k + nv) for the scores and their
    product with the values; twice the readout's weights; 4dm for the MLP; and the FLOPs of the parts.
    """
    layers = sum(count * _flops_of(a, spec.context) for a, count in spec.kinds.values())
    mlps = (spec.layers + spec.encoder_layers) * 4 * spec.d_model * spec.mlp_hidden
    return layers + mlps + round(asked_share * 2 * spec.d_model * spec.vocab)


def _flops_of(a: AttentionSpec, T: int) -> int:
    """Matrix-product FLOPs of one attention, per token."""
    shared = sharing(a)
    projected = (a.query_heads + a.key_heads) * a.key_width
    projected += a.value_heads * a.value_width if a.value_proj else 0
    reading = len(shared.heads) * (a.key_width + shared.each * a.value_width)
    rule, options = scores.method_of(a.scores)
    own = _of_parts(a, "count_flops") + T * rule.count_flops_per_source(head_shape(a), options)
    return 2 * a.d_model * projected + 2 * T * reading + 2 * _readout(a) + own


COSTS: dict[str, Callable[[ModelSpec], int]] = {"params": total_params, "flops": flops_per_token}


def _readout(spec: AttentionSpec) -> int:
    """The number of weights of out_proj."""
    method, options = fusion.method_of(spec.fusion)
    fused = method.slots(spec.heads, options) * spec.value_width
    if not spec.out_proj:
        return 0
    return fused * spec.d_model if spec.out_rank is None else spec.out_rank * (fused + spec.d_model)


def _of_parts(spec: AttentionSpec, count: str) -> int:
    """The sum over the parts of a count. count: the name of a method of Part."""
    parts: list[tuple[Any, Any]] = [fusion.method_of(spec.fusion), scores.method_of(spec.scores)]
    return sum(getattr(method, count)(head_shape(spec), options) for method, options in parts)
