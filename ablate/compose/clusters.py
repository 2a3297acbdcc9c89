"""What `hydra.launcher` asks of a cluster, whose machines share the directory with this one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from ablate.config.rules import Above, AtLeast, AtMost, Meaning

Jobs = Annotated[int, AtLeast(1), AtMost(1000), Meaning("a whole number from 1 to 1,000")]
Cores = Annotated[int, AtLeast(1), AtMost(4096), Meaning("a whole number from 1 to 4,096")]
Auto = Annotated[int, AtLeast(1), AtMost(1024)] | Literal["auto"]
Minutes = Annotated[int, AtLeast(1), AtMost(10**6), Meaning("whole minutes, at least 1")]


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Jobs that train runs on other machines. cpus_per_task: the cores of each; None for a whole machine.
    workers: processes in each job; threads: of each of them. wait: whether the command waits for the runs."""

    jobs: Jobs
    cpus_per_task: Cores | None
    workers: Auto
    threads: Auto
    wait: bool
    name: ClassVar[str]

    @property
    def asked_threads(self) -> int | None:
        return None if self.threads == "auto" else self.threads


@dataclass(frozen=True, kw_only=True)
class Slurm(Cluster):
    """Jobs of one sbatch, with the names that submitit gives to its options. setup: lines of shell before the
    job; additional_parameters: other options of sbatch."""

    timeout_min: Minutes
    partition: str | None
    account: str | None
    qos: str | None
    constraint: str | None
    mem_gb: Annotated[float, Above(0)] | None
    gpus_per_node: Cores | None
    setup: list[str]
    additional_parameters: Mapping[str, Any]
    name = "slurm"


@dataclass(frozen=True, kw_only=True)
class Ray(Cluster):
    """Tasks of a Ray cluster. address: HOST:PORT of its head, or auto on one of its nodes."""

    address: str
    gpus_per_task: Cores | None
    name = "ray_cluster"


CLUSTERS: dict[str, type[Cluster]] = {of.name: of for of in (Slurm, Ray)}
