"""Hydra finds plugins only below hydra_plugins: these carry the values of `hydra.launcher`."""

from collections.abc import Sequence
from typing import Any, ClassVar

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf


class OwnLauncher(Launcher):
    """It carries the values of hydra.launcher: `asked`, once it is set up."""

    name: ClassVar[str]

    def __init__(self, **given: Any) -> None:
        self.given = given

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        given = {
            key: OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
            for key, value in self.given.items()
        }
        from ablate.compose.launchers import own  # Hydra imports every plugin, even for --help

        self.asked = own(self.name, given)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Hydra asks for it and nobody calls it: no sweeper but ours is taken, which launches nothing."""
        raise NotImplementedError("ablate.study hands the runs to ablate.launch")


class PoolLauncher(OwnLauncher):
    """Long-lived worker processes on this machine."""

    name = "pool"


class SlurmLauncher(OwnLauncher):
    """Jobs on the machines of a SLURM cluster."""

    name = "slurm"


class RayLauncher(OwnLauncher):
    """Tasks on the nodes of a Ray cluster."""

    name = "ray_cluster"
