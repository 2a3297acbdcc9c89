"""Hydra finds plugins only below hydra_plugins: this one has what `hydra.launcher` says of ablate's pool."""

from collections.abc import Sequence
from typing import Any

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class PoolLauncher(Launcher):
    """Long-lived worker processes on this machine.

    workers, threads: a number or `auto`; timeout: seconds a run may take, or None.
    """

    def __init__(self, workers: Any = "auto", threads: Any = "auto", timeout: Any = None) -> None:
        self.given = (workers, threads, timeout)

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        from ablate.compose.launchers import pool  # Hydra imports every plugin, even for --help

        self.pool = pool(*self.given)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Hydra asks for it and nobody calls it: no sweeper but ours is taken, which launches nothing."""
        raise NotImplementedError("ablate.study hands the runs to ablate.launch.pool")
