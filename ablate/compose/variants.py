"""Compose overrides into RunConfigs, for a single run or for the many runs of a sweep."""

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType, RangeSweep
from hydra.errors import MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ablate.compose.configs import SIZES
from ablate.compose.messages import REFUSALS, explain, explained
from ablate.config.read import read_run
from ablate.config.rules import ConfigError, did_you_mean
from ablate.config.schema import RunConfig

NOT_OF_A_RUN = ("hydra", "study", "size")
MOST_RUNS = 100_000  # in one command, since each is checked before the first begins
YAML_WORDS = {"True": "true", "False": "false"}  # Hydra writes these as Python does
TOO_MANY = f"a sweep has at most {MOST_RUNS:,}; sweep over a part of the values at a time"
Overrides = tuple[str, ...]  # the overrides of one run, as KEY=VALUE


def is_demonstration(config: DictConfig) -> bool:
    """Whether `size` is demo. Raises ConfigError for an unknown size."""
    if config.size not in SIZES:
        raise ConfigError(f"size={config.size}: not a choice{did_you_mean(str(config.size), SIZES)}")
    return config.size == "demo"


def to_run_config(config: DictConfig) -> RunConfig:
    """The RunConfig of a composed DictConfig. Raises ConfigError."""
    return read_run(_of_a_run(_plain(config)))


