"""What ablate takes of Hydra's own settings, `hydra.…`: those with an effect here that run no code."""

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from hydra.types import RunMode
from omegaconf import OmegaConf

from ablate.compose.configs import loader
from ablate.compose.launchers import OWN
from ablate.config.overrides import flatten
from ablate.config.rules import ConfigError, typed

# Those with an effect, and those that Hydra sets itself; of jobs, where a launcher of Hydra's starts them.
HEEDED = re.compile(
    r"(mode|searchpath|launcher|sweeper|runtime|overrides|job\.(config_name|override_dirname))\b"
)
HEEDED_IN_JOBS = re.compile(r"job\.env_(set|copy)")
PLACES = ("run.", "sweep.", "output_subdir", "job.chdir")  # where Hydra would write


def require_heeded(hydra: Mapping[str, Any]) -> None:
    """Raises ConfigError for a setting that differs from ablate's own and has no effect. hydra: plain
    values."""
    has_jobs = (hydra["launcher"] or {}).get("_target_") not in OWN
    for key, value in flatten(hydra).items():
        if value == _usual().get(key) or HEEDED.match(key) or (has_jobs and HEEDED_IN_JOBS.match(key)):
            continue
        way_out = "--runs DIR says where results lie" if key.startswith(PLACES) else "leave it out"
        raise ConfigError(f"hydra.{key}={typed(value)}: it has no effect here; {way_out}")


@functools.cache
def _usual() -> Mapping[str, Any]:
    """The settings as ablate's own configs give them."""
    config = loader().load_configuration("config", overrides=[], run_mode=RunMode.RUN)
    plain: Any = OmegaConf.to_container(config.hydra)
    return flatten(plain)


def require_no_code(hydra: Mapping[str, Any]) -> None:
    """Raises ConfigError if Hydra would call what its settings name below a launcher. hydra: plain values."""
    launcher = {key: value for key, value in (hydra["launcher"] or {}).items() if key != "_target_"}
    called = [value for key, value in _entries(launcher) if key == "_target_"]
    if called:
        raise ConfigError(f"hydra: a config names {called[0]}, which would be run; remove it")


def _entries(node: Any) -> Iterator[tuple[Any, Any]]:
    """The keys with their values at every depth; those of a list without a key."""
    pairs = node.items() if isinstance(node, Mapping) else ((None, value) for value in node)
    for key, value in pairs:
        yield key, value
        if isinstance(value, Mapping | list):
            yield from _entries(value)
