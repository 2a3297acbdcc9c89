"""How large a model is, what it costs, and how `auto` and `match` become numbers.

Formulas are per model unless said otherwise; the tests hold them against the real module and
torch.utils.flop_counter. legend: d model width, h heads, k key width, v value width, m MLP width,
T context, L layers, N vocabulary.
"""

import dataclasses
from collections.abc import Callable

from ablate.config.rules import ConfigError
from ablate.config.schema import STANDARD_FUSION, PartConfig, RunConfig
from ablate.model.fusion import method_of
from ablate.model.spec import ModelSpec

TOLERANCE = 0.01  # how far, relatively, a matched model may cost more or less than its reference


def attention_params(spec: ModelSpec) -> int:
    """Parameters of all attention modules: 2dhk + dhv, the fusion's own, and the readout's F·d."""
    d, h, k, v = spec.d_model, spec.heads, spec.key_width, spec.value_width
    method, options = method_of(spec.fusion)
    fused = method.slots(h, options) * v
    weights = d * h * (2 * k + v) + (fused * d if spec.out_proj else 0)
    biases = h * (2 * k + v) + (d if spec.out_proj else 0) if spec.bias else 0
    return spec.layers * (weights + biases + method.count_params(spec.attention.shape, options))


def total_params(spec: ModelSpec) -> int:
    """All trainable parameters, the tied embedding once."""
    d, m = spec.d_model, spec.mlp_hidden
    norm = 2 * d if spec.bias else d
    mlp = 2 * d * m + (m + d if spec.bias else 0)
    embeddings = (spec.vocab + spec.context) * d
    return embeddings + attention_params(spec) + spec.layers * (mlp + 2 * norm) + norm


def flops_per_token(spec: ModelSpec) -> int:
    """Matrix-product FLOPs of a forward pass, per token: full T×T scores, output layer included.

    Layer: 2dh(2k+v) for queries, keys, values; 2Th(k+v) for scores and their product with the values;
    2Fd for the readout; 4dm for the MLP.
    """
    d, h, k, v = spec.d_model, spec.heads, spec.key_width, spec.value_width
    method, options = method_of(spec.fusion)
    fused = method.slots(h, options) * v
    layer = 2 * d * h * (2 * k + v) + 2 * spec.context * h * (k + v) + 4 * d * spec.mlp_hidden
    layer += 2 * fused * d if spec.out_proj else 0
    layer += method.count_flops(spec.attention.shape, options)
    return spec.layers * layer + 2 * d * spec.vocab


COSTS: dict[str, Callable[[ModelSpec], int]] = {"params": total_params, "flops": flops_per_token}
MATCHED_WIDTH = {"mlp": "mlp_hidden", "value_width": "value_width"}


def resolve_spec(config: RunConfig, vocab: int) -> ModelSpec:
    """The sizes that `config` asks for, with a text of `vocab` tokens.

    Sizes given as numbers are kept and checked, so resolving twice changes nothing. Raises ConfigError
    for what can't be built: widths that do not divide, values with no way into the residual stream,
    costs that can't be matched.
    """
    spec = _unmatched(config, vocab)
    if config.match == "none":
        return spec
    _check_match(config)
    matched = _matched(config, spec)
    error = _relative_cost(config, matched)
    if abs(error) <= TOLERANCE:
        return matched
    width = MATCHED_WIDTH[config.match_by]
    raise ConfigError(
        f"match={config.match}: the closest that match_by={config.match_by} comes to the cost of"
        f" {STANDARD_FUSION} with out_proj is {error:+.1%}, at {width}={getattr(matched, width)}, and"
        f" {TOLERANCE:.0%} is allowed; nearest that can be matched: {_nearest_match(config, vocab)}"
    )


def resolved(config: RunConfig, spec: ModelSpec) -> RunConfig:
    """`config` with `auto` and `match` replaced by the numbers they came to."""
    model = dataclasses.replace(config.model, mlp_hidden=spec.mlp_hidden)
    match_by = config.match_by if config.match != "none" else "mlp"  # says nothing then, so says one thing
    return dataclasses.replace(
        config,
        model=model,
        value_width=spec.value_width,
        key_width=spec.key_width,
        fusion=spec.fusion,
        match_by=match_by,
    )


def match_error(config: RunConfig, spec: ModelSpec) -> float | None:
    """By which share `spec` costs more than its reference; None where nothing is matched."""
    return None if config.match == "none" else _relative_cost(config, spec)


