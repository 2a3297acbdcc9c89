"""What `ablate run` refuses, in one line with a way out: arguments that Hydra would accept silently or refuse
with a bad explanation, before it sees them, and the errors of Hydra itself."""

import argparse
import contextlib
import difflib
import functools
import itertools
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from ablate.compose.configs import configs_dir, loader
from ablate.compose.keys import ELSEWHERE, Key, sections
from ablate.compose.launchers import KEY, Pool
from ablate.compose.texts import as_written
from ablate.config.read import OF_A_RUN, PRESETS, hints, of_a_group
from ablate.config.rules import ConfigError, as_value, did_you_mean, flatten, line_on
from ablate.config.schema import PARTS, read_value
from ablate.phrases import first_few
from ablate.version import DISTRIBUTION

# What Hydra raises for invalid configs and overrides; it does not have types of its own for all of them.
REFUSALS = (
    *(HydraException, OmegaConfBaseException, yaml.YAMLError),
    *(ValueError, TypeError, RuntimeError, AssertionError),
)

LAUNCHER = "hydra/launcher"
# Of ablate run, beside Hydra's.
OPTIONS = ("--dry-run", "--rehearse", "--track", "--plugin", "--quiet", "--format", "--wide", "--runs")
DECIMAL = re.compile(r"-?\d+,\d+")
OF_ONES_OWN = "a config of your own is chosen by -cd DIR -cn NAME, a study by -cd DIR study=NAME"

# Answers for choices that are not here: methods that ablate knows by another name, launchers to install.
ANSWERS = {
    ("fusion", "alt"): (
        "AttentionAlt, softmax(QKᵀ/√d) V Wᵀ/√d with a matrix W for each head, is what fusion=concat"
        " scale=both computes; read literally, with W made of the text, its output is T × T, no vector a"
        " token, and position t sees the future"
    ),
    (LAUNCHER, "joblib"): "not installed; pip install hydra-joblib-launcher",
    (LAUNCHER, "submitit_local"): f"not installed; pip install '{DISTRIBUTION}[slurm]'",
    (LAUNCHER, "submitit_slurm"): f"not installed; pip install '{DISTRIBUTION}[slurm]'",
    (LAUNCHER, "ray"): f"not installed; pip install '{DISTRIBUTION}[ray]'",
}


# --- before Hydra sees them ---------------------------------------------------------------------


def parse(args: Sequence[str]) -> argparse.Namespace:
    """Hydra's options and the overrides. Raises ConfigError."""
    parsed = hydra_parser().parse_intermixed_args([*args])  # `run fusion=sum -m heads=1,2` as well
    parsed.typed, parsed.overrides = parsed.overrides, [*map(as_written, parsed.overrides)]
    if len(modes := _mode(parsed)) > 1:
        raise ConfigError(f"{' '.join(modes)}: use one of them")
    for option in ("resolve", "package"):
        if getattr(parsed, option) and not parsed.cfg:
            raise ConfigError(f"--{option}: it goes with --cfg, as in --cfg job --{option}")
    return parsed


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        option = re.search(r"arguments: (--?[\w.-]+)", message)
        if line := line_on(f"run {option[1]}") if option else "":
            raise ConfigError(line)
        word = option[1] if option else ""
        for key in (one.name for one in _keys()):
            if word.lstrip("-").rstrip("s") in (key.rstrip("s"), key.rpartition(".")[2].rstrip("s")):
                raise ConfigError(f"{word}: a key has no dashes; write {key}=VALUE")
        if near := difflib.get_close_matches(word, [*OPTIONS, *self._option_string_actions], cutoff=0.75):
            raise ConfigError(f"{word}: no such option; did you mean {near[0]}?")
        raise ConfigError(f"{message}; see ablate run --help, or ablate run --hydra-help")


SHOWN = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")


