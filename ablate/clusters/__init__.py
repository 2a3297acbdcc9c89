"""Clusters, one file each: the settings as `hydra.launcher` gives them, and how helpers are started there.
They import only what is in config/, and load no torch."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar

from ablate.config.rules import AtLeast, AtMost, ConfigError, ErrorText, Rule

Jobs = Annotated[int, AtLeast(1), AtMost(1000), ErrorText("a whole number from 1 to 1,000")]
Cores = Annotated[int, AtLeast(1), AtMost(4096), ErrorText("a whole number from 1 to 4,096")]


class OrAuto(Rule):
    """auto, which leaves the choice to ablate, is None."""

    def read(self, value: Any, path: str) -> Any:
        if value is None:
            raise ConfigError(f"{path}=null: auto is the word")
        return None if value == "auto" else value


Number = Annotated[
    Annotated[int, AtLeast(1), AtMost(1024)] | None,
    OrAuto(),
    ErrorText("use auto or a whole number from 1 to 1024"),
]


class State(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True)
class JobStatus:
    """The status of one helper. number: its place in the array, from 0. node: the machine that it runs or ran
    on; empty if unknown. reason: why it waits, or how it ended, in the cluster's own words; empty if it has
    none."""

    number: int
    state: State
    node: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Processes:
    """workers: processes (in each job of a cluster); threads: of each process; members: how many runs
    of equal shapes are trained as one, at most; None for as many as fit a GPU, and one elsewhere."""

    workers: Number = None
    threads: Number = None
    members: Number = None
    remote: ClassVar[bool] = False  # whether they are on other machines
    cores_each: ClassVar[int | None] = None  # of a run that has its own; None where they share a machine's


@dataclass(frozen=True, kw_only=True)
class Cluster(Processes, ABC):
    """Jobs that train runs on other machines, which share the directory with this one. A job is a helper: a
    process that runs a command; an array is what was started at once. name: of hydra/launcher=NAME, and of
    the file here. cpus_per_task: the cores of each; None for a whole machine. wait: whether the command waits
    for the runs."""

    name: ClassVar[str]
    remote: ClassVar[bool] = True
    jobs: Jobs
    cpus_per_task: Cores | None
    wait: bool

    @abstractmethod
    def require(self) -> None:
        """Raises ConfigError if it can't be used from here."""

    @abstractmethod
    def start(self, array: str, count: int, command: Sequence[str], directory: Path, log: str) -> str:
        """Start `count` equal helpers, which run `command` in `directory`, each with its number as the last
        word. array: a name that no other array has, by which any process can ask for it later. log: path of
        the log of a helper; {number} in it stands for its number. Returns what the cluster itself calls the
        array. Raises ConfigError, in the cluster's own words, if it refuses."""

    @abstractmethod
    def look(self, arrays: Sequence[str]) -> dict[str, list[JobStatus]]:
        """The helpers of each array. One that the cluster no longer knows is missing. Raises ConfigError if
        it does not answer at the moment."""

    @abstractmethod
    def cancel(self, arrays: Sequence[str]) -> None:
        """End all helpers of these arrays, queued or running: with SIGTERM first."""
