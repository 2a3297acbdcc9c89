"""From the command line to validated RunConfigs: the one place that knows Hydra's composing.

Hydra's own command line stays whole (overrides, groups, -m, --cfg, --info, -cn, -cd, launchers). A
single run is composed by Hydra and handed back; a sweep goes through our sweeper
(hydra_plugins/ablate), which calls `ablate.study.loop.sweep`, and through whichever launcher.
"""

import argparse
import contextlib
import functools
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from ablate.config import ConfigError, RunConfig, did_you_mean, read_run, require_keys

Job = Callable[[RunConfig], Any]
NOT_OF_A_RUN = ("hydra", "study", "size")


@dataclass
class Request:
    """One command line: what each of its runs is given to, and what became of it."""

    job: Job
    dry_run: bool = False
    config_dir: str | None = None  # as given by -cd
    study: str | None = None
    run_ids: list[str] = field(default_factory=list)
    finished_before: int = 0
    left_out: list[str] = field(default_factory=list)  # why a study left cells out
    refused: list[str] = field(default_factory=list)  # a line for each run that could not begin
    estimate: Any = None  # of a dry run: ablate.study.estimate.Estimate
    # What a launcher of ours need not compose or choose again.
    composed: dict[tuple[str, ...], RunConfig] = field(default_factory=dict)
    threads: int | None = None


current: ContextVar[Request] = ContextVar("current")


def configs_dir() -> Path:
    """configs/ inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parent
    return package / "configs" if (package / "configs").is_dir() else package.parent / "configs"


def compose(args: list[str], request: Request) -> RunConfig | None:
    """Run Hydra on `args`: the config of a single run, still to be run; or None.

    A sweep has been run, by request.job, when this returns. The job is called once for each run, possibly
    in another process, so it is a module-level function. Raises ConfigError.
    """
    parsed = _parse(args)
    request.config_dir = parsed.config_dir
    sweeping = parsed.multirun or any(o.startswith(("hydra.mode=", "study=")) for o in parsed.overrides)
    overrides = _check_overrides(parsed.overrides, sweeping)
    if shown := [o.input_line for o in overrides if o.is_sweep_override() and (parsed.cfg or parsed.info)]:
        raise ConfigError(
            f"{shown[0]}: {' '.join(_mode(parsed))} shows the config of one run; give one value"
        )
    token = current.set(request)
    composed: list[DictConfig] = []

    def task(config: DictConfig) -> Any:
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            return request.job(to_run_config(config))
        composed.append(config)  # checked below: Hydra would print its own line about an error
        return None

    try:
        with _hydra_command_line(_for_hydra(args, parsed)), _checking_config():
            hydra.main(version_base="1.3", config_path=str(configs_dir()), config_name="config")(task)()
        if composed and is_demonstration(composed[0]):
            raise ConfigError("size=demo: only a study has a demonstration; add one, as study=fusion")
        return to_run_config(composed[0]) if composed else None
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        raise ConfigError(_explain(error, overrides)) from error
    finally:
        current.reset(token)


def _for_hydra(args: Sequence[str], parsed: argparse.Namespace) -> list[str]:
    """A study is a sweep, whether or not its file says so, and may be given keys that its file leaves out."""
    options = [argument for argument in args if argument not in parsed.overrides]
    if not _chooses_a_study(parsed.overrides):
        return [*parsed.overrides, *options]
    overrides = ["++" + o if o.startswith("study.") else o for o in parsed.overrides]
    # Told by the key, Hydra takes a sweep's levels for a mistake wherever it finds another one.
    return (
        ["hydra.mode=MULTIRUN", *overrides, *options]
        if _mode(parsed)
        else [*overrides, *options, "--multirun"]
    )


def _chooses_a_study(overrides: Sequence[str]) -> bool:
    chosen = [override for override in overrides if override.startswith("study=")]
    return (
        bool(chosen)
        and chosen[-1] != "study=null"
        and not any(o.startswith("hydra.mode=") for o in overrides)
    )


def is_demonstration(config: DictConfig) -> bool:
    """What `size` asks for. Raises ConfigError."""
    if config.size not in ("full", "demo"):
        raise ConfigError(
            f"size={config.size}: not a choice{did_you_mean(str(config.size), ('full', 'demo'))}"
        )
    return config.size == "demo"


def to_run_config(config: DictConfig) -> RunConfig:
    """Where DictConfig ends. Raises ConfigError."""
    return read_run(_ours(config))


def _ours(config: DictConfig) -> dict[str, Any]:
    """The keys of a run, as plain values."""
    ours = OmegaConf.masked_copy(config, [str(key) for key in config if key not in NOT_OF_A_RUN])
    plain = OmegaConf.to_container(ours, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


class Cells:
    """The RunConfigs of a sweep. Hydra, which needs some 50 ms for each, composes once for each choice of
    groups; plain values are then set as Hydra would set them."""

    def __init__(self, config: DictConfig, loader: ConfigLoader) -> None:
        self._config = config
        self._loader = loader
        self._parser = OverridesParser.create(config_loader=loader)
        self._composed: dict[tuple[str, ...], dict[str, Any]] = {}
        self._parsed: dict[str, Override] = {}
        self._values: dict[str, bool] = {}

    def __call__(self, overrides: Sequence[str]) -> RunConfig:
        """overrides: all of one run, as KEY=VALUE. Raises ConfigError, or Hydra's errors."""
        parsed = [self._parse(override) for override in overrides if not _is_of_the_study(override)]
        groups = tuple(override.input_line or "" for override in parsed if not self._is_value(override))
        if groups not in self._composed:
            self._composed[groups] = _ours(self._loader.load_sweep_config(self._config, list(groups)))
        values = self._composed[groups]
        try:
            for override in parsed:
                if self._is_value(override):
                    values = _with(values, override.key_or_group.split("."), override.value())
        except LookupError:
            return to_run_config(self._loader.load_sweep_config(self._config, list(overrides)))
        return read_run(values)

    def explain(self, error: Exception, overrides: Sequence[str]) -> str:
        """Why Hydra could not compose a cell, in one line."""
        return _explain(error, [self._parse(override) for override in overrides])

    def _parse(self, override: str) -> Override:
        if override not in self._parsed:
            self._parsed[override] = self._parser.parse_override(override)
        return self._parsed[override]

    def _is_value(self, override: Override) -> bool:
        """Whether it sets one key, rather than choose from a group."""
        key = override.key_or_group
        if key not in self._values:
            in_hydra = key.startswith("hydra") or "/" in key or override.type != OverrideType.CHANGE
            self._values[key] = not in_hydra and not self._loader.get_group_options(key)
        return self._values[key]


