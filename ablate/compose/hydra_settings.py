"""What may be said of Hydra, `hydra.…`: a few keys, by name. All else has to be as ablate's own configs give
it. Every composition is judged, its interpolations resolved, before anything else of Hydra's sees it."""

import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import IConfigRepository
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.default_element import ResultDefault
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult
from hydra.plugins.launcher import Launcher
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from ablate.compose.configs import configs_dir, loader
from ablate.compose.launchers import OWN
from ablate.compose.sources import Repository
from ablate.config.read import hints
from ablate.config.rules import ConfigError, typed

BY_HYDRA = re.compile(r"(overrides|runtime)\..+|job\.(config_name|override_dirname)")  # set after all configs
FREE = re.compile(r"mode|searchpath|sweeper\.params(\..+)?")
# What a config may set of a launcher, but for what runs commands or connects to another machine.
OF_COMMANDS = ("setup", "additional_parameters", "address")
OF_LAUNCHERS = {name for settings in OWN.values() for name in hints(settings)} | {"n_jobs", "_target_"}
CALLS = re.compile(r"\b_(target|args|partial|recursive|convert)_\b")
CONTROL = re.compile(r"[\x00-\x1f]")  # a line end would begin another line of a job's script
PLACES = ("run.", "sweep.", "output_subdir", "job.chdir")  # where Hydra would write
TYPE_IT = "it can run commands, so only the command line may set it; set it there"


class Loader(ConfigLoaderImpl):
    """Hydra's loader of configs, which refuses what must not be said of Hydra."""

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        self.config_search_path = config_search_path
        self.repository = Repository(config_search_path)
        self._foreign: list[ConfigResult] = []  # the files of a composition that are not ablate's own

    def load_configuration(
        self, config_name: Any, overrides: list[str], *more: Any, **named: Any
    ) -> DictConfig:
        self._foreign = []
        try:
            config = super().load_configuration(config_name, overrides, *more, **named)
        except KeyError as error:
            raise ConfigError(f"hydra.job.env_copy: no environment variable is called {error}") from error
        if self._foreign or any("hydra" in word for word in overrides if not word.startswith("hydra.mode=")):
            self._judge(config.hydra, overrides)
        return config

    def _load_single_config(self, default: ResultDefault, repo: IConfigRepository) -> ConfigResult:
        result = super()._load_single_config(default, repo)
        if "://" not in result.path and configs_dir().resolve() not in Path(result.path).resolve().parents:
            self._foreign.append(result)
        return result

    def _judge(self, hydra: DictConfig, overrides: Sequence[str]) -> None:
        """Resolve the settings, so that what is judged is what holds. Raises ConfigError for one that must
        not be set. Those of the sweeper stay: their values are of each run, and ablate reads them itself."""
        for key in (str(key) for key in hydra if key != "sweeper" and not OmegaConf.is_missing(hydra, key)):
            if OmegaConf.is_interpolation(hydra, key):
                hydra[key] = hydra[key]
            if OmegaConf.is_config(hydra[key]):
                OmegaConf.resolve(hydra[key])
        given: Any = OmegaConf.to_container(hydra)
        usual = _usual(str(given["runtime"]["choices"].get("hydra/launcher")))
        if sorted([*given["overrides"]["hydra"], *given["overrides"]["task"]]) != sorted(overrides):
            raise ConfigError(
                f"{self._file('overrides')}hydra.overrides: it has no effect here; leave it out"
            )
        words = [override.lstrip("+").partition("=")[0].strip() for override in overrides]
        target = given["launcher"].get("_target_") if isinstance(given["launcher"], Mapping) else None
        for key, value in _leaves(given):
            is_typed = any(f"hydra.{key}.".startswith(f"{word}.") for word in words)
            is_usual = usual.get(key, ...) == value or FREE.fullmatch(key) or BY_HYDRA.fullmatch(key)
            if not is_usual and (why := _objection(key, value, target, is_typed=is_typed)):
                is_chosen = f"hydra/{key.partition('.')[0]}" in words
                file = "" if is_typed or is_chosen else self._file(key)
                raise ConfigError(f"{file}hydra.{key}={typed(value)}: {why}")

    def _file(self, key: str) -> str:
        """The file that sets a key, or else the last that speaks of Hydra, to begin a message."""
        latest, found = (
            self._foreign[::-1],
            functools.partial(OmegaConf.select, throw_on_resolution_failure=False),
        )
        setting = [one for one in latest if found(one.config, f"hydra.{key}") is not None]
        naming = [one for one in latest if "hydra" in one.config or "hydra" in repr(one.defaults_list)]
        return "".join(f"{one.path}: " for one in (setting or naming or latest)[:1])


def _objection(key: str, value: Any, target: Any, *, is_typed: bool) -> str:
    """Why a setting must not have this value; empty if it may. target: the class of the launcher. is_typed:
    whether the key stands on the command line."""
    part, _, name = key.partition(".")
    if part == "sweeper":
        return "a sweep is checked whole before it begins, which ablate does itself; leave it out"
    if part == "launcher":
        installed = {
            f"{found.__module__}.{found.__name__}" for found in Plugins.instance().discover(Launcher)
        }
        if target not in OWN and target not in installed:
            return "no such launcher is installed; choose one by hydra/launcher=NAME"
        text = f"{name.removeprefix('_target_')}={value}"
        if CALLS.search(text) or (target not in OWN and "${" in text):
            return "it would be run; leave it out"
        first = name.partition(".")[0]
        is_safe = first not in OF_COMMANDS and (target in OWN or first in OF_LAUNCHERS)
        return "" if is_typed or (is_safe and not CONTROL.search(text)) else TYPE_IT
    if key.startswith("job.env_") and target not in OWN:
        is_copy = value == os.environ.get(key.removeprefix("job.env_set."))
        return "" if is_typed or is_copy else TYPE_IT
    way_out = "--runs DIR says where results lie" if key.startswith(PLACES) else "leave it out"
    return f"it has no effect here; {way_out}"


@functools.cache
def _usual(launcher: str) -> Mapping[str, Any]:
    """The settings as ablate's own configs give them, with this launcher if it is none of the user's."""
    own = loader()
    words = [f"hydra/launcher={launcher}"] if launcher in own.get_group_options("hydra/launcher") else []
    config = own.load_configuration("config", overrides=words, run_mode=RunMode.RUN)
    return dict(_leaves(OmegaConf.to_container(config.hydra, resolve=True)))


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The values that are no mappings, or empty ones, by dotted key."""
    if not isinstance(node, Mapping) or not node:
        yield path, node
        return
    for key, value in node.items():
        yield from _leaves(value, f"{path}.{key}" if path else str(key))
