"""Hydra's errors rewritten as one line, with a way out."""

import contextlib
import functools
import re
from collections.abc import Iterator
from typing import Any

import yaml
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from ablate.compose.configs import configs_dir, loader, offered
from ablate.config.rules import ConfigError, did_you_mean

# What Hydra raises for invalid configs and overrides; it does not have types of its own for all of them.
REFUSALS = (
    *(HydraException, OmegaConfBaseException, yaml.YAMLError),
    *(ValueError, TypeError, RuntimeError, AssertionError),
)

# Answers for methods that the literature knows by a name that ablate does not use.
ANSWERS = {
    ("fusion", "alt"): (
        "AttentionAlt, softmax(QKᵀ/√d) V Wᵀ/√d with a matrix W for each head, is what fusion=concat"
        " scale=both computes; read literally, with W made of the text, its output is T × T, no vector a"
        " token, and position t sees the future"
    )
}


@contextlib.contextmanager
def explained(overrides: list[Override]) -> Iterator[None]:
    """Turn Hydra's errors inside the block into ConfigErrors."""
    try:
        yield
    except ConfigError:
        raise
    except REFUSALS as error:
        raise ConfigError(explain(error, overrides)) from error


def explain(error: BaseException, overrides: list[Override]) -> str:
    if isinstance(error, RecursionError):
        return "a config is nested too deeply, or in itself"
    if error.__cause__ and (not str(error) or str(error).startswith("Error merging override")):
        return explain(error.__cause__, overrides)
    text = str(error) or f"Hydra can't use this ({type(error).__name__}); see ablate run --cfg hydra"
    if isinstance(error, MissingConfigException) and error.options is not None:
        group, _, name = (error.missing_cfg_file or "").rpartition("/")
        unknown = f"no such {group}{did_you_mean(name, error.options)}"
        return f"{group}={name}: {ANSWERS.get((group, name), unknown)}"
    unknown = re.search(r"Could not override '([^']+)'", text)
    if unknown:
        return _explain_unknown(unknown[1], overrides)
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key}=???: a value is missing; give one"
    lines = [line.strip() for line in text.splitlines()]
    key = f"{error.full_key}: " if isinstance(error, OmegaConfBaseException) and error.full_key else ""
    return key + " ".join(
        line for line in lines if line and not line.startswith(("full_key:", "object_type="))
    )


def _explain_unknown(key: str, overrides: list[Override]) -> str:
    """The message about an unknown key. key: the full dotted key. Suggestions come from the keys beside it,
    then from all keys."""
    if "@study." in key:
        return f"{key}: only in a study whose first line is '# @package _global_'; write that line"
    if key.startswith("hydra"):
        return f"{key}: no such key; see ablate run --cfg hydra"
    if lacking := _levels_without(key, overrides):
        return f"{key}: no key of {', '.join(lacking)}; sweep the others by themselves"
    group = key.partition(".")[0]
    if choices := _having(key, group):
        return f"{key}: a key of {' or '.join(choices)}; choose that as well, or leave the key out"
    known = _known_keys(*(o.input_line for o in overrides if o.input_line and _is_plain_group(o)))
    parent = key.rpartition(".")[0]
    if key.split(".")[0] in known and parent in known and not any(k.startswith(parent + ".") for k in known):
        return f"{key}: {parent} is a single value; set it as {parent}=VALUE"
    beside = [k for k in known if k.rpartition(".")[0] == parent]
    if key in known:  # so it is a user's config that lacks it
        return f"{key}: not in this config; one of your own has to begin with defaults: [config, _self_]"
    same_name = [k for k in known if k.rpartition(".")[2] == key.rpartition(".")[2]]
    if same_name:
        return f"{key}: no such key; did you mean {same_name[0]}?"
    return f"{key}: no such key{did_you_mean(key, beside or [k for k in known if '.' not in k])}"


def _levels_without(key: str, overrides: list[Override]) -> list[str]:
    """The swept choices of the key's group that lack the key, as GROUP=NAME; empty if all of them do."""
    group = key.partition(".")[0]
    if not (configs_dir() / group).is_dir():
        return []
    swept = [o for o in overrides if o.key_or_group == group and o.is_discrete_sweep()]
    levels = [f"{group}={name}" for o in swept for name in o.sweep_string_iterator()]
    try:
        lacking = [level for level in levels if key not in _known_keys(level)]
    except HydraException:  # there is no such choice
        return []
    return lacking if len(lacking) < len(levels) else []


def _having(key: str, group: str) -> list[str]:
    """The choices of a group that have the key, as GROUP=NAME."""
    levels = [f"{group}={path.stem}" for path in sorted((configs_dir() / group).glob("*.yaml"))]
    return [level for level in levels if key in _known_keys(level)]


def _is_plain_group(override: Override) -> bool:
    """Whether it chooses one of ablate's own configs. Only Hydra knows where others are."""
    return (
        override.package is None
        and not override.is_sweep_override()
        and (
            (configs_dir() / override.key_or_group / f"{override.value()}.yaml").is_file()
            or (override.key_or_group, override.value()) in offered
        )
    )


@functools.cache
def _known_keys(*groups: str) -> list[str]:
    """Every dotted key of the config composed with these overrides of groups, including the groups' names."""
    config = loader().load_configuration("config", overrides=[*groups], run_mode=RunMode.RUN)
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
