"""What a study's YAML declares beforehand: its question, its grid, and what it will be judged by."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ablate.config.overrides import as_value
from ablate.config.rules import ConfigError, did_you_mean
from ablate.store.columns import CONFIG_COLUMNS, DERIVED_COLUMNS, MEASURED_COLUMNS, METRIC_COLUMNS

KEYS = {"kind", "question", "factors", "seeds", "where", "primary", "metric", "margin", "demo"}
TUNED_KEYS = {"tune", "develop", "extend"}
MAY_LACK = {"where": [], "demo": {}, "margin": 0.01}  # and what they are then
# Of these, all that are one number a run.
METRICS = {*METRIC_COLUMNS, *DERIVED_COLUMNS, *MEASURED_COLUMNS} - {"fusion_weights", "model", "corpus"}
KINDS = {"grid": KEYS, "tuned": KEYS | TUNED_KEYS}


@dataclass(frozen=True, kw_only=True)
class Declared:
    """One study. kind: grid or tuned. factors: override key -> levels, as an override writes them.

    where: conditions that every cell fulfils. primary: the contrasts that were decided on beforehand, each
    a mapping with `vary`, `baseline` and, for the factors that stay, `where`. metric, margin: what they are
    judged by. demo: the overrides of its demonstration. Of a tuned study alone, tune: the key of which each
    arm gets its own value; develop: the seeds that choose it; extend: octaves that the grid may grow by.
    """

    kind: str
    question: str
    factors: Mapping[str, list[str]]
    where: list[str]
    primary: list[Mapping[str, Any]]
    metric: str
    margin: float
    demo: Mapping[str, list[str]]
    tune: str
    develop: list[str]
    extend: int


def read_declared(study: Any) -> Declared:
    """The `study` block of a config. Raises ConfigError."""
    if not isinstance(study, Mapping):
        raise ConfigError(f"study={study}: name one of configs/study")
    kind = study.get("kind")
    if kind not in KINDS:
        raise ConfigError(f"study.kind={kind}: no such kind of study{did_you_mean(str(kind), KINDS)}")
    for key in study:
        if key not in KINDS[kind]:
            near = did_you_mean(f"study.{key}", [f"study.{known}" for known in KINDS[kind]])
            raise ConfigError(f"study.{key}: no such key{near}")
    study = {**MAY_LACK, **study}
    for key in sorted(KINDS[kind]):
        if key not in study:
            example = "tuned" if kind == "tuned" else "fusion"
            raise ConfigError(
                f"study.{key}: this key is missing; study={example} --cfg job shows a whole one"
            )
    given = _mapping("study.factors", study["factors"], "each key with its levels, as {heads: [1, 4]}")
    factors = {key: _levels(f"study.factors.{key}", levels) for key, levels in given.items()}
    demo = _mapping("study.demo", study["demo"], "overrides, as {train.steps: 60}; {} changes nothing")
    extend = study.get("extend", 0)
    if not isinstance(extend, int) or isinstance(extend, bool) or extend < 0:
        raise ConfigError(f"study.extend={extend}: how many octaves the grid may grow by; use 0, 1, 2, …")
    return Declared(
        kind=kind,
        question=str(study["question"]),
        factors=factors | {"seed": _levels("study.seeds", study["seeds"])},
        where=[str(condition) for condition in _list("study.where", study["where"], "heads <= 4")],
        primary=_primary(study["primary"], factors),
        metric=_metric(study["metric"]),
        margin=_margin(study["margin"]),
        demo={key: _levels(f"study.demo.{key}", value) for key, value in demo.items()},
        tune=str(study.get("tune", "")),
        develop=_levels("study.develop", study["develop"]) if kind == "tuned" else [],
        extend=extend,
    )


def _primary(entries: Any, factors: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The contrasts, each with keys that compare will find. Raises ConfigError."""
    example = "{vary: fusion, baseline: concat}"
    known = {*CONFIG_COLUMNS, *(factor.rpartition(".")[2] for factor in factors)}
    for entry in _list("study.primary", entries, example):
        if not _is_entry(entry):
            raise ConfigError(
                f"study.primary: {entry}: write an entry as {example}, if need be with where: {{KEY: VALUE}}"
            )
        if "vary" not in entry and not isinstance(entry["baseline"], Mapping):
            raise ConfigError(f"study.primary: {entry}: add vary, the key that the baseline is a value of")
        for key in _keys(entry):
            if key.rpartition(".")[2] not in known and not key.startswith("fusion."):
                near = did_you_mean(key, known)
                raise ConfigError(f"study.primary: {key}: no key that makes variants{near}")
    return list(entries)


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, Mapping)
        and "baseline" in entry
        and entry.keys() <= {"vary", "baseline", "variants", "where"}
        and isinstance(entry.get("where", {}), Mapping)
        and isinstance(entry.get("variants", []), list)
    )


def _keys(entry: Mapping[str, Any]) -> list[str]:
    """Every key that an entry of `primary` names."""
    values = [entry["baseline"], entry.get("where", {}), *entry.get("variants", [])]
    named = [key for value in values if isinstance(value, Mapping) for key in value]
    return [str(key) for key in ([entry["vary"], *named] if "vary" in entry else named)]


def _metric(metric: Any) -> str:
    if metric not in METRICS:
        raise ConfigError(f"study.metric={metric}: no column of results{did_you_mean(str(metric), METRICS)}")
    return metric


def _margin(margin: Any) -> float:
    if isinstance(margin, bool) or not isinstance(margin, int | float) or not 0 < margin < math.inf:
        raise ConfigError(
            f"study.margin={margin}: what makes no difference, in the metric's unit; use a number above 0"
        )
    return float(margin)


def _mapping(key: str, value: Any, expected: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{key}={'null' if value is None else value}: write {expected}")
    return value


def _list(key: str, value: Any, example: str) -> list[Any]:
    if not isinstance(value, list):
        raise ConfigError(
            f"{key}={'null' if value is None else value}: write a list, as [{example}]; [] for none"
        )
    return value


def _levels(key: str, levels: Any) -> list[str]:
    levels = levels if isinstance(levels, list) else [levels]
    if not levels:
        raise ConfigError(f"{key}: the sweep is empty; list values")
    return [as_value(level) for level in levels]
