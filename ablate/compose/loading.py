"""Hydra's loader of configs, as ablate uses it. What may be said of Hydra itself, `hydra.…`, is a few keys by
name; all else has to be as ablate's own configs give it. Every composition is judged, its interpolations
resolved, before anything else of Hydra's sees it."""

import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.default_element import ResultDefault
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult
from hydra.plugins.launcher import Launcher
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ablate.compose.configs import configs_dir, loader
from ablate.compose.launchers import TARGET
from ablate.compose.private import ConfigLoaderImpl, ConfigRepository, FileConfigSource
from ablate.compose.refusals import LAUNCHER, REFUSALS, explain
from ablate.compose.texts import restore
from ablate.config.read import PRESETS, of_a_group, require_keys
from ablate.config.rules import ConfigError, as_override
from ablate.config.schema import RunConfig, later_keys

# What anybody may set, and what Hydra itself sets after all configs.
FREE = re.compile(
    r"hydra\.(mode|searchpath|sweeper\.params\.(?![+~]*hydra).+|(overrides|runtime)\..+|job\.\w+_\w*name)"
)
# What a config may set of a launcher of Hydra's: what runs no command and connects to no other machine.
PLAIN = {"_target_", "n_jobs", "timeout_min", "partition", "account", "qos", "constraint", "mem_gb"}
PLAIN |= {"cpus_per_task", "gpus_per_node", "gpus_per_task"}
# What Hydra would call, or resolve later on; and a line end, which begins another line of a job's script.
RUN = re.compile(r"\b_(target|args|partial|recursive|convert)_\b|\$\{|[\x00-\x1f]")
PLACES = re.compile(r"hydra\.(run\.|sweep\.|output_subdir|job\.chdir)")  # where Hydra would write
NO_EFFECT = "it has no effect here; leave it out"


class OwnConfigSource(FileConfigSource):
    """Files, as Hydra reads them, but also with the byte order mark that some editors write: behind it Hydra
    finds no `# @package`. Text stays as it is written. What can't be read is named."""

    def is_config(self, config_path: str) -> bool:
        path = Path(self.path, config_path)
        for other in (path, path.with_name(f"{path.name}.yml")):
            if other.suffix == ".yml" and other.is_file():
                raise ConfigError(f"{other}: Hydra reads files that end in .yaml; rename it")
        return super().is_config(config_path)

    def load_config(self, config_path: str) -> ConfigResult:
        path = Path(self.path, self._normalize_file_name(config_path))
        try:
            with path.open(encoding="utf-8-sig") as file:
                header = self._get_header_dict(file.read(512))
                file.seek(0)
                config = OmegaConf.load(file)
            if not isinstance(config, DictConfig):
                raise TypeError("it is a list; write KEY: VALUE")
            group, defaults = "/".join(Path(config_path).parent.parts), config.get("defaults") or ()
            where = header.get("package") or group.replace("/", ".")
            begins = any(isinstance(one, str) and one != "_self_" for one in defaults)  # with another config
            if begins and where == "_global_" and group in PRESETS:
                raise ValueError(of_a_group(group, PRESETS[group]))  # the default's keys would move, too
            restore(config, path, "" if where in ("", "_global_") else f"{where}.")
            for key, default in () if begins else later_keys(group).items():
                config.setdefault(key, default)
            return ConfigResult(self.provider, str(path), config, header)
        except (OSError, *REFUSALS) as error:
            raise ConfigError(
                f"{path}: no config can be read from it ({explain(error, [])}); mend it"
            ) from error


class Repository(ConfigRepository):
    """Hydra's repository, in which a config may add directories only (hydra.searchpath): to look into a
    package (pkg://), Hydra imports it."""

    def __init__(self, search_path: ConfigSearchPath) -> None:
        self._first, self._primary = {one.path for one in search_path.get_path()}, ""
        super().__init__(search_path)

    def load_config(self, config_path: str) -> ConfigResult | None:
        result = super().load_config(config_path)
        self._primary = self._primary or (result.path if result else config_path)
        return result

    def initialize_sources(self, config_search_path: ConfigSearchPath) -> None:
        for one in config_search_path.get_path():
            path = (one.path or "").removeprefix("file://")
            if one.path not in self._first and not Path(path).is_dir():
                file = "" if "command-line" in str(one.provider) else f"{self._primary}: "
                raise ConfigError(f"{file}hydra.searchpath: {path}: there is no such directory; correct it")
        super().initialize_sources(config_search_path)
        self.sources = [
            OwnConfigSource(source.provider, source.path) if source.scheme() == "file" else source
            for source in self.sources
        ]


