"""The kinds of study, and how the block `study` of a YAML is read as one of them."""

from collections.abc import Mapping
from typing import Any

from ablate.compose.sweep import Sweep
from ablate.config.read import hints, read
from ablate.config.rules import ConfigError, did_you_mean, typed
from ablate.study.config import StudyConfig
from ablate.study.ladder import Ladder
from ablate.study.tuned import Tuned

KINDS: dict[str, type[StudyConfig]] = {kind.kind: kind for kind in (StudyConfig, Tuned, Ladder)}


def read_declared(study: Any, *, instead: Mapping[str, Any] | None = None) -> StudyConfig:
    """Read the `study` block of a config. instead: keys in place of its own. Raises ConfigError."""
    if not isinstance(study, Mapping):
        raise ConfigError(f"study={study}: name one of configs/study")
    kind = study.get("kind")
    if not (isinstance(kind, str) and kind in KINDS):
        raise ConfigError(f"study.kind={typed(kind)}: no such kind of study{did_you_mean(str(kind), KINDS)}")
    keys = {key: value for key, value in study.items() if key != "kind"}
    if of_study := _of_demo(study):
        for key in of_study:
            if (own := key.removeprefix("study.")) not in (known := hints(KINDS[kind])):
                raise ConfigError(f"study.demo.{key}: no key of a study{did_you_mean(own, known)}")
        keys["demo"] = {key: value for key, value in study["demo"].items() if key not in of_study}
    example = f"study={KINDS[kind].example} --cfg job shows a whole one"
    return read(KINDS[kind], {**keys, **(instead or {})}, "study", missing=example)


def _of_demo(study: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of the study itself that its demonstration sets, as study.rungs."""
    demo = study.get("demo")
    own = demo.items() if isinstance(demo, Mapping) else ()
    return {str(key): value for key, value in own if str(key).startswith("study.")}


def declared(sweep: Sweep) -> StudyConfig:
    """What the study declares or, as a demonstration, what this sets in its place, unless the command line
    does. Raises ConfigError."""
    assert sweep.study is not None
    given = {word.lstrip("+").partition("=")[0] for word in sweep.typed}
    of_demo = _of_demo(sweep.study) if sweep.is_demonstration else {}
    instead = {key.removeprefix("study."): of_demo[key] for key in of_demo.keys() - given}
    return read_declared(sweep.study, instead=instead)
