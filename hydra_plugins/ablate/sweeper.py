"""Hydra finds plugins only below hydra_plugins: this one says what is swept over. ablate.study sweeps."""

from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class GridSweeper(Sweeper):
    """Every combination of the given values, refused as a whole if one of them can't be run."""

    def __init__(self, params: dict[str, Any] | None = None) -> None:
        self.params = params or {}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> list[str]:
        """What a config sweeps over comes first, so that the command line has the last word."""
        return [f"{key}={values}" for key, values in self.params.items()] + arguments