def hydra_parser() -> argparse.ArgumentParser:
    """Hydra's options, of which ablate takes those that compose and show configs."""
    parser = _Parser(add_help=False, description="ablate run")
    add: Any = parser.add_argument
    flag = {"action": "store_true"}
    add("overrides", nargs="*", help="KEY=VALUE, a dot between the parts of a key")
    add("--multirun", "-m", help="a run of each combination of values", **flag)
    add("--run", "-r", help="one run", **flag)
    add("--config-name", "-cn", help="a config of your own, in place of config.yaml")
    add("--config-dir", "-cd", help="a further directory of configs")
    add("--config-path", "-cp", help="a directory of configs in place of ablate's")
    add("--cfg", "-c", choices=("job", "hydra", "all"), help="show the config, and run nothing")
    add("--package", "-p", help="the part of it to show")
    add("--resolve", help="with what it refers to resolved", **flag)
    add("--info", "-i", nargs="?", const="all", choices=SHOWN, help="show how the config is composed")
    add("--hydra-help", help="show this", **flag)
    return parser


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
    groups, overrides = sorted(_groups()), []
    for argument, typed in zip(parsed.overrides, parsed.typed, strict=True):
        if not argument.partition("=")[0].strip("+~ "):
            raise ConfigError(f"{argument}: the key is missing; write KEY=VALUE, as in fusion=sum")
        try:
            override = parser.parse_override(argument)
        except HydraException as error:
            raise _unreadable(argument, groups) from error
        key = override.key_or_group
        ours = not key.startswith(("hydra.", "hydra/"))
        if override.is_add() or override.is_force_add():
            known = {*groups, *(one.name for one in _keys())}
            if ours and (key in known or key.partition(".")[0] in PARTS):  # of a part perhaps a plugin's
                bare = argument.lstrip("+")
                raise ConfigError(f"{argument}: keys can't be added; to set one that exists, write {bare}")
            if ours:
                raise ConfigError(line_on(key) or f"+{_explain_unknown(key, [], False)}")
        elif override.is_delete():
            raise ConfigError(f"{argument}: keys can't be removed; set another value, as {key}=VALUE")
        if key in groups and not override.is_sweep_override() and not isinstance(override.value(), str):
            raise _no_choice(argument, key)
        if not ours and override.is_sweep_override():
            raise ConfigError(f"{argument}: Hydra's own settings hold for a whole sweep; give one value")
        if key == "study" and override.is_sweep_override():
            raise ConfigError(f"{argument}: one study at a time")
        if override.is_sweep_override() and not sweeping:
            one = (
                f"one list is written {key}=[{typed[len(key) + 1 :]}], one text with commas {_quoted(typed)}"
            )
            fractions = {one.name for one in _keys() if re.match(r"\d*\.\d", one.default)}
            if DECIMAL.fullmatch(value := typed[len(key) + 1 :]) and key in fractions:
                one = f"a decimal number is written with a point, {key}={value.replace(',', '.')}"
            single = "" if key in groups else f"; {one}"
            raise ConfigError(f"{argument}: several values make a sweep, so add -m{single}")
        if override.is_sweep_override() and key == "corpus.path" and os.path.exists(typed[len(key) + 1 :]):
            raise ConfigError(f"{typed}: a path with commas needs quotes: {_quoted(typed)}")
        if override.is_sweep_override() and (parsed.cfg or parsed.info):
            raise ConfigError(
                f"{argument}: {' '.join(_mode(parsed))} shows the config of one run; give one value"
            )
        overrides.append(override)
    _require_each_once(parsed.overrides, swept=sweeping)
    _require_one_name(overrides)
    return overrides


def _require_one_name(overrides: Sequence[Override]) -> None:
    """Raises ConfigError if the name of a sweep would follow a key with several values."""
    swept = {override.key_or_group for override in overrides if override.is_sweep_override()}
    for name in (str(override.input_line) for override in overrides if override.key_or_group == "name"):
        for key in re.findall(r"\$\{([\w.]+)\}", name):
            if swept & {key, key.partition(".")[0]}:
                raise ConfigError(f"{name}: a sweep has one name, and {key} has several values; leave it out")


