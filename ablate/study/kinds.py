"""The kinds of study, and how the block `study` of a YAML is read as one of them."""

from collections.abc import Collection, Mapping
from typing import Any

from ablate.compose.sweep import Sweep
from ablate.config.read import hints, read
from ablate.config.rules import ConfigError, as_override, did_you_mean, line_on
from ablate.study.config import StudyConfig
from ablate.study.tuned import Tuned

KINDS: dict[str, type[StudyConfig]] = {kind.kind: kind for kind in (StudyConfig, Tuned)}


def read_declared(study: Any, *, is_demonstration: bool = False, given: Collection[str] = ()) -> StudyConfig:
    """Read the `study` block of a config. is_demonstration: with the keys of the study that its demo sets, as
    study.tune_at, but for those that the command line sets (given). Raises ConfigError."""
    if not isinstance(study, Mapping):
        raise ConfigError(f"study={study}: name one of configs/study")
    kind = study.get("kind")
    if not (isinstance(kind, str) and kind in KINDS):
        chosen = f"study.kind={as_override(kind)}"
        near = did_you_mean(str(kind), KINDS)
        raise ConfigError(line_on(chosen) or f"{chosen}: no such kind of study{near}")
    keys = {key: value for key, value in study.items() if key != "kind"}
    demo = study["demo"] if isinstance(study.get("demo"), Mapping) else {}
    for key in [key for key in demo if str(key).startswith("study.")]:
        if (own := key.removeprefix("study.")) not in (known := hints(KINDS[kind])):
            raise ConfigError(f"study.demo.{key}: no key of a study{did_you_mean(own, known)}")
        keys["demo"] = {other: value for other, value in keys["demo"].items() if other != key}
        if is_demonstration and key not in given:
            keys[own] = demo[key]
    example = f"study={KINDS[kind].example} --cfg job shows a whole one"
    return read(KINDS[kind], keys, "study", missing=example)


def declared(sweep: Sweep) -> StudyConfig:
    """What the study declares or, as a demonstration, what this sets in its place, unless the command line
    does. Raises ConfigError."""
    assert sweep.study is not None
    given = {word.lstrip("+").partition("=")[0] for word in sweep.typed}
    return read_declared(sweep.study, is_demonstration=sweep.is_demonstration, given=given)
