"""From a config to the sizes of a model, matched to the cost of a reference if requested."""

import dataclasses
from typing import Any

from ablate.config.identity import identity_keys
from ablate.config.rules import ConfigError
from ablate.config.schema import STANDARD_FUSION, STANDARD_SCORES, PartConfig, RunConfig
from ablate.model import fusion, scores
from ablate.model.costs import COSTS
from ablate.model.sizing import SHARED, narrow, sizes
from ablate.model.spec import ModelSpec

TOLERANCE = 0.01  # allowed relative difference between the cost of a matched model and its reference
MATCHED_BY = ("mlp", "value_width")


def resolve_spec(config: RunConfig, vocab: int) -> ModelSpec:
    """The sizes that `config` asks for, with a vocabulary of `vocab` tokens.

    Sizes given as numbers are kept and checked, so resolving twice changes nothing. Raises ConfigError for
    what can't be built: widths that do not divide, a fused width that does not fit the residual stream, costs
    that can't be matched.
    """
    spec = sizes(config, vocab)
    if config.match == "none":
        return spec
    _check_match(config)
    matched = _matched(config, spec)
    error = _relative_cost(config, matched)
    if abs(error) <= TOLERANCE:
        return matched
    mlp = f"mlp_hidden={matched.mlp_hidden}"
    at = mlp if config.match_by == "mlp" else f"value_width={matched.chosen.value_width}"
    raise ConfigError(
        f"match={config.match}: the closest that match_by={config.match_by} comes to the cost of"
        f" {STANDARD_FUSION} with out_proj is {error:+.1%}, at {at}, and"
        f" {TOLERANCE:.0%} is allowed; nearest that can be matched: {_nearest_match(config, vocab)}"
    )


def resolved(config: RunConfig, spec: ModelSpec) -> RunConfig:
    """`config` in canonical form: `auto` and `match` replaced by the resulting numbers, as many key heads as
    heads written as auto, and options introduced later left out at the value that stands for before."""
    model = dataclasses.replace(config.model, mlp_hidden=spec.mlp_hidden)
    match_by = config.match_by if config.match != "none" else "mlp"  # without a match it has no effect
    attention = spec.chosen
    as_heads: Any = {key: "auto" for key in SHARED if getattr(config, key) == config.heads}
    return dataclasses.replace(
        config,
        **as_heads,
        model=model,
        value_width=attention.value_width,
        key_width=attention.key_width or "auto",  # 0 where there are no keys
        scores=_deciding(config.scores, scores),
        fusion=_deciding(config.fusion, fusion),
        match_by=match_by,
    )


def match_error(config: RunConfig, spec: ModelSpec) -> float | None:
    """The relative difference in cost between `spec` and its reference; None if nothing is matched."""
    return None if config.match == "none" else _relative_cost(config, spec)


def reference(spec: ModelSpec) -> ModelSpec:
    """The standard model that costs are matched to: softmax, concat, narrow heads that share nothing, with
    out_proj and an MLP of width 4d."""
    heads = spec.chosen.heads
    standard = spec.with_chosen(
        scores=PartConfig(name=STANDARD_SCORES, options={}),
        fusion=PartConfig(name=STANDARD_FUSION, options={"normalize": "none"}),
        query_heads=heads,
        key_heads=heads,
        value_heads=heads,
        key_width=spec.d_model // heads,
        value_width=spec.d_model // heads,
        tie_qk=False,
        value_proj=True,
        out_proj=True,
        out_rank=None,
    )
    return dataclasses.replace(standard, mlp_hidden=4 * spec.d_model)


def _deciding(part: PartConfig, kind: Any) -> PartConfig:
    """The part with only the options that belong to the identity. kind: the package of the part."""
    _, options = kind.method_of(part)
    return PartConfig(name=part.name, options=identity_keys(options))


def _check_match(config: RunConfig) -> None:
    narrow(config, "match")  # the reference is narrow
    if config.match_by == "mlp":
        return
    if not (config.out_proj and config.value_proj):
        key = "value_proj" if config.out_proj else "out_proj"
        stream = "input" if config.out_proj else "residual stream"
        raise ConfigError(
            f"match_by=value_width: with {key}=false the {stream} fixes the value width; use match_by=mlp, or"
            f" {key}=true"
        )
    if config.value_width in ("narrow", "wide"):
        raise ConfigError(
            f"value_width={config.value_width}: match_by=value_width chooses the value width;"
            " leave it at auto, or use match_by=mlp"
        )


def _relative_cost(config: RunConfig, spec: ModelSpec) -> float:
    target = COSTS[config.match](reference(spec))
    return (COSTS[config.match](spec) - target) / target


def _matched(config: RunConfig, spec: ModelSpec) -> ModelSpec:
    """`spec` with the width that brings its cost closest to the reference's; a width given as a number stays.

    The cost is linear in either width, so two points determine it.
    """
    given = config.model.mlp_hidden if config.match_by == "mlp" else config.value_width
    if given != "auto":
        return spec
    cost = COSTS[config.match]
    at_1, at_2 = (cost(_with_width(spec, config.match_by, value)) for value in (1, 2))
    value = max(1, round(1 + (cost(reference(spec)) - at_1) / (at_2 - at_1)))
    return _with_width(spec, config.match_by, value)


def _with_width(spec: ModelSpec, match_by: str, width: int) -> ModelSpec:
    if match_by == "mlp":
        return dataclasses.replace(spec, mlp_hidden=width)
    return spec.with_chosen(value_width=width)


def _nearest_match(config: RunConfig, vocab: int) -> str:
    """Advice on what can be matched: the other width to match by, else the nearest number of heads."""
    others = [dataclasses.replace(config, match_by=by) for by in MATCHED_BY]
    heads = [config.heads + sign * away for away in range(1, 64) for sign in (-1, 1)]
    for other in others + [dataclasses.replace(config, heads=h) for h in heads if h > 0]:
        try:
            _check_match(other)
            if abs(_relative_cost(other, _matched(other, sizes(other, vocab)))) <= TOLERANCE:
                return f"heads={other.heads} match_by={other.match_by}"
        except ConfigError:
            continue
    return "none; use match=none"
