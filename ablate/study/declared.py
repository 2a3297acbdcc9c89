"""What a study's YAML declares beforehand: its question, its grid, and what it will be judged by."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ablate.config import ConfigError, did_you_mean

KEYS = {"kind", "question", "factors", "seeds", "where", "primary", "metric", "margin", "demo"}
TUNED_KEYS = {"tune", "develop", "extend"}
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
            raise ConfigError(f"study.{key}: no such key{did_you_mean(str(key), KINDS[kind])}")
    for key in sorted(KINDS[kind]):
        if key not in study:
            example = "tuned" if kind == "tuned" else "fusion"
            raise ConfigError(f"study.{key}: this key is missing; see configs/study/{example}.yaml")
    factors = {key: _levels(f"study.factors.{key}", levels) for key, levels in study["factors"].items()}
    extend = study.get("extend", 0)
    if not isinstance(extend, int) or isinstance(extend, bool) or extend < 0:
        raise ConfigError(f"study.extend={extend}: how many octaves the grid may grow by; use 0, 1, 2, …")
    return Declared(
        kind=kind,
        question=str(study["question"]),
        factors=factors | {"seed": _levels("study.seeds", study["seeds"])},
        where=[str(condition) for condition in study["where"]],
        primary=list(study["primary"]),
        metric=str(study["metric"]),
        margin=float(study["margin"]),
        demo={key: _levels(f"study.demo.{key}", value) for key, value in study["demo"].items()},
        tune=str(study.get("tune", "")),
        develop=_levels("study.develop", study["develop"]) if kind == "tuned" else [],
        extend=extend,
    )


def _levels(key: str, levels: Any) -> list[str]:
    levels = levels if isinstance(levels, list) else [levels]
    if not levels:
        raise ConfigError(f"{key}: the sweep is empty; list values")
    return [as_override(level) for level in levels]


def as_override(value: Any) -> str:
    """A value of a YAML as an override on the command line writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(as_override, value))}]"
    text = str(value)
    return text if text.replace("_", "").replace(".", "").replace("-", "").isalnum() else shlex.quote(text)
