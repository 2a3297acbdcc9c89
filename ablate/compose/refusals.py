"""What `ablate run` refuses, in one line with a way out: arguments that Hydra would accept silently or refuse
with a bad explanation, before it sees them, and the errors of Hydra itself."""

import argparse
import contextlib
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException
from omegaconf.errors import OmegaConfBaseException

from ablate.compose.configs import configs_dir, sections, unknown_key
from ablate.config.rules import ConfigError, as_value, did_you_mean, line_on
from ablate.config.schema import PARTS
from ablate.phrases import first_few

# Errors whose text says what is wrong with a config or an override.
SAID = (ConfigError, HydraException, OmegaConfBaseException, yaml.YAMLError)
# Of ablate run, beside Hydra's.
OPTIONS = ("--dry-run", "--rehearse", "--track", "--plugin", "--format", "--runs", "--help", "--help-all")
UNSWEPT = ("name", "force", "device", "study", "train.save", "train.checkpoint_every")
LAUNCHER, KEY = "hydra/launcher", "hydra.launcher"  # the choice, and the settings
# What is in quotes; or an element of a list that has to be, by a sign in it, as [fusion=sum:0.05] has.
_EQUATION = re.compile(r"""('[^']*'|"[^"]*")|(?<=[\[,])\s*([\w.]+\s*[<>=!]=?[^\[\],{}'"]+)""")


# --- before Hydra sees them ---------------------------------------------------------------------


def parse(args: Sequence[str]) -> argparse.Namespace:
    """Hydra's options, the overrides, and whether one chooses a study. Raises ConfigError."""
    parser = _Parser(add_help=False)
    add: Any = parser.add_argument
    add("overrides", nargs="*")
    add("--multirun", "-m", action="store_true")
    add("--config-name", "-cn")
    add("--config-dir", "-cd")
    add("--cfg", "-c", choices=["job"])
    parsed = parser.parse_intermixed_args([*args])  # `run fusion=sum -m heads=1,2` as well
    parsed.overrides = [*map(_with_equations, parsed.overrides)]
    parsed.study = any(one.startswith("study=") for one in parsed.overrides)
    return parsed


def _with_equations(override: str) -> str:
    """The override with quotes around equations in a list."""
    key, _, value = override.partition("=")
    quoted = _EQUATION.sub(lambda found: found[1] or f"'{found[2]}'", value)
    return f"{key}={quoted}" if value.startswith("[") else override


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        option = re.search(r"arguments: (--?[\w.-]+)", message)
        word = option[1] if option else ""
        if line := line_on(f"run {word}"):
            raise ConfigError(line)
        for key in (key.name for section in sections() for key in section.keys):
            if word.lstrip("-").rstrip("s") in (key.rstrip("s"), key.rpartition(".")[2].rstrip("s")):
                raise ConfigError(f"{word}: a key has no dashes; write {key}=VALUE")
        near = f"{word}: no such option{did_you_mean(word, [*OPTIONS, *self._option_string_actions])}"
        raise ConfigError(near if word else f"{message}; see ablate run --help")


def check_overrides(parsed: argparse.Namespace) -> None:
    """Raises ConfigError for an override that Hydra would take for something else, or refuse badly."""
    sweeping = parsed.multirun or parsed.study
    for argument in parsed.overrides:
        override, bare = _parsed(argument), argument.lstrip("+~")
        key, is_sweep = override.key_or_group, override.is_sweep_override()
        of_hydra, of_launcher = key.startswith("hydra"), key.startswith((LAUNCHER, f"{KEY}."))
        is_no_choice = argument.endswith("=null") and (configs_dir() / key).is_dir()
        typed = argument.partition("=")[0] + "="  # several such words are what a shell makes of seed={0..2}
        values = dict.fromkeys(one.removeprefix(typed) for one in parsed.overrides if one.startswith(typed))
        as_sweep = f", or all by -m {shlex.quote(typed + ','.join(values))}" if makes_variants(key) else ""
        wrong = {
            "of Hydra's keys, type hydra.launcher's alone": of_hydra and not of_launcher,
            f"no key is added or removed; type {bare}": bare != argument and not of_hydra,
            "it makes no variants; give one value": is_sweep and not makes_variants(key),
            "--cfg job shows the config of one run; give one value": is_sweep and parsed.cfg,
            "several values make a sweep, so add -m": is_sweep and not sweeping,
            f"name a {key}, or leave it out; see ablate keys": is_no_choice,
            "a name is of all runs of a command; write it out": key == "name" and "${" in argument,
            f"given as {first_few([*values])}; give one{as_sweep}": len(values) > 1,
        }
        for why in (why for why, is_so in wrong.items() if is_so):
            raise ConfigError(line_on(key) or f"{argument}: {why}")


def makes_variants(key: str) -> bool:
    return key not in UNSWEPT and not key.lstrip("+").startswith(("study.", "hydra"))


def _parsed(argument: str) -> Override:
    key, _, value = argument.partition("=")
    if not re.match(r"[+~]*[\w./@:-]+=", argument, re.ASCII):
        raise ConfigError(f"{argument}: not an override; write KEY=VALUE, as in fusion=sum")
    try:
        return OverridesParser.create().parse_override(argument)
    except HydraException as error:
        quoted = shlex.quote(f"{key}={as_value(value)}")
        is_odd = ",," in f"{value}," or any(value.count(a) != value.count(b) for a, b in ("()", "[]", "{}"))
        check = "check its brackets and commas, or " * is_odd
        way_out = f"{check}quote a value with spaces or other signs: {quoted}"
        raise ConfigError(f"{argument}: Hydra can't read it; {way_out}") from error


# --- Hydra's own errors ---------------------------------------------------------------------------


@contextlib.contextmanager
def explained(kind: type[ConfigError] = ConfigError) -> Iterator[None]:
    """Turn Hydra's errors inside the block into ConfigErrors."""
    try:
        yield
    except Exception as error:  # Hydra has no types of its own for what is invalid
        raise kind(explain(error)) from error


def explain(error: BaseException) -> str:
    """Hydra's error in one line."""
    if error.__cause__ and (not str(error) or str(error).startswith("Error merging override")):
        return explain(error.__cause__)
    if isinstance(error, MissingConfigException) and error.options is not None:
        return _unknown_choice(error.missing_cfg_file or "", error.options)
    if unknown := re.search(r"Could not override '([\w.]+)'", str(error)):
        return unknown_key(unknown[1])
    if not isinstance(error, SAID):
        return f"Hydra can't compose this ({type(error).__name__}: {error})"
    key = f"{error.full_key}: " if isinstance(error, OmegaConfBaseException) and error.full_key else ""
    lines = [line.strip() for line in str(error).partition("Config search path:")[0].splitlines()]
    return key + " ".join(one for one in lines if one and not one.startswith(("full_key:", "object_type=")))


def _unknown_choice(missing: str, options: Sequence[str]) -> str:
    """missing: a group with the choice that it lacks."""
    group, _, name = missing.rpartition("/") if missing.startswith("hydra/") else missing.partition("/")
    unknown = f"no such {group}{did_you_mean(name, options)}"
    if group in PARTS and Path(f"{name}.py").exists():
        unknown = f"no such {group}, but {name}.py is here; add --plugin {name}.py"
    return line_on(f"{group}={name}") or f"{group}={name}: {unknown}"
