"""The engines: one file each. They start helpers on other machines, ask whether they live, and end them."""

from ablate.compose.clusters import Cluster, Ray, Slurm
from ablate.launch.engines.base import Engine


def engine_of(cluster: Cluster) -> Engine:
    match cluster:
        case Slurm():
            from ablate.launch.engines.slurm import SlurmEngine

            return SlurmEngine(cluster)
        case Ray():
            from ablate.launch.engines.ray_cluster import RayEngine

            return RayEngine(cluster)
        case _:
            raise AssertionError(cluster)
