"""What a command line asks for: a single run or a sweep. No corpus has been opened yet, and nothing run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ablate.compose.clusters import Cluster
from ablate.compose.launchers import HydraLauncher, Pool
from ablate.compose.variants import Composer
from ablate.config.schema import RunConfig


@dataclass(frozen=True)
class Single:
    """One run. config_dir: the value of -cd."""

    config: RunConfig
    config_dir: str | None


@dataclass(frozen=True)
class Sweep:
    """A grid (-m) or a study.

    arguments: the overrides, some with several values. configs: maps the overrides of a run to its RunConfig.
    study: the block that declares the study, as plain values; None for a plain grid. chosen: NAME of
    study=NAME. name: the value of `name`, from the command or a config. is_demonstration: size=demo was
    given. config_dir: the value of -cd. claim: the digest of the ledger's entry that it tests. command: what
    one would type to repeat it, if it is not `ablate run`. typed: the arguments, as one would type them to
    repeat the command.
    """

    arguments: tuple[str, ...]
    configs: Composer
    launcher: Pool | Cluster | HydraLauncher
    study: Mapping[str, Any] | None
    chosen: str | None
    name: str | None
    is_demonstration: bool
    config_dir: str | None
    typed: tuple[str, ...]
    claim: str = ""
    command: str = ""
