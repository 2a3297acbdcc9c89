"""The kinds of study, and how the block `study` of a YAML is read as one of them."""

from collections.abc import Mapping
from typing import Any

from ablate.config.read import read
from ablate.config.rules import ConfigError, as_override, did_you_mean, line_on
from ablate.study.config import StudyConfig
from ablate.study.tuned import Tuned

KINDS: dict[str, type[StudyConfig]] = {kind.kind: kind for kind in (StudyConfig, Tuned)}


def read_declared(study: Any) -> StudyConfig:
    """Read the `study` block of a config. Raises ConfigError."""
    if not isinstance(study, Mapping):
        raise ConfigError(f"study={study}: name one of configs/study")
    kind = study.get("kind")
    if not (isinstance(kind, str) and kind in KINDS):
        chosen = f"study.kind={as_override(kind)}"
        near = did_you_mean(str(kind), KINDS)
        raise ConfigError(line_on(chosen) or f"{chosen}: no such kind of study{near}")
    keys = {key: value for key, value in study.items() if key != "kind"}
    example = f"study={KINDS[kind].example} --cfg job shows a whole one"
    return read(KINDS[kind], keys, "study", missing=example)
