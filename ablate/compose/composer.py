"""Compose overrides into RunConfigs, for a single run or for the many runs of a sweep."""

import contextlib
import functools
import itertools
import math
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType, ValueType
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from ablate.compose.loading import without
from ablate.compose.refusals import explained, makes_variants
from ablate.config.read import read
from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig

MOST_RUNS = 100_000  # in one command, since each is checked before the first begins
YAML_WORDS = {"True": "true", "False": "false"}  # Hydra writes these as Python does
Overrides = tuple[str, ...]  # the overrides of one run, as KEY=VALUE
WHOLE = re.compile(r"[+-]?(0|[1-9]\d{0,999})")  # what Hydra reads as a whole number


def keys_of_a_run(config: DictConfig) -> dict[str, Any]:
    """The keys of a run with their values, interpolations unresolved."""
    values: Any = OmegaConf.to_container(without(config, "hydra", "study"))
    return values


def to_run_config(values: dict[str, Any]) -> RunConfig:
    """The RunConfig of these keys. Raises ConfigError."""
    resolved: Any = values
    if _is_open(values):
        resolved = OmegaConf.to_container(OmegaConf.create(values), resolve=True, throw_on_missing=True)
    return read(RunConfig, resolved)


def _is_open(values: Any) -> bool:
    """Whether there may be an interpolation, or a missing value (???), among the values."""
    return "${" in (text := str(values)) or "???" in text


class Mistake(ConfigError):
    """What no run accepts or Hydra can't compose, whatever the other keys are: no combination can succeed."""


class Composer:
    """Composes the RunConfigs of a sweep. Hydra needs about 50 ms per config, so it composes once for each
    choice of groups; plain values are then set here, as Hydra would set them. Runs that differ only in seeds
    are composed once.

    name: of the config. whole: the values of a single run, which need not be composed again.
    """

    def __init__(self, loader: ConfigLoader, name: str, whole: dict[str, Any] | None) -> None:
        self._loader, self._name, self._whole = loader, name, whole
        self._parse = functools.cache(OverridesParser.create().parse_override)
        self._options = functools.cache(loader.get_group_options)  # the choices of a group of configs
        self._compose = functools.cache(self._composed)
        self._without_seed = functools.cache(self._closed)

    def levels(self, overrides: Iterable[str]) -> dict[str, list[str]]:
        """The values of each key, in the syntax of overrides; the last override of a key counts. Raises
        ConfigError."""
        with explained():
            levels = {one.get_key_element(): _levels(one) for one in map(self._parse, overrides)}
        several = {key: values for key, values in levels.items() if len(values) > 1}
        for key, values in several.items():
            if not makes_variants(key):
                raise ConfigError(f"{key}={','.join(values)}: it makes no variants; give one value")
        if math.prod(map(len, several.values())) > MOST_RUNS:
            many = f"more than {MOST_RUNS:,} runs; sweep over a part of the values at a time"
            raise ConfigError(f"{' × '.join(several)}: {many}")
        return levels

    def __call__(self, overrides: Overrides) -> RunConfig:
        """The RunConfig of one run. overrides: all of its overrides. Raises Mistake."""
        with explained(Mistake):
            groups, settings = self._split_groups(overrides)
            values = self._compose(groups)
            try:
                for setting in settings:
                    values = _with(values, setting.key_or_group.split("."), setting.value())
            except LookupError:
                values = self._composed(overrides)
            return to_run_config(values)

    def by_variant(self, overrides: Overrides) -> tuple[Overrides, RunConfig]:
        """The variant, which is the overrides without the seed, and the RunConfig. If the seed is no number,
        or another key depends on it, it stays among the overrides. Raises Mistake."""
        variant = tuple(one for one in overrides if not one.startswith("seed="))
        seed = next((one.removeprefix("seed=") for one in overrides if one not in variant), "")
        if WHOLE.fullmatch(seed) and (config := self._without_seed(variant)):
            return variant, replace(config, seed=int(seed))
        return overrides, self(overrides)

    def _closed(self, variant: Overrides) -> RunConfig | None:
        """The RunConfig of a variant; None if a value is an interpolation, as corpus.seed=${seed} is."""
        with explained(Mistake):
            groups, _ = self._split_groups(variant)
            return None if _is_open([*variant, self._compose(groups)]) else self(variant)

    def _split_groups(self, overrides: Overrides) -> tuple[Overrides, list[Override]]:
        """The overrides of a run that choose from groups, and those that set a value."""
        of_run = [one for one in overrides if not one.lstrip("+").startswith("study.")]  # but study=NAME
        parsed = [*map(self._parse, of_run)]
        are_plain = [one for one in parsed if one.type == OverrideType.CHANGE and "/" not in one.key_or_group]
        settings = [one for one in are_plain if not self._options(one.key_or_group)]
        return tuple(one.input_line or "" for one in parsed if one not in settings), settings

    def _composed(self, overrides: Overrides) -> dict[str, Any]:
        """Hydra's config for these overrides, as plain values."""
        if self._whole is not None and not overrides:
            return self._whole
        return keys_of_a_run(self._loader.load_configuration(self._name, [*overrides], run_mode=RunMode.RUN))


def _levels(override: Override) -> list[str]:
    if not override.is_sweep_override():
        value = override.get_value_element_as_str()
        return [YAML_WORDS.get(value, value)]
    typed = override.input_line or ""
    levels = dict[str, None]()
    is_range = override.is_range_sweep() and "=range(" in typed  # not one that Hydra sorts or shuffles
    if is_range or override.value_type == ValueType.SIMPLE_CHOICE_SWEEP:
        with contextlib.suppress(ValueError, ArithmeticError):  # a step of 0, or a bound that is no number
            some = itertools.islice(override.sweep_string_iterator(), MOST_RUNS + 1)
            levels = dict.fromkeys(YAML_WORDS.get(level, level) for level in some)
    if not levels:
        empty = "an empty range; " * is_range
        raise ConfigError(f"{typed}: {empty}list the values, as 1,2,4, or write range(START,STOP,STEP)")
    return [*levels]


def _with(values: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    """A copy of `values` with one plain value replaced. Raises LookupError for what only Hydra can do."""
    first, *rest = path
    before = values[first]
    if isinstance(before, dict) != bool(rest) or isinstance(value, dict):
        raise LookupError(first)
    return values | {first: _with(before, rest, value) if rest else value}
