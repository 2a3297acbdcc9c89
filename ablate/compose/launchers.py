"""The settings of ablate's own launchers, as `hydra.launcher` gives them: worker processes on this machine,
or jobs on the machines of a cluster, which share the directory with this one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from ablate.config.rules import Above, AtLeast, AtMost, ConfigError, ErrorText, Rule

Jobs = Annotated[int, AtLeast(1), AtMost(1000), ErrorText("a whole number from 1 to 1,000")]
Cores = Annotated[int, AtLeast(1), AtMost(4096), ErrorText("a whole number from 1 to 4,096")]
Minutes = Annotated[int, AtLeast(1), AtMost(10**6), ErrorText("whole minutes, at least 1")]
Seconds = Annotated[
    Annotated[float, Above(0)] | None, ErrorText("use a number of seconds above 0, or null for no limit")
]


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


@dataclass(frozen=True, kw_only=True)
class _Settings:
    """workers: processes (in each job of a cluster); threads: of each process."""

    workers: Number = None
    threads: Number = None


@dataclass(frozen=True, kw_only=True)
class Pool(_Settings):
    """Worker processes on this machine. timeout: the longest time of a run in seconds."""

    timeout: Seconds = None
    cores_each: ClassVar[None] = None  # its runs share the cores of this machine


@dataclass(frozen=True, kw_only=True)
class Cluster(_Settings):
    """Jobs that train runs on other machines. engine: the module in ablate.study.cluster.engines that starts
    them. cpus_per_task: the cores of each; None for a whole machine. wait: whether the command waits for the
    runs."""

    engine: ClassVar[str]
    jobs: Jobs
    cpus_per_task: Cores | None
    wait: bool


@dataclass(frozen=True, kw_only=True)
class Slurm(Cluster):
    """Jobs of one sbatch, with the names that submitit gives to its options. setup: lines of shell before the
    job; additional_parameters: other options of sbatch."""

    engine: ClassVar[str] = "slurm"
    timeout_min: Minutes
    partition: str | None
    account: str | None
    qos: str | None
    constraint: str | None
    mem_gb: Annotated[float, Above(0)] | None
    gpus_per_node: Cores | None
    setup: list[str]
    additional_parameters: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Ray(Cluster):
    """Tasks of a Ray cluster. address: HOST:PORT of its head, or auto on one of its nodes."""

    engine: ClassVar[str] = "ray_cluster"
    address: str
    gpus_per_task: Cores | None


KEY = "hydra.launcher"  # of the settings
# By the _target_ of their YAML. Hydra instantiates none of them.
OWN: dict[str, type[Pool] | type[Cluster]] = {
    f"{of.__module__}.{of.__name__}": of for of in (Pool, Slurm, Ray)
}
