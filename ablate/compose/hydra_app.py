"""From the arguments of `ablate run` to a Single or a Sweep, by way of Hydra, which only this package uses.

All of Hydra's command line works (overrides, groups, -m, --cfg, --info, -cn, -cd, launchers), but Hydra runs
nothing: it composes configs, which are returned.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import version
from hydra._internal.callbacks import Callbacks
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf

from ablate.compose.arguments import check_overrides, chooses_a_study, parse, sets_the_mode
from ablate.compose.asked import Single, Sweep
from ablate.compose.clusters import CLUSTERS, Cluster
from ablate.compose.configs import configs_dir
from ablate.compose.launchers import HydraLauncher
from ablate.compose.messages import explained
from ablate.compose.variants import Composer, is_demonstration, to_run_config
from ablate.config.read import require_keys
from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig

SWEEPER = "hydra_plugins.ablate.sweeper.GridSweeper"
OWN = "own"  # the scheme of hydra_plugins.ablate.config_source


def compose(args: Sequence[str]) -> Single | Sweep | None:
    """What these arguments of `ablate run` ask for; None if they only show something, as --cfg does.

    Raises ConfigError.
    """
    parsed = parse(args)
    overrides = check_overrides(parsed)
    with explained(overrides), _hydra(parsed) as hydra:
        if parsed.cfg or parsed.info or parsed.hydra_help:
            return _show(hydra, parsed)
        return _asked(hydra, parsed)


@contextlib.contextmanager
def _hydra(parsed: argparse.Namespace) -> Iterator[Hydra]:
    """Hydra, set up as `hydra.main` does it. See: hydra/_internal/utils.py, _run_hydra."""
    version.setbase("1.3")
    path = configs_dir() if parsed.config_path is None else Path(parsed.config_path).absolute()
    search_path = create_config_search_path(f"{OWN}://{path}")
    if parsed.config_dir is not None:
        own = os.path.abspath(parsed.config_dir)
        if not os.path.isdir(own):
            raise ConfigError(f"-cd {parsed.config_dir}: there is no such directory; correct it")
        search_path.prepend("command-line", f"{OWN}://{own}", SearchPathQuery(provider="schema"))
    try:
        yield Hydra.create_main_hydra2("ablate", search_path)
    finally:
        GlobalHydra.instance().clear()


def _show(hydra: Hydra, parsed: argparse.Namespace) -> None:
    name, overrides = parsed.config_name or "config", _overrides(parsed)
    if parsed.hydra_help:
        argv, sys.argv = sys.argv, ["ablate run"]  # Hydra takes the name of the program from there
        try:
            hydra.hydra_help(name, get_args_parser(), parsed)
        finally:
            sys.argv = argv
    elif parsed.cfg:
        hydra.show_cfg(name, overrides, parsed.cfg, parsed.package, parsed.resolve)
    else:
        hydra.show_info(parsed.info, name, overrides)


def _asked(hydra: Hydra, parsed: argparse.Namespace) -> Single | Sweep:
    sweeps = parsed.multirun or chooses_a_study(parsed.overrides)
    mode = RunMode.MULTIRUN if sweeps or sets_the_mode(parsed.overrides) else RunMode.RUN
    config = _composed(hydra, parsed, mode)
    wanted = RunMode.MULTIRUN if sweeps else config.hydra.mode or RunMode.RUN
    if wanted != mode:  # set by a user's config or by hydra.mode=
        config = _composed(hydra, parsed, wanted)
    if wanted == RunMode.MULTIRUN:
        return _sweep(hydra, config, parsed)
    if is_demonstration(config):
        raise ConfigError("size=demo: only a study has a demonstration; add one, as study=fusion")
    if (launcher := config.hydra.runtime.choices.get("hydra/launcher")) in CLUSTERS:
        raise ConfigError(f"hydra/launcher={launcher}: a single run is trained here; add -m, or leave it out")
    return Single(to_run_config(config), parsed.config_dir)


def _composed(hydra: Hydra, parsed: argparse.Namespace, mode: RunMode) -> DictConfig:
    """The composed config. Raises ConfigError if it has callbacks or lacks a key of a run."""
    config = hydra.compose_config(
        parsed.config_name or "config", _overrides(parsed), run_mode=mode, with_log_configuration=True
    )
    if OmegaConf.select(config, "hydra.callbacks"):
        raise ConfigError(
            "hydra.callbacks: they run code that a config names, and ablate takes none; remove them"
        )
    require_keys(RunConfig, (str(key) for key in config))
    return config


def _overrides(parsed: argparse.Namespace) -> list[str]:
    """The overrides for Hydra. A study runs as a sweep even if its file does not say so, and study.KEY may
    set keys that its file leaves out."""
    if not chooses_a_study(parsed.overrides):
        return parsed.overrides
    overrides = ["++" + o if o.startswith("study.") else o for o in parsed.overrides]
    return ["hydra.mode=MULTIRUN", *overrides]


def _sweep(hydra: Hydra, config: DictConfig, parsed: argparse.Namespace) -> Sweep:
    """The Sweep, by way of ablate's sweeper, which knows what is swept over and holds the launcher."""
    sweeper = config.hydra.sweeper
    if sweeper.get("_target_") != SWEEPER:
        chosen = config.hydra.runtime.choices.get("hydra/sweeper")
        raise ConfigError(
            f"hydra/sweeper={chosen}: a sweep is checked whole before it begins, which ablate's own sweeper"
            " does; leave hydra/sweeper out"
        )
    if not isinstance(sweeper.get("params"), Mapping | None):
        raise ConfigError(
            f"hydra.sweeper.params={sweeper.params}: write keys with values, as {{heads: '1,2'}}"
        )
    context = HydraContext(hydra.config_loader, Callbacks())
    plugin: Any = Plugins.instance().instantiate_sweeper(
        hydra_context=context, task_function=to_run_config, config=config
    )
    swept = OmegaConf.to_container(config.hydra.overrides.task, resolve=False)
    assert isinstance(swept, list)
    arguments = tuple(plugin.sweep(swept))
    study: Any = config.get("study")
    study = OmegaConf.to_container(study) if OmegaConf.is_config(study) else study
    chosen = config.hydra.runtime.choices.get("study")
    if chosen and not (isinstance(study, Mapping) and "kind" in study):
        raise ConfigError(
            f"study={chosen}: its file declares no study; write '# @package _global_' as its first line, and"
            " a block study: with a kind"
        )
    launcher = getattr(plugin.launcher, "asked", None) or HydraLauncher(plugin.launcher, config, context)
    if isinstance(launcher, Cluster) and config.corpus.path == "-":
        raise ConfigError(
            "corpus.path=-: other machines can't read it; write the text to a file, and give corpus.path=FILE"
        )
    return Sweep(
        arguments=arguments,
        configs=Composer(config, hydra.config_loader, parsed.overrides),
        launcher=launcher,
        study=study or None,
        chosen=chosen,
        name=config.name,
        is_demonstration=is_demonstration(config),
        config_dir=parsed.config_dir,
        typed=(*_typed(parsed), *parsed.overrides),
    )


def _typed(parsed: argparse.Namespace) -> list[str]:
    """The options that precede the overrides, as one would type them again."""
    values = {"-cd": parsed.config_dir, "-cp": parsed.config_path, "-cn": parsed.config_name}
    given = [word for option, value in values.items() if value is not None for word in (option, value)]
    return [*given, *(["-m"] if parsed.multirun else [])]
