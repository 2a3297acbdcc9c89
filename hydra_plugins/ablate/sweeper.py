"""Hydra finds plugins only below hydra_plugins: this one hands the sweep over to ablate.study."""

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
        self.config = config
        self.hydra_context = hydra_context
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        from ablate.study.loop import sweep  # Hydra imports every plugin, even for --help; torch can wait

        assert self.config is not None and self.hydra_context is not None and self.launcher is not None
        # What a config sweeps over comes first, so that the command line has the last word.
        overrides = [f"{key}={values}" for key, values in self.params.items()] + arguments
        return sweep(self.config, self.hydra_context.config_loader, self.launcher, overrides)