def _plain(config: DictConfig) -> dict[str, Any]:
    """All keys but Hydra's as plain values, with interpolations unresolved."""
    others = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    plain = OmegaConf.to_container(others, resolve=False)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _of_a_run(values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a run with their values, interpolations resolved."""
    if _is_open(values):
        resolved = OmegaConf.to_container(OmegaConf.create({**values}), resolve=True, throw_on_missing=True)
        assert isinstance(resolved, dict)
        values = {str(key): value for key, value in resolved.items()}
    return {key: value for key, value in values.items() if key not in NOT_OF_A_RUN}


def _is_open(value: Any) -> bool:
    """Whether the value contains an interpolation or a missing value (???)."""
    if isinstance(value, Mapping):
        return any(map(_is_open, value.values()))
    return any(map(_is_open, value)) if isinstance(value, list) else "${" in str(value) or value == "???"


@dataclass(frozen=True)
class Setting:
    """The values of one key, in the syntax of overrides. swept: whether they were given as a sweep."""

    values: list[str]
    swept: bool


class Mistake(ConfigError):
    """A value that no run accepts, whatever its other keys are, so that no combination can succeed."""


class NotComposed(ConfigError):
    """Hydra can't compose a variant. The message refers to the whole command, of_variant to this variant."""

    def __init__(self, of_command: str, of_variant: str) -> None:
        super().__init__(of_command)
        self.of_variant = of_variant


class Composer:
    """Composes the RunConfigs of a sweep. Hydra needs about 50 ms per config, so it composes once for each
    choice of groups; plain values are then set here, as Hydra would set them.

    arguments: the overrides of the whole command, which error messages refer to.
    """

    def __init__(self, config: DictConfig, loader: ConfigLoader, arguments: Sequence[str] = ()) -> None:
        self._config = config
        self._loader = loader
        self._parser = OverridesParser.create(config_loader=loader)
        self._arguments = arguments
        self._composed: dict[Overrides, dict[str, Any] | Exception] = {}
        self._parsed: dict[str, Override] = {}
        self._values: dict[str, bool] = {}

    def settings(self, overrides: Iterable[str]) -> dict[str, Setting]:
        """The settings by key; the last override of a key counts. Raises ConfigError."""
        with explained([]):
            parsed = self._parser.parse_overrides([*overrides])
            settings = {override.get_key_element(): _setting(override) for override in parsed}
        runs = math.prod(len(setting.values) for setting in settings.values())
        if runs > MOST_RUNS:
            sizes = " × ".join(
                f"{len(setting.values):,} of {key}"
                for key, setting in settings.items()
                if len(setting.values) > 1
            )
            raise ConfigError(f"{runs:,} runs ({sizes}): {TOO_MANY}")
        return settings

    def __call__(self, overrides: Sequence[str]) -> RunConfig:
        """The RunConfig of one run. overrides: all of its overrides. Raises Mistake, NotComposed."""
        with self._explained(overrides):
            groups, settings = self._parted(overrides)
            values, others = self._compose(groups), []
            for setting in settings:
                try:
                    values = _with(values, setting.key_or_group.split("."), setting.value())
                except LookupError:
                    others.append(setting.input_line or "")
            if others:
                self._compose((*groups, *others))  # refuses an unknown key once for all variants
                values = _plain(self._loader.load_sweep_config(self._config, list(overrides)))
            values = _of_a_run(values)
        try:
            return read_run(values)
        except ConfigError as error:
            raise Mistake(str(error)) from error

    def is_plain(self, overrides: Sequence[str]) -> bool:
        """Whether no value is an interpolation, as corpus.seed=${seed} is. Raises Mistake, NotComposed."""
        with self._explained(overrides):
            groups, _ = self._parted(overrides)
            chosen = {key: value for key, value in self._compose(groups).items() if key not in NOT_OF_A_RUN}
            return not _is_open([*overrides, chosen])

    def _parted(self, overrides: Sequence[str]) -> tuple[Overrides, list[Override]]:
        """The overrides of a run that choose from groups, and those that set a value."""
        parsed = [self._parse(override) for override in overrides if not _is_of_the_study(override)]
        groups = tuple(override.input_line or "" for override in parsed if not self._is_value(override))
        return groups, [override for override in parsed if self._is_value(override)]

    @contextlib.contextmanager
    def _explained(self, overrides: Sequence[str]) -> Iterator[None]:
        try:
            yield
        except REFUSALS as error:
            of_command, of_variant = (
                explain(error, [self._parse(override) for override in words])
                for words in (self._arguments, overrides)
            )
            if isinstance(error, MissingConfigException | OmegaConfBaseException):  # affects every variant
                raise Mistake(of_command) from error
            raise NotComposed(of_command, of_variant) from error

    def _compose(self, overrides: Overrides) -> dict[str, Any]:
        """Hydra's config for these overrides, as plain values. Results and errors are both remembered."""
        if overrides not in self._composed:
            try:
                config = self._loader.load_sweep_config(self._config, list(overrides))
                self._composed[overrides] = _plain(config)
            except REFUSALS as error:
                self._composed[overrides] = error
        composed = self._composed[overrides]
        if isinstance(composed, Exception):
            raise composed
        return composed

    def _parse(self, override: str) -> Override:
        if override not in self._parsed:
            self._parsed[override] = self._parser.parse_override(override)
        return self._parsed[override]

    def _is_value(self, override: Override) -> bool:
        """Whether the override sets one key, rather than choosing from a group."""
        key = override.key_or_group
        if key not in self._values:
            in_hydra = key.startswith("hydra") or "/" in key or override.type != OverrideType.CHANGE
            self._values[key] = not in_hydra and not self._loader.get_group_options(key)
        return self._values[key]


def _setting(override: Override) -> Setting:
    if not override.is_sweep_override():
        value = override.get_value_element_as_str()
        return Setting([YAML_WORDS.get(value, value)], swept=False)
    if not override.is_discrete_sweep():
        raise ConfigError(f"{override.input_line}: an interval has no values to try; list them, as 1,2,4")
    if isinstance(sweep := override.value(), RangeSweep):
        sweep.shuffle = False  # shuffling would generate all values before the first
    try:
        some = [*itertools.islice(override.sweep_string_iterator(), MOST_RUNS + 1)]
    except (ValueError, ArithmeticError) as error:  # a step of 0, or a bound that is no number
        raise ConfigError(f"{override.input_line}: not a range; write range(START,STOP,STEP)") from error
    if len(some) > MOST_RUNS:
        raise ConfigError(f"{override.input_line}: {TOO_MANY}")
    levels = [YAML_WORDS.get(level, level) for level in some]
    if not levels:
        raise ConfigError(f"{override.input_line}: the sweep is empty; list values, as 1,2,4")
    return Setting(levels, swept=True)


def _is_of_the_study(override: str) -> bool:
    """Whether the override concerns the study only, unlike study=NAME, whose YAML may set keys of runs."""
    return override.startswith(("size=", "study.", "++study."))


def _with(values: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    """A copy of `values` with one plain value replaced. Raises LookupError for what only Hydra can do."""
    first, *rest = path
    before = values[first]
    if isinstance(before, dict) != bool(rest) or isinstance(value, dict):
        raise LookupError(first)
    return values | {first: _with(before, rest, value) if rest else value}
