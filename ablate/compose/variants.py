"""Overrides to RunConfigs, one by one or the many of a sweep."""

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
MOST_RUNS = 100_000  # of one command: each is checked before the first begins
YAML_WORDS = {"True": "true", "False": "false"}  # Hydra writes these as Python does
TOO_MANY = f"a sweep has at most {MOST_RUNS:,}; sweep over a part of the values at a time"
Overrides = tuple[str, ...]  # of one run, as KEY=VALUE


def is_demonstration(config: DictConfig) -> bool:
    """What `size` asks for. Raises ConfigError."""
    if config.size not in SIZES:
        raise ConfigError(f"size={config.size}: not a choice{did_you_mean(str(config.size), SIZES)}")
    return config.size == "demo"


def to_run_config(config: DictConfig) -> RunConfig:
    """Where DictConfig ends. Raises ConfigError."""
    return read_run(_of_a_run(_plain(config)))


def _plain(config: DictConfig) -> dict[str, Any]:
    """All keys but Hydra's, as plain values, interpolations as they are written."""
    others = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    plain = OmegaConf.to_container(others, resolve=False)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _of_a_run(values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a run, each with its value."""
    if _is_open(values):
        resolved = OmegaConf.to_container(OmegaConf.create({**values}), resolve=True, throw_on_missing=True)
        assert isinstance(resolved, dict)
        values = {str(key): value for key, value in resolved.items()}
    return {key: value for key, value in values.items() if key not in NOT_OF_A_RUN}


def _is_open(value: Any) -> bool:
    """Whether there is an interpolation in it, or a value is missing."""
    if isinstance(value, Mapping):
        return any(map(_is_open, value.values()))
    return any(map(_is_open, value)) if isinstance(value, list) else "${" in str(value) or value == "???"


@dataclass(frozen=True)
class Setting:
    """The values of one key, as an override writes them. swept: given by commas, not one for all runs."""

    values: list[str]
    swept: bool


class Mistake(ConfigError):
    """A value that no run takes, whatever its other keys are: what is swept with it is no way out."""


class NotComposed(ConfigError):
    """Hydra can't compose a variant: why, in the words of the command, and in those of the variant alone."""

    def __init__(self, of_command: str, of_variant: str) -> None:
        super().__init__(of_command)
        self.of_variant = of_variant


class Composer:
    """The RunConfigs of a sweep. Hydra, which needs some 50 ms for each, composes once for each choice of
    groups; plain values are then set as Hydra would set them.

    arguments: the overrides of the whole command, in whose words errors are explained.
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
        """By key, the last override of each. Raises ConfigError."""
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
        """overrides: all of one run, as KEY=VALUE. Raises Mistake, NotComposed."""
        with self._explained(overrides):
            groups, settings = self._parted(overrides)
            values, others = self._compose(groups), []
            for setting in settings:
                try:
                    values = _with(values, setting.key_or_group.split("."), setting.value())
                except LookupError:
                    others.append(setting.input_line or "")
            if others:
                self._compose((*groups, *others))  # a key that is none is refused once for all variants
                values = _plain(self._loader.load_sweep_config(self._config, list(overrides)))
            values = _of_a_run(values)
        try:
            return read_run(values)
        except ConfigError as error:
            raise Mistake(str(error)) from error

    def is_plain(self, overrides: Sequence[str]) -> bool:
        """Whether no value follows from another, as in corpus.seed=${seed}. Raises Mistake, NotComposed."""
        with self._explained(overrides):
            groups, _ = self._parted(overrides)
            chosen = {key: value for key, value in self._compose(groups).items() if key not in NOT_OF_A_RUN}
            return not _is_open([*overrides, chosen])

    def _parted(self, overrides: Sequence[str]) -> tuple[Overrides, list[Override]]:
        """Those of a run that choose from groups, and those that set a value."""
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
            if isinstance(error, MissingConfigException | OmegaConfBaseException):  # of every variant
                raise Mistake(of_command) from error
            raise NotComposed(of_command, of_variant) from error

    def _compose(self, overrides: Overrides) -> dict[str, Any]:
        """What Hydra makes of them, which it is asked once, whether it refuses or not."""
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
        """Whether it sets one key, rather than choose from a group."""
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
        sweep.shuffle = False  # which would make all of its values before the first
    try:
        some = [*itertools.islice(override.sweep_string_iterator(), MOST_RUNS + 1)]
    except (ValueError, ArithmeticError) as error:  # a step of 0, or what is no number
        raise ConfigError(f"{override.input_line}: not a range; write range(START,STOP,STEP)") from error
    if len(some) > MOST_RUNS:
        raise ConfigError(f"{override.input_line}: {TOO_MANY}")
    levels = [YAML_WORDS.get(level, level) for level in some]
    if not levels:
        raise ConfigError(f"{override.input_line}: the sweep is empty; list values, as 1,2,4")
    return Setting(levels, swept=True)


def _is_of_the_study(override: str) -> bool:
    """Whether it says nothing of a run. The choice of a study may: its YAML is free to set keys of runs."""
    return override.startswith(("size=", "study.", "++study."))


def _with(values: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    """`values` with a plain value in the place of another. LookupError: all else is Hydra's to do."""
    first, *rest = path
    before = values[first]
    if isinstance(before, dict) != bool(rest) or isinstance(value, dict):
        raise LookupError(first)
    return values | {first: _with(before, rest, value) if rest else value}
