"""What a study's YAML declares beforehand: its question, its grid, and what it will be judged by."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ablate.config import ConfigError, did_you_mean

KEYS = {"question", "factors", "seeds", "where", "primary", "metric", "margin", "demo"}


@dataclass(frozen=True, kw_only=True)
class Declared:
    """One study. factors: override key -> levels, as an override writes them.

    where: conditions that every cell fulfils. primary: the contrasts that were decided on beforehand, each
    a mapping with `vary`, `baseline` and, for the factors that stay, `where`. metric, margin: what they are
    judged by. demo: the overrides of its demonstration.
    """

    question: str
    factors: Mapping[str, list[str]]
    where: list[str]
    primary: list[Mapping[str, Any]]
    metric: str
    margin: float
    demo: Mapping[str, list[str]]


def read_declared(study: Any) -> Declared:
    """The `study` block of a config. Raises ConfigError."""
    if not isinstance(study, Mapping):
        raise ConfigError(f"study={study}: name one of configs/study")
    for key in study:
        if key not in KEYS:
            raise ConfigError(f"study.{key}: no such key{did_you_mean(str(key), KEYS)}")
    for key in KEYS:
        if key not in study:
            raise ConfigError(f"study.{key}: this key is missing; see configs/study/fusion.yaml")
    factors = {key: _levels(f"study.factors.{key}", levels) for key, levels in study["factors"].items()}
    return Declared(
        question=str(study["question"]),
        factors=factors | {"seed": _levels("study.seeds", study["seeds"])},
        where=[str(condition) for condition in study["where"]],
        primary=list(study["primary"]),
        metric=str(study["metric"]),
        margin=float(study["margin"]),
        demo={key: _levels(f"study.demo.{key}", value) for key, value in study["demo"].items()},
    )


def _levels(key: str, levels: Any) -> list[str]:
    levels = levels if isinstance(levels, list) else [levels]
    if not levels:
        raise ConfigError(f"{key}: the sweep is empty; list values")
    return [_as_override(level) for level in levels]


def _as_override(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(_as_override, value))}]"
    text = str(value)
    return text if text.replace("_", "").replace(".", "").replace("-", "").isalnum() else shlex.quote(text)