def _require_each_once(overrides: Sequence[str], *, swept: bool) -> None:
    """Raises ConfigError for a key with several values in words of their own, as a shell makes of
    seed={0..2}: only the last would count."""
    given: dict[str, list[str]] = {}
    for key, _, value in (override.partition("=") for override in overrides):
        given[key] = [*dict.fromkeys([*given.get(key, ()), value])]
    for key, values in given.items():
        if len(values) > 1:
            every = ",".join(values)
            sweep = f"{'' if swept else '-m '}{shlex.quote(f'{key}={every}')}"
            way_out = "" if key.startswith(("hydra", "study")) else f", or all by {sweep}"
            raise ConfigError(
                f"{key}: given as {first_few(values)}, and only the last counts; give one{way_out}"
            )


def _no_choice(argument: str, group: str) -> ConfigError:
    names = sorted(path.stem for path in (configs_dir() / group).glob("*.yaml"))
    way_out = ", or leave it out" if group == "study" else ""
    return ConfigError(f"{argument}: name one of configs/{group}: {', '.join(names)}{way_out}")


def _unreadable(argument: str, groups: Sequence[str]) -> ConfigError:
    """The error for an override that Hydra can't parse."""
    key, equals, value = argument.partition("=")
    if not equals:
        example = f"{argument}=NAME" if argument in groups else "KEY=VALUE, as in fusion=sum"
        return ConfigError(f"{argument}: not an override; write {example}")
    if not value.strip():
        return ConfigError(f"{argument}: the value is missing")
    if value.endswith(","):
        return ConfigError(f"{argument}: ends in a comma; values are written {key}=A,B, without spaces")
    if not re.fullmatch(r"[\w./@+~-]+", key, re.ASCII):
        return ConfigError(f"{key}: no such key; ablate keys shows them all")
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
    return shlex.quote(f"{key}={as_value(value)}")


# --- Hydra's own errors ---------------------------------------------------------------------------


@contextlib.contextmanager
def explained(overrides: list[Override]) -> Iterator[None]:
    """Turn Hydra's errors inside the block into ConfigErrors."""
    try:
        yield
    except ConfigError:
        raise
    except REFUSALS as error:
        raise ConfigError(explain(error, overrides)) from error


def explain(error: BaseException, overrides: list[Override], *, name_values: bool = True) -> str:
    """Hydra's error in one line. name_values: whether it names the value of a key, in which the variants of a
    sweep may differ."""
    if isinstance(error, RecursionError):
        return "a config is nested too deeply, or in itself"
    if error.__cause__ and (not str(error) or str(error).startswith("Error merging override")):
        return explain(error.__cause__, overrides, name_values=name_values)
    text = str(error) or f"Hydra can't use this ({type(error).__name__}); see ablate run --cfg hydra"
    if isinstance(error, MissingConfigException) and error.options is not None:
        missing = error.missing_cfg_file or ""
        group, _, name = missing.rpartition("/") if missing.startswith("hydra/") else missing.partition("/")
        unknown = f"no such {group}{did_you_mean(name, error.options)}"
        if group in PARTS and Path(f"{name}.py").exists():
            unknown = f"no such {group}, but {name}.py is here; add --plugin {name}.py"
        return line_on(f"{group}={name}") or f"{group}={name}: {ANSWERS.get((group, name), unknown)}"
    if nowhere := re.match(r"In '(([^/']+)/[^']+)': Could not load '([^']+)'", text):
        file, group, missing = nowhere.groups()
        begin = f"; {of_a_group(group, PRESETS[group])}" if group in PRESETS else ""
        return f"{file}: its defaults name {missing}, which is nowhere{begin}"
    unknown = re.search(r"Could not override '([^']+)'", text)
    if unknown:
        return _explain_unknown(unknown[1], overrides, name_values)
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key}=???: a value is missing; give one"
    lines = [line.strip() for line in text.splitlines()]
    key = f"{error.full_key}: " if isinstance(error, OmegaConfBaseException) and error.full_key else ""
    return key + " ".join(
        line for line in lines if line and not line.startswith(("full_key:", "object_type="))
    )


