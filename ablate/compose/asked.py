"""What a command line asks for: a single run or a sweep. No text has been opened for it, and nothing run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ablate.compose.launchers import HydraLauncher, Pool
from ablate.compose.variants import Composer
from ablate.config.schema import RunConfig


@dataclass(frozen=True)
class Single:
    """One run. config_dir: as given by -cd."""

    config: RunConfig
    config_dir: str | None


@dataclass(frozen=True)
class Sweep:
    """A grid with -m, or a study.

    arguments: the overrides, some with several values. configs: the RunConfig of each run, by its overrides.
    study: the block that declares the study, as plain values; None for a plain grid. chosen: NAME of
    study=NAME. name: as name=NAME, or in a config. is_demonstration: by size=demo. config_dir: as given
    by -cd. typed: the words of the command that say what it is.
    """

    arguments: tuple[str, ...]
    configs: Composer
    launcher: Pool | HydraLauncher
    study: Mapping[str, Any] | None
    chosen: str | None
    name: str | None
    is_demonstration: bool
    config_dir: str | None
    typed: tuple[str, ...]
