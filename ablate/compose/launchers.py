"""The settings of ablate's own launchers, as `hydra.launcher` gives them: worker processes on this machine,
or jobs on the machines of a cluster (ablate/clusters)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ablate.clusters import Cluster, Processes
from ablate.clusters.ray_cluster import Ray
from ablate.clusters.slurm import Slurm
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


LAUNCHERS: tuple[type[Pool] | type[Cluster], ...] = (Pool, Ray, Slurm)


def settings_at(target: str) -> type[Pool] | type[Cluster] | None:
    """The settings that a YAML names as its _target_; None if they are no launcher of ablate's. Hydra
    instantiates none of them."""
    return next((one for one in LAUNCHERS if target == f"{one.__module__}.{one.__name__}"), None)


def only_of_others(key: str, launcher: str) -> str:
    """Why a launcher has no key that only others of ablate's have; empty for other keys."""
    having = [one.name for one in LAUNCHERS if key in hints(one)]
    return f"{KEY}.{key}: no key of {launcher}; of {', '.join(having)}" if having else ""