class Loader(ConfigLoaderImpl):
    """Hydra's loader of configs, which refuses what must not be said of Hydra."""

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        super().__init__(config_search_path)
        self.repository = Repository(config_search_path)

    def load_configuration(self, config_name: Any, overrides: Any, *more: Any, **named: Any) -> DictConfig:
        self._foreign: list[ConfigResult] = []  # the files of this composition that are not ablate's own
        try:
            config = super().load_configuration(config_name, overrides, *more, **named)
        except KeyError as error:
            raise ConfigError(f"hydra.job.env_copy: no environment variable is called {error}") from error
        except AttributeError as error:  # Hydra counts on what it sets itself
            raise ConfigError(f"{self._file('hydra.runtime')}hydra.runtime: {NO_EFFECT}") from error
        if self._foreign or any("hydra" in word for word in overrides if not word.startswith("hydra.mode=")):
            require_keys(RunConfig, map(str, config))
            self._judge(config.hydra, overrides)
        return config

    def _load_single_config(self, default: ResultDefault, repo: Any) -> ConfigResult:
        result = super()._load_single_config(default, repo)
        if "://" not in result.path and configs_dir().resolve() not in Path(result.path).resolve().parents:
            self._foreign.append(result)
        return result

    def _judge(self, hydra: DictConfig, overrides: Sequence[str]) -> None:
        """Resolve the settings, so that what is judged is what holds. Raises ConfigError for one that must
        not be set. Those of the sweeper stay: their values are of each run, and ablate reads them itself."""
        for key in (str(key) for key in hydra if key != "sweeper" and not OmegaConf.is_missing(hydra, key)):
            try:
                if OmegaConf.is_interpolation(hydra, key):
                    hydra[key] = hydra[key]
                if OmegaConf.is_config(hydra[key]):
                    OmegaConf.resolve(hydra[key])
            except OmegaConfBaseException as error:
                raise ConfigError(f"{self._file(f'hydra.{key}')}hydra.{key}: {explain(error, [])}") from error
        given: Any = OmegaConf.to_container(hydra)
        chosen, launcher = given["runtime"]["choices"].get("hydra/launcher"), given["launcher"]
        usual = dict(_leaves(OmegaConf.to_container(_usual(str(chosen)), resolve=True), "hydra"))
        if sorted([*given["overrides"]["hydra"], *given["overrides"]["task"]]) != sorted(overrides):
            raise ConfigError(f"{self._file('hydra.overrides')}hydra.overrides: {NO_EFFECT}")
        parsed = OverridesParser.create().parse_overrides([*overrides])
        words = {key for word in parsed for key, _ in _leaves(word.value(), word.key_or_group)} - {LAUNCHER}
        target = str(launcher.get("_target_")) if isinstance(launcher, Mapping) else ""
        for key, value in _leaves(given, "hydra"):
            if usual.get(key, ...) == value or FREE.fullmatch(key):
                continue
            if why := _objection(key, value, target, is_typed=key in words):
                file = "" if {key, "/".join(key.split(".")[:2])} & words else self._file(key)
                raise ConfigError(f"{file}{key}={as_override(value)}: {why}")

    def _file(self, key: str) -> str:
        """The file that sets a key, or else the last that speaks of Hydra, to begin a message."""
        found = functools.partial(OmegaConf.select, key=key, throw_on_resolution_failure=False)
        setting = [one for one in self._foreign if found(one.config) is not None]
        naming = [one for one in self._foreign if "hydra" in one.config or "hydra" in repr(one.defaults_list)]
        return "".join(f"{one.path}: " for one in (setting or naming or self._foreign)[-1:])


def _objection(key: str, value: Any, target: str, *, is_typed: bool) -> str:
    """Why a setting must not have this value; empty if it may. target: the class of the launcher. is_typed:
    whether the key stands on the command line."""
    part, _, name = key.removeprefix("hydra.").partition(".")
    if key == "hydra.sweeper.params":
        return "write keys with values, as {heads: '1,2'}" if value else ""
    if part == "sweeper":
        return "ablate makes sweeps itself, and over keys of runs only; leave it out"
    if part == "launcher":
        is_own = target == TARGET
        installed = (f"{one.__module__}.{one.__name__}" for one in Plugins.instance().discover(Launcher))
        if not is_own and target not in installed:
            return "no such launcher is installed; choose one by hydra/launcher=NAME"
        if RUN.search(f"{name.removeprefix('_target_')}={value}") and not (is_own and is_typed):
            return "it would be run; leave it out"
        is_safe = is_own or name in PLAIN
    elif name.startswith("env_") and target != TARGET:
        is_safe = value == os.environ.get(name.removeprefix("env_set."))  # which env_copy asks for
    else:
        return "it has no effect here; --runs DIR says where results lie" if PLACES.match(key) else NO_EFFECT
    return "" if is_typed or is_safe else "it can run commands, so only the command line may set it"


@functools.cache
def _usual(launcher: str) -> DictConfig:
    """The settings as ablate's own configs give them, with this launcher if it is none of the user's."""
    own = loader()
    words = [f"hydra/launcher={launcher}"] if launcher in own.get_group_options("hydra/launcher") else []
    return own.load_configuration("config", overrides=words, run_mode=RunMode.RUN).hydra


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The values that are no mappings, or empty ones, by dotted key."""
    below = node.items() if isinstance(node, Mapping) else ()
    for key, value in below:
        yield from _leaves(value, f"{path}.{key}")
    if not below:
        yield path, node