def _explain_unknown(key: str, overrides: list[Override], name_values: bool) -> str:
    """The message about an unknown key. key: the full dotted key. Suggestions come from the keys beside it,
    then from all keys."""
    if line := line_on(key):
        return line
    if "@study." in key:
        return f"{key}: only in a study whose first line is '# @package _global_'; write that line"
    if key.startswith("hydra"):
        chosen = [one.input_line or "" for one in overrides if one.key_or_group == LAUNCHER]
        if key.removeprefix(f"{KEY}.") in hints(Pool):
            return only_of_the_pool(key, (chosen or ["the launcher chosen here"])[-1])
        return f"{key}: no such key; see ablate run --cfg hydra"
    group = key.partition(".")[0]
    of_groups = [o for o in overrides if (configs_dir() / o.key_or_group).is_dir()]
    swept = [o for o in of_groups if o.key_or_group == group and o.is_discrete_sweep()]
    levels = [f"{group}={name}" for o in swept for name in o.sweep_string_iterator()]
    levels = levels if all(map(_known_keys, levels)) else []
    if 0 < len(lacking := [level for level in levels if key not in _known_keys(level)]) < len(levels):
        which = "it" if len(lacking) == 1 else "these"
        return f"{key}: no key of {', '.join(lacking)}; leave {which} out, or the key"
    chosen = [o.input_line or "" for o in of_groups if not o.is_sweep_override()]
    known = _known_keys(*filter(_known_keys, chosen), *levels[:1])
    if key in known and group in PRESETS:
        return f"{key}: not in this {group}; {of_a_group(group, PRESETS[group])}"
    choices = [f"{group}={path.stem}" for path in sorted((configs_dir() / group).glob("*.yaml"))]
    if having := [level for level in choices if key in _known_keys(level)]:
        given = next((o.input_line for o in overrides if name_values and o.key_or_group == key), key)
        how = "alone" if levels else "as well"
        return f"{given}: a key of {' or '.join(having)}; choose that {how}, or leave the key out"
    parent = key.rpartition(".")[0]
    if key.split(".")[0] in known and parent in known and not any(k.startswith(parent + ".") for k in known):
        return f"{key}: {parent} is a single value; set it as {parent}=VALUE"
    beside = [k for k in known if k.rpartition(".")[0] == parent]
    if key in known:  # so it is a user's config that lacks it
        return f"{key}: not in this config; {OF_A_RUN}"
    if meant := ELSEWHERE.get(key.rpartition(".")[2]):
        return f"{key}: no such key; did you mean {meant}?"
    same_name = [k for k in known if k.rpartition(".")[2] == key.rpartition(".")[2]]
    if same_name:
        return f"{key}: no such key; did you mean {same_name[0]}?"
    near = did_you_mean(key, beside or [k for k in known if "." not in k])
    own = "" if "." in key or "did you mean" in near else f"; {OF_ONES_OWN}"
    return f"{key}: no such key{own}{near}"


def only_of_the_pool(key: str, launcher: str) -> str:
    """Why a launcher of Hydra's does not take this key."""
    return f"{key}: no key of {launcher}; of hydra/launcher=pool"


@functools.cache
def _known_keys(*choices: str) -> list[str]:
    """Every dotted key of the config composed with these choices of groups, including the groups' names; none
    if only the user's configs have one of them."""
    try:
        config = loader().load_configuration("config", overrides=[*choices], run_mode=RunMode.RUN)
    except HydraException:
        return []
    paths = (itertools.accumulate(key.split("."), "{}.{}".format) for key in flatten(plain(config)))
    return [*dict.fromkeys(itertools.chain.from_iterable(paths))]


def _groups() -> set[str]:
    return {path.name for path in configs_dir().iterdir() if path.is_dir()} - {"hydra"} | {LAUNCHER}


def _keys() -> list[Key]:
    return [key for section in sections() for key in section.keys]


def plain(config: DictConfig) -> dict[str, Any]:
    """All keys but Hydra's as plain values, with interpolations unresolved."""
    others = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    values: Any = OmegaConf.to_container(others)
    return {str(key): value for key, value in values.items()}
