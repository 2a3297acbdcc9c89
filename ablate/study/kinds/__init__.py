"""The kinds of study. To add one, write a file with its declaration and its design, and list it in KINDS."""

from collections.abc import Mapping
from typing import Any

from ablate.config.read import read
from ablate.config.rules import ConfigError, did_you_mean, typed
from ablate.study.declared import Declared
from ablate.study.kinds.grid import Grid
from ablate.study.kinds.tuned import Tuned

KINDS: dict[str, type[Declared]] = {kind.kind: kind for kind in (Grid, Tuned)}


def read_declared(study: Any) -> Declared:
    """Read the `study` block of a config. Raises ConfigError."""
    if not isinstance(study, Mapping):
        raise ConfigError(f"study={study}: name one of configs/study")
    kind = study.get("kind")
    if not (isinstance(kind, str) and kind in KINDS):
        raise ConfigError(f"study.kind={typed(kind)}: no such kind of study{did_you_mean(str(kind), KINDS)}")
    keys = {key: value for key, value in study.items() if key != "kind"}
    example = f"study={KINDS[kind].example} --cfg job shows a whole one"
    return read(KINDS[kind], keys, "study", missing=example)
