"""The engines: one file each. They start helpers on other machines, ask whether they live, and end them."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from ablate.compose.launchers import Cluster
from ablate.store.jobs import JobStatus


class Engine(ABC):
    """A way to start helpers. A helper is a process that runs a command; an array is what was started at
    once. name: of hydra/launcher=NAME, and of the engine's module here."""

    name: ClassVar[str]

    @abstractmethod
    def __init__(self, cluster: Any) -> None: ...

    @abstractmethod
    def require(self) -> None:
        """Raises ConfigError if it can't be used from here."""

    @abstractmethod
    def start(self, array: str, count: int, command: Sequence[str], directory: Path, log: str) -> str:
        """Start `count` equal helpers, which run `command` in `directory`, each with its number as the last
        word. array: a name that no other array has, by which any process can ask for it later. log: path of
        the log of a helper; {number} in it stands for its number. Returns what the engine itself calls the
        array. Raises ConfigError, in the engine's own words, if it refuses."""

    @abstractmethod
    def look(self, arrays: Sequence[str]) -> dict[str, list[JobStatus]]:
        """The helpers of each array. One that the engine no longer knows is missing. Raises ConfigError if
        the engine does not answer at the moment."""

    @abstractmethod
    def cancel(self, arrays: Sequence[str]) -> None:
        """End all helpers of these arrays, queued or running: with SIGTERM first."""


def engine_of(cluster: Cluster) -> Engine:
    """The engine of these settings."""
    return importlib.import_module(f"{__name__}.{cluster.engine}").ENGINE(cluster)