def reference(spec: ModelSpec) -> ModelSpec:
    """The standard model that a match is measured against: concat, narrow, out_proj on, MLP 4d."""
    return dataclasses.replace(
        spec,
        fusion=PartConfig(name=STANDARD_FUSION, options={"normalize": "none"}),
        key_width=spec.d_model // spec.heads,
        value_width=spec.d_model // spec.heads,
        out_proj=True,
        mlp_hidden=4 * spec.d_model,
    )


def _unmatched(config: RunConfig, vocab: int) -> ModelSpec:
    method, options = method_of(config.fusion)
    model = config.model
    return ModelSpec(
        vocab=vocab,
        d_model=model.d_model,
        layers=model.layers,
        context=model.context,
        mlp_hidden=4 * model.d_model if model.mlp_hidden == "auto" else model.mlp_hidden,
        bias=model.bias,
        dropout=model.dropout,
        heads=config.heads,
        key_width=_narrow(config, "key_width") if config.key_width == "auto" else config.key_width,
        value_width=_value_width(config, slots=method.slots(config.heads, options)),
        out_proj=config.out_proj,
        fusion=PartConfig(name=config.fusion.name, options=dataclasses.asdict(options)),
    )


def _narrow(config: RunConfig, key: str) -> int:
    d, heads = config.model.d_model, config.heads
    if d % heads == 0:
        return d // heads
    below = next(h for h in range(min(heads, d), 0, -1) if d % h == 0)
    above = next((h for h in range(heads + 1, d + 1) if d % h == 0), None)
    near = [below] if above is None else [below, above]
    raise ConfigError(
        f"heads={heads}: does not divide model.d_model={d}, as {key}={getattr(config, key)} needs;"
        f" use heads={' or heads='.join(map(str, near))}, or give key_width and value_width as numbers"
    )


def _value_width(config: RunConfig, slots: int) -> int:
    """The width of a head's output. Without out_proj the fused vector, slots·V wide, is added to the
    residual stream as it is, so it has to be d wide."""
    d, asked = config.model.d_model, config.value_width
    if asked == "narrow" or (asked == "auto" and config.out_proj):
        width = _narrow(config, "value_width")
    elif asked == "wide":
        width = d
    elif asked == "auto":
        width = max(1, d // slots)
    else:
        width = asked
    if config.out_proj or slots * width == d:
        return width
    fitting = f"use value_width={d // slots} or" if d % slots == 0 else "no value_width fits, so use"
    raise ConfigError(
        f"value_width={asked}: with out_proj=false the fused heads go straight into the residual stream,"
        f" which takes model.d_model={d} numbers a token; fusion={config.fusion.name} heads={config.heads}"
        f" gives it {slots * width}; {fitting} out_proj=true"
    )


def _check_match(config: RunConfig) -> None:
    _narrow(config, "match")  # the reference is narrow
    if config.match_by == "value_width" and not config.out_proj:
        raise ConfigError(
            "match_by=value_width: with out_proj=false the residual stream fixes the value width;"
            " use match_by=mlp, or out_proj=true"
        )
    if config.match_by == "value_width" and config.value_width in ("narrow", "wide"):
        raise ConfigError(
            f"value_width={config.value_width}: match_by=value_width chooses the value width;"
            " leave it at auto, or use match_by=mlp"
        )


def _relative_cost(config: RunConfig, spec: ModelSpec) -> float:
    target = COSTS[config.match](reference(spec))
    return (COSTS[config.match](spec) - target) / target


def _matched(config: RunConfig, spec: ModelSpec) -> ModelSpec:
    """`spec` with the width that brings its cost closest to its reference's; a given width is kept.

    Costs are linear in either width, so two points give the line.
    """
    given = config.model.mlp_hidden if config.match_by == "mlp" else config.value_width
    if given != "auto":
        return spec
    cost, width = COSTS[config.match], MATCHED_WIDTH[config.match_by]
    at_1, at_2 = (cost(dataclasses.replace(spec, **{width: value})) for value in (1, 2))
    value = max(1, round(1 + (cost(reference(spec)) - at_1) / (at_2 - at_1)))
    return dataclasses.replace(spec, **{width: value})


def _nearest_match(config: RunConfig, vocab: int) -> str:
    """What to type instead: the other width to match by, else the nearest number of heads."""
    others = [dataclasses.replace(config, match_by=by) for by in MATCHED_WIDTH]
    heads = [config.heads + sign * away for away in range(1, 64) for sign in (-1, 1)]
    for other in others + [dataclasses.replace(config, heads=h) for h in heads if h > 0]:
        try:
            _check_match(other)
            if abs(_relative_cost(other, _matched(other, _unmatched(other, vocab)))) <= TOLERANCE:
                return f"heads={other.heads} match_by={other.match_by}"
        except ConfigError:
            continue
    return "none; use match=none"
