"""From the command line to validated RunConfigs: the one place that knows Hydra's composing.

Hydra's own command line stays whole (overrides, groups, -m, --cfg, --info, -cn, -cd, launchers). A
single run is composed by Hydra and handed back; a sweep goes through our sweeper
(hydra_plugins/ablate), which calls `ablate.study.loop.sweep`, and through whichever launcher.
"""

import argparse
import contextlib
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
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ablate.compose.configs import configs_dir, loader
from ablate.compose.messages import explain
from ablate.compose.variants import is_demonstration, to_run_config
from ablate.config.read import require_keys
from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig

Job = Callable[[RunConfig], Any]


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
        raise ConfigError(explain(error, overrides)) from error
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


def complete(incomplete: str) -> list[str]:
    """The overrides that could go on from here, for the shell."""
    from hydra._internal.core_plugins.bash_completion import BashCompletion

    return BashCompletion(loader())._query("config", incomplete)


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
