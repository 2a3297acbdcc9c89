"""A sweep over a grid: which runs it comes to, all checked before any is launched."""

import itertools
from collections.abc import Sequence
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobStatus
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig

from ablate.compose import current, to_run_config
from ablate.config import ConfigError
from ablate.execute import prepare
from ablate.store import Store
from ablate.study.plan import grid_plan, merge_plans


def sweep(config: DictConfig, loader: ConfigLoader, launcher: Launcher, arguments: Sequence[str]) -> Any:
    """Launch every cell of the grid that `arguments`, Hydra overrides, spans.

    Nothing is launched unless every cell can be; a cell that can't begin after all (a full disk, say) is
    in Request.refused. Raises ConfigError.
    """
    parsed = OverridesParser.create(config_loader=loader).parse_overrides(list(arguments))
    overrides = {override.get_key_element(): override for override in parsed}  # the last one counts
    levels = {key: _levels(override) for key, override in overrides.items()}
    cells = [
        [f"{key}={value}" for key, value in zip(levels, values, strict=True)]
        for values in itertools.product(*levels.values())
    ]
    runs = {}
    for cell in cells:
        asked = to_run_config(loader.load_sweep_config(config, cell))
        runs.setdefault(prepare(asked).run_id, (cell, asked))  # two ways to write one run are one run
    swept = {key: levels[key] for key, override in overrides.items() if override.is_sweep_override()}
    plan = grid_plan(
        swept,
        given=[key for key in overrides if key not in swept],
        configs=[asked for _, asked in runs.values()],
        runs=list(runs),
    )
    store, request = Store(), current.get()
    with store.locked():
        store.write_study(merge_plans(store.read_study(plan["name"]), plan))
    request.study, request.run_ids = plan["name"], plan["runs"]
    returns = launcher.launch([cell for cell, _ in runs.values()], initial_job_idx=0)
    for (cell, _), done in zip(runs.values(), returns, strict=True):
        if done.status == JobStatus.FAILED:
            request.refused.append(f"{' '.join(cell)}: {done._return_value}")
    return returns


def _levels(override: Override) -> list[str]:
    """The values of one override, as they are written in an override."""
    if not override.is_sweep_override():
        return [override.get_value_element_as_str()]
    if not override.is_discrete_sweep():
        raise ConfigError(f"{override.input_line}: an interval has no values to try; list them, as 1,2,4")
    yaml_words = {"True": "true", "False": "false"}
    levels = [yaml_words.get(level, level) for level in override.sweep_string_iterator()]
    if not levels:
        raise ConfigError(f"{override.input_line}: the sweep is empty; list values, as 1,2,4")
    return levels