def _is_of_the_study(override: str) -> bool:
    """Whether it says nothing of a run. The choice of a study may: its YAML is free to set keys of runs."""
    return override.startswith(("size=", "study.", "++study."))


def _with(values: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    """`values` with a plain value in the place of another. LookupError: all else is Hydra's to do."""
    first, *rest = path
    before = values[first]
    if isinstance(before, dict) != bool(rest) or isinstance(value, dict) or "${" in str(value):
        raise LookupError(first)
    return values | {first: _with(before, rest, value) if rest else value}


def complete(incomplete: str) -> list[str]:
    """The overrides that could go on from here, for the shell."""
    from hydra._internal.core_plugins.bash_completion import BashCompletion

    return BashCompletion(_loader())._query("config", incomplete)


def _loader() -> ConfigLoader:
    """Of ablate's own configs, beside whatever Hydra is at."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.utils import create_automatic_config_search_path
    from hydra.core.plugins import Plugins

    Plugins.instance()
    return ConfigLoaderImpl(create_automatic_config_search_path(None, None, str(configs_dir())))


@contextlib.contextmanager
def _hydra_command_line(args: list[str]) -> Iterator[None]:
    """Hydra reads sys.argv, and raises rather than exits if told so."""
    argv, full_error = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv, os.environ["HYDRA_FULL_ERROR"] = ["ablate run", *args], "1"
    try:
        yield
    finally:
        sys.argv = argv
        if full_error is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = full_error


@contextlib.contextmanager
def _checking_config() -> Iterator[None]:
    """Look at a composed config before Hydra acts on it: before it makes the directories that the config
    asks for, and before it imports and runs what hydra.callbacks names."""
    from hydra._internal.callbacks import Callbacks

    original = Callbacks.__init__

    def check(self: Callbacks, config: DictConfig | None = None) -> None:
        if config is not None:
            if OmegaConf.select(config, "hydra.callbacks"):
                raise ConfigError(
                    "hydra.callbacks: they run code that a config names, and ablate takes none; remove them"
                )
            require_keys(RunConfig, (str(key) for key in config))
        original(self, config)

    Callbacks.__init__ = check
    try:
        yield
    finally:
        Callbacks.__init__ = original


# --- what is refused before Hydra sees it ---------------------------------------------------------


def _parse(args: list[str]) -> argparse.Namespace:
    from hydra._internal.utils import get_args_parser

    parser = get_args_parser()

    def refuse(message: str) -> None:
        raise ConfigError(f"{message}; see ablate run --help, or ablate run --hydra-help")

    parser.error = refuse  # pyright: ignore[reportAttributeAccessIssue]
    parsed = parser.parse_intermixed_args(args)  # `run fusion=sum -m heads=1,2` as well
    if parsed.experimental_rerun is not None:
        raise ConfigError("--experimental-rerun: it runs code from a file; use the overrides of that run")
    if parsed.shell_completion:
        raise ConfigError("--shell-completion: ablate has its own; see ablate --install-completion")
    if len(modes := _mode(parsed)) > 1:
        raise ConfigError(f"{' '.join(modes)}: use one of them")
    if parsed.resolve and not parsed.cfg:
        raise ConfigError("--resolve: it goes with --cfg, as in --cfg job --resolve")
    return parsed


def _mode(parsed: argparse.Namespace) -> list[str]:
    """What Hydra is told to do, of which it takes one."""
    return [f"--{mode}" for mode in ("run", "multirun", "cfg", "info") if getattr(parsed, mode)]


def _check_overrides(arguments: list[str], sweeping: bool) -> list[Override]:
    """Each override parsed, with our own word on what Hydra takes silently or explains badly."""
    parser = OverridesParser.create()
    groups = sorted(path.name for path in configs_dir().iterdir() if path.is_dir() and path.name != "hydra")
    overrides = []
    for argument in arguments:
        try:
            override = parser.parse_override(argument)
        except HydraException as error:
            raise ConfigError(_unreadable(argument)) from error
        key = override.key_or_group
        ours = not key.startswith(("hydra.", "hydra/"))
        if not key:
            raise ConfigError(f"{argument}: the key is missing; write KEY=VALUE, as in fusion=sum")
        if override.is_add() or override.is_force_add():
            if ours:
                plain = argument.lstrip("+")
                raise ConfigError(f"{argument}: keys can't be added; to set one that exists, write {plain}")
        elif override.is_delete() and ours:
            raise ConfigError(f"{argument}: keys can't be removed; set another value, as {key}=VALUE")
        if key in groups and not override.is_sweep_override() and not isinstance(override.value(), str):
            raise ConfigError(f"{argument}: name one of configs/{key}{_choices(key)}")
        if key == "study" and override.is_sweep_override():
            raise ConfigError(f"{argument}: one study at a time")
        if override.is_sweep_override() and not sweeping:
            raise ConfigError(
                f"{argument}: several values make a sweep, so add -m; a list is written"
                f" {key}=[{argument.partition('=')[2]}], a single value with commas {_quoted(argument)}"
            )
        if override.is_sweep_override() and Path(argument.partition("=")[2]).exists():
            raise ConfigError(f"{argument}: a path with commas needs quotes: {_quoted(argument)}")
        overrides.append(override)
    return overrides


def _choices(group: str) -> str:
    names = sorted(path.stem for path in (configs_dir() / group).glob("*.yaml"))
    return f": {', '.join(names)}"


def _unreadable(argument: str) -> str:
    if "=" not in argument:
        return f"{argument}: not an override; write KEY=VALUE, as in fusion=sum"
    if re.search(r"=\s*$", argument):
        return f"{argument}: the value is missing"
    return f"{argument}: a value with spaces or special characters needs quotes: {_quoted(argument)}"


def _quoted(argument: str) -> str:
    """The override as a shell and Hydra both read it: 'key="value"'."""
    key, _, value = argument.partition("=")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return shlex.quote(f'{key}="{escaped}"')


# --- Hydra's errors as one line -------------------------------------------------------------------


def _explain(error: Exception, overrides: list[Override]) -> str:
    text = str(error)
    if isinstance(error, MissingConfigException) and error.options is not None:
        group, _, name = (error.missing_cfg_file or "").rpartition("/")
        return f"{group}={name}: no such {group}{did_you_mean(name, error.options)}"
    unknown = re.search(r"Could not override '([^']+)'", text)
    if unknown:
        return _explain_unknown(unknown[1], overrides)
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key}=???: a value is missing; give one"
    lines = [line.strip() for line in text.splitlines()]
    return " ".join(line for line in lines if line and not line.startswith(("full_key:", "object_type=")))


def _explain_unknown(key: str, overrides: list[Override]) -> str:
    """key: the whole dotted key. The suggestion looks at the keys beside it, then at all."""
    if key.startswith("hydra"):
        return f"{key}: no such key; see ablate run --cfg hydra"
    if lacking := _levels_without(key, overrides):
        return f"{key}: no key of {', '.join(lacking)}; sweep the others by themselves"
    group = key.partition(".")[0]
    if (choice := _chosen(group, overrides)) and (others := _having(key, group)):
        return f"{key}: no key of {choice}; it is one of {', '.join(others)}"
    known = _known_keys(*(o.input_line for o in overrides if o.input_line and _is_plain_group(o)))
    parent = key.rpartition(".")[0]
    if key.split(".")[0] in known and parent in known and not any(k.startswith(parent + ".") for k in known):
        return f"{key}: {parent} is a single value; set it as {parent}=VALUE"
    beside = [k for k in known if k.rpartition(".")[0] == parent]
    if key in known:  # so the config that lacks it is somebody's own
        return f"{key}: not in this config; one of your own has to begin with defaults: [config, _self_]"
    same_name = [k for k in known if k.rpartition(".")[2] == key.rpartition(".")[2]]
    if same_name:
        return f"{key}: no such key; did you mean {same_name[0]}?"
    return f"{key}: no such key{did_you_mean(key, beside or [k for k in known if '.' not in k])}"


def _levels_without(key: str, overrides: list[Override]) -> list[str]:
    """The swept choices of the key's group that lack it, as GROUP=NAME; none if all of them do."""
    group = key.partition(".")[0]
    swept = [o for o in overrides if o.key_or_group == group and o.is_discrete_sweep()]
    levels = [f"{group}={name}" for o in swept for name in o.sweep_string_iterator()]
    try:
        lacking = [level for level in levels if key not in _known_keys(level)]
    except MissingConfigException:  # one of the choices is none
        return []
    return lacking if len(lacking) < len(levels) else []


def _chosen(group: str, overrides: list[Override]) -> str | None:
    """What the overrides choose of a group, as GROUP=NAME; None without one choice of ours."""
    chosen = [o.input_line for o in overrides if o.key_or_group == group and _is_plain_group(o)]
    return chosen[-1] if chosen else None


def _having(key: str, group: str) -> list[str]:
    """The choices of a group that have the key, as GROUP=NAME."""
    levels = [f"{group}={path.stem}" for path in sorted((configs_dir() / group).glob("*.yaml"))]
    return [level for level in levels if key in _known_keys(level)]


def _is_plain_group(override: Override) -> bool:
    """Whether it chooses one of ablate's own configs. Somebody else's lie where only Hydra looks."""
    return (
        override.package is None
        and not override.is_sweep_override()
        and (configs_dir() / override.key_or_group / f"{override.value()}.yaml").is_file()
    )


@functools.cache
def _known_keys(*groups: str) -> list[str]:
    """Every key of the config that these groups compose, dotted, the groups' own names included."""
    config = _loader().load_configuration("config", overrides=[*groups], run_mode=RunMode.RUN)
    ours = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    keys: list[str] = []

    def visit(node: Any, path: str) -> None:
        for key, value in node.items():
            dotted = f"{path}.{key}" if path else str(key)
            if not (path and key == "name"):  # a group's name follows from the choice of the group
                keys.append(dotted)
            if isinstance(value, dict):
                visit(value, dotted)

    visit(OmegaConf.to_container(ours, resolve=False), "")
    return keys
