"""The settings of ablate's own launchers, as `hydra.launcher` gives them: worker processes on this machine,
or jobs on the machines of a cluster (ablate/clusters)."""

import functools
import importlib
import pkgutil
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ablate import clusters
from ablate.clusters import Cluster, Processes
from ablate.config.read import hints
from ablate.config.rules import Above, ErrorText

KEY = "hydra.launcher"  # of the settings
Seconds = Annotated[
    Annotated[float, Above(0)] | None, ErrorText("use a number of seconds above 0, or null for no limit")
]


@dataclass(frozen=True, kw_only=True)
class Pool(Processes):
    """Worker processes on this machine. timeout: the longest time of a run in seconds."""

    name: ClassVar[str] = "pool"
    timeout: Seconds = None


def settings_at(target: str) -> type[Pool] | type[Cluster] | None:
    """The settings that a YAML names as its _target_; None if they are no launcher of ablate's. Hydra
    instantiates none of them."""
    return Pool if target == _target(Pool) else _of_clusters().get(target)


@functools.cache
def every_launcher() -> list[type[Pool] | type[Cluster]]:
    return [Pool, *_of_clusters().values()]


def only_of_others(key: str, launcher: str) -> str:
    """Why a launcher has no key that only others of ablate's have; empty for other keys."""
    having = [one.name for one in every_launcher() if key in hints(one)]
    return f"{KEY}.{key}: no key of {launcher}; of {', '.join(having)}" if having else ""


@functools.cache
def _of_clusters() -> dict[str, type[Cluster]]:
    names = [file.name for file in pkgutil.iter_modules(clusters.__path__) if not file.name.startswith("_")]
    modules = [importlib.import_module(f"{clusters.__name__}.{name}") for name in names]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    return {_target(of): of for of in found if issubclass(of, Cluster) and of is not Cluster}


def _target(settings: type) -> str:
    return f"{settings.__module__}.{settings.__name__}"
