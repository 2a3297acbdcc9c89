"""Refuse arguments of `ablate run` that Hydra would accept silently, or refuse with a bad explanation."""

import argparse
import os
import re
import shlex
from collections.abc import Sequence

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from ablate.compose.configs import configs_dir
from ablate.config.read import read_value
from ablate.config.rules import ConfigError


def parse(args: Sequence[str]) -> argparse.Namespace:
    """Hydra's options and the overrides, read by Hydra's own parser. Raises ConfigError."""
    parser = get_args_parser()

    def refuse(message: str) -> None:
        raise ConfigError(f"{message}; see ablate run --help, or ablate run --hydra-help")

    parser.error = refuse  # pyright: ignore[reportAttributeAccessIssue]
    parsed = parser.parse_intermixed_args([*args])  # `run fusion=sum -m heads=1,2` as well
    if parsed.experimental_rerun is not None:
        raise ConfigError("--experimental-rerun: it runs code from a file; use the overrides of that run")
    if parsed.shell_completion:
        raise ConfigError("--shell-completion: ablate has its own; see ablate --install-completion")
    if len(modes := _mode(parsed)) > 1:
        raise ConfigError(f"{' '.join(modes)}: use one of them")
    for option in ("resolve", "package"):
        if getattr(parsed, option) and not parsed.cfg:
            raise ConfigError(f"--{option}: it goes with --cfg, as in --cfg job --{option}")
    return parsed


def chooses_a_study(overrides: Sequence[str]) -> bool:
    chosen = [override for override in overrides if override.startswith("study=")]
    return bool(chosen) and chosen[-1] != "study=null" and not sets_the_mode(overrides)


def sets_the_mode(overrides: Sequence[str]) -> bool:
    return any(override.startswith("hydra.mode=") for override in overrides)


def _mode(parsed: argparse.Namespace) -> list[str]:
    """The mode options given (--run, --multirun, --cfg, --info), of which Hydra takes one."""
    return [f"--{mode}" for mode in ("run", "multirun", "cfg", "info") if getattr(parsed, mode)]


def check_overrides(parsed: argparse.Namespace) -> list[Override]:
    """Each override, parsed. Raises ConfigError."""
    sweeping = parsed.multirun or any(o.startswith(("hydra.mode=", "study=")) for o in parsed.overrides)
    parser = OverridesParser.create()
    groups = sorted(path.name for path in configs_dir().iterdir() if path.is_dir() and path.name != "hydra")
    overrides = []
    for argument in parsed.overrides:
        if not argument.partition("=")[0].strip("+~ "):
            raise ConfigError(f"{argument}: the key is missing; write KEY=VALUE, as in fusion=sum")
        try:
            override = parser.parse_override(argument)
        except HydraException as error:
            raise _unreadable(argument, groups) from error
        key = override.key_or_group
        ours = not key.startswith(("hydra.", "hydra/"))
        if override.is_add() or override.is_force_add():
            if ours:
                plain = argument.lstrip("+")
                raise ConfigError(f"{argument}: keys can't be added; to set one that exists, write {plain}")
        elif override.is_delete() and ours:
            raise ConfigError(f"{argument}: keys can't be removed; set another value, as {key}=VALUE")
        if key in groups and not override.is_sweep_override() and not isinstance(override.value(), str):
            raise _no_choice(argument, key)
        if not ours and override.is_sweep_override():
            raise ConfigError(f"{argument}: Hydra's own settings hold for a whole sweep; give one value")
        if key.startswith("hydra/") and not isinstance(override.value(), str | list):
            raise ConfigError(f"{argument}: name a config of Hydra's, as hydra/launcher=basic")
        if key == "study" and override.is_sweep_override():
            raise ConfigError(f"{argument}: one study at a time")
        if override.is_sweep_override() and not sweeping:
            raise ConfigError(
                f"{argument}: several values make a sweep, so add -m; a list is written"
                f" {key}=[{argument.partition('=')[2]}], a single value with commas {_quoted(argument)}"
            )
        if override.is_sweep_override() and key == "corpus.path" and os.path.exists(argument[len(key) + 1 :]):
            raise ConfigError(f"{argument}: a path with commas needs quotes: {_quoted(argument)}")
        if override.is_sweep_override() and (parsed.cfg or parsed.info):
            raise ConfigError(
                f"{argument}: {' '.join(_mode(parsed))} shows the config of one run; give one value"
            )
        overrides.append(override)
    return overrides


def _no_choice(argument: str, group: str) -> ConfigError:
    names = sorted(path.stem for path in (configs_dir() / group).glob("*.yaml"))
    way_out = ", or leave it out" if group == "study" else ""
    return ConfigError(f"{argument}: name one of configs/{group}: {', '.join(names)}{way_out}")


def _unreadable(argument: str, groups: Sequence[str]) -> ConfigError:
    """The error for an override that Hydra can't parse."""
    key, equals, value = argument.partition("=")
    if not equals:
        return ConfigError(f"{argument}: not an override; write KEY=VALUE, as in fusion=sum")
    if not value.strip():
        return ConfigError(f"{argument}: the value is missing")
    if not re.fullmatch(r"[\w./@+~-]+", key, re.ASCII):
        return ConfigError(f"{key}: no such key; ablate run --cfg job shows them all")
    if key in groups:
        return _no_choice(argument, key)
    try:
        read_value(key, value)  # quotes would not help a value that no run takes
    except ConfigError as error:
        return error
    return ConfigError(
        f"{argument}: a value with spaces or special characters needs quotes: {_quoted(argument)}"
    )


def _quoted(argument: str) -> str:
    """The override quoted for the shell and for Hydra: 'key="value"'."""
    key, _, value = argument.partition("=")
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return shlex.quote(f'{key}="{escaped}"')
