"""Compose overrides into RunConfigs, for a single run or for the many runs of a sweep."""

import contextlib
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType, RangeSweep
from hydra.errors import MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ablate.compose.refusals import REFUSALS, explain, explained, plain
from ablate.config.identity import deciding
from ablate.config.read import hints
from ablate.config.rules import ConfigError, line_on
from ablate.config.schema import RunConfig, TrainConfig, read_run

# How overrides begin that concern the study only, unlike study=NAME, whose YAML may set keys of runs.
OF_THE_STUDY = ("study.", "++study.")
NOT_OF_A_RUN = ("hydra", "study")
UNSWEPT = {"name", "force", "device"} | {
    f"train.{key}" for key in hints(TrainConfig).keys() - deciding(TrainConfig)
}
MOST_RUNS = 100_000  # in one command, since each is checked before the first begins
YAML_WORDS = {"True": "true", "False": "false"}  # Hydra writes these as Python does
# facebookresearch/hydra#3228: the bounds of a range that runs downwards, or is to, are exchanged wrongly.
SORTED_RANGE = re.compile(r"\bsort\(.*\brange\(")
TOO_MANY = f"a sweep has at most {MOST_RUNS:,}; sweep over a part of the values at a time"
Overrides = tuple[str, ...]  # the overrides of one run, as KEY=VALUE
SEEDS = ("seed", "seeds.backbone", "seeds.fusion", "seeds.data")
WHOLE = re.compile(r"[+-]?(0|[1-9]\d{0,999})")  # what Hydra reads as a whole number
T = TypeVar("T")


def to_run_config(config: DictConfig) -> RunConfig:
    """The RunConfig of a composed DictConfig. Raises ConfigError."""
    return read_run(_of_a_run(plain(config)))


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
    choice of groups; plain values are then set here, as Hydra would set them. Runs that differ only in seeds
    are composed once.

    arguments: the overrides of the whole command, which error messages refer to. is_whole: whether the config
    is that of a run already, so that it need not be composed for one without further overrides.
    """

    def __init__(
        self,
        config: DictConfig,
        loader: ConfigLoader,
        arguments: Sequence[str] = (),
        *,
        is_whole: bool = False,
    ) -> None:
        self._config = config
        self._loader = loader
        self._parser = OverridesParser.create(config_loader=loader)
        self._arguments = arguments
        self._is_whole = is_whole
        self._parse = functools.cache(self._parser.parse_override)
        self.options = functools.cache(loader.get_group_options)  # the choices of a group of configs
        self._compose = remembered(self._composed)
        self._follows_no_seed = remembered(self._is_plain)
        self._of_variant = remembered(self)

    def settings(self, overrides: Iterable[str]) -> dict[str, Setting]:
        """The settings by key; the last override of a key counts. Raises ConfigError."""
        with explained([]):
            parsed = self._parser.parse_overrides([*overrides])
            settings = {override.get_key_element(): _setting(override) for override in parsed}
        several = {key: of.values for key, of in settings.items() if len(of.values) > 1}
        for key, values in several.items():
            if key in UNSWEPT or key.lstrip("+").startswith("study."):
                given = f"{key.lstrip('+')}={','.join(values)}"
                raise ConfigError(f"{given}: it makes no variants; give one value")
        if (runs := math.prod(map(len, several.values()))) > MOST_RUNS:
            sizes = " × ".join(f"{len(values):,} of {key}" for key, values in several.items())
            raise ConfigError(f"{runs:,} runs ({sizes}): {TOO_MANY}")
        return settings

    def __call__(self, overrides: Sequence[str]) -> RunConfig:
        """The RunConfig of one run. overrides: all of its overrides. Raises Mistake, NotComposed."""
        with self._explained(overrides):
            groups, settings = self._split_groups(overrides)
            values, others = self._compose(groups), []
            for setting in settings:
                try:
                    values = _with(values, setting.key_or_group.split("."), setting.value())
                except LookupError:
                    others.append(setting.input_line or "")
            if others:
                self._compose((*groups, *others))  # refuses an unknown key once for all variants
                values = self._composed(tuple(overrides))
            values = _of_a_run(values)
        try:
            return read_run(values)
        except ConfigError as error:
            raise Mistake(str(error)) from error

    def split_seeds(self, overrides: Overrides) -> tuple[Overrides, dict[str, int]]:
        """The variant, which is the overrides without seeds, and the seeds by key. If a seed is not a number,
        or another key depends on it, the seeds stay among the overrides. Raises Mistake, NotComposed."""
        variant, seeds = [], {}
        for override in overrides:
            key, _, value = override.partition("=")
            if key not in SEEDS:
                variant.append(override)
            elif WHOLE.fullmatch(value):
                seeds[key] = int(value)
            else:
                return overrides, {}
        return (tuple(variant), seeds) if self._follows_no_seed(tuple(variant)) else (overrides, {})

    def with_seeds(self, variant: Overrides, seeds: Mapping[str, int]) -> RunConfig:
        """The RunConfig of a variant with these seeds, as of `split_seeds`. Raises Mistake, NotComposed."""
        config = self._of_variant(variant)
        streams = {key.removeprefix("seeds."): value for key, value in seeds.items() if key != "seed"}
        own = replace(config.seeds, **streams) if streams else config.seeds
        return replace(config, seed=seeds.get("seed", config.seed), seeds=own)

    def _is_plain(self, overrides: Sequence[str]) -> bool:
        """Whether no value is an interpolation, as corpus.seed=${seed} is. Raises Mistake, NotComposed."""
        with self._explained(overrides):
            groups, _ = self._split_groups(overrides)
            chosen = {key: value for key, value in self._compose(groups).items() if key not in NOT_OF_A_RUN}
            return not _is_open([*overrides, chosen])

    def _split_groups(self, overrides: Sequence[str]) -> tuple[Overrides, list[Override]]:
        """The overrides of a run that choose from groups, and those that set a value."""
        parsed = [self._parse(override) for override in overrides if not override.startswith(OF_THE_STUDY)]
        groups = tuple(override.input_line or "" for override in parsed if not self._is_value(override))
        return groups, [override for override in parsed if self._is_value(override)]

    @contextlib.contextmanager
    def _explained(self, overrides: Sequence[str]) -> Iterator[None]:
        parsed: list[Override] = []
        try:
            parsed += map(self._parse, overrides)
            yield
        except REFUSALS as error:
            of_command = explain(error, [*map(self._parse, self._arguments)])
            of_variant = explain(error, parsed, name_values=False)
            is_gone = of_variant in {line_on(one.key_or_group) for one in parsed}
            if is_gone or isinstance(error, MissingConfigException | OmegaConfBaseException):
                raise Mistake(of_command) from error  # affects every variant
            raise NotComposed(of_command, of_variant) from error

    def _composed(self, overrides: Overrides) -> dict[str, Any]:
        """Hydra's config for these overrides, as plain values."""
        if self._is_whole and not overrides:
            return plain(self._config)
        of_command = self._config.hydra  # its settings, which hold for every run
        words = [*of_command.overrides.hydra, *overrides]
        config_name = of_command.job.config_name
        return plain(self._loader.load_configuration(config_name, words, run_mode=RunMode.RUN))

    def _is_value(self, override: Override) -> bool:
        """Whether the override sets one key, rather than choosing from a group."""
        key = override.key_or_group
        if key.startswith("hydra"):
            raise Mistake(f"{override.input_line}: Hydra's settings hold for a whole sweep; leave it out")
        return not ("/" in key or override.type != OverrideType.CHANGE or self.options(key))


def remembered(function: Callable[[Overrides], T]) -> Callable[[Overrides], T]:
    """The function, which for the same overrides returns or raises what it did the first time."""
    outcomes: dict[Overrides, T | Exception] = {}

    def outcome_of(overrides: Overrides) -> T:
        if overrides not in outcomes:
            try:
                outcomes[overrides] = function(overrides)
            except Exception as error:
                outcomes[overrides] = error
        outcome = outcomes[overrides]
        if isinstance(outcome, Exception):
            raise outcome.with_traceback(None)
        return outcome

    return outcome_of


def _setting(override: Override) -> Setting:
    if not override.is_sweep_override():
        value = override.get_value_element_as_str()
        return Setting([YAML_WORDS.get(value, value)], swept=False)
    if not override.is_discrete_sweep():
        raise ConfigError(f"{override.input_line}: an interval has no values to try; list them, as 1,2,4")
    if SORTED_RANGE.search(override.input_line or ""):
        raise ConfigError(
            f"{override.input_line}: Hydra sorts a range into other numbers; write the range as it is to run,"
            " as range(0,6,2), or range(4,-1,-2)"
        )
    if isinstance(sweep := override.value(), RangeSweep):
        sweep.shuffle = False  # shuffling would generate all values before the first
    try:
        some = [*itertools.islice(override.sweep_string_iterator(), MOST_RUNS + 1)]
    except (ValueError, ArithmeticError) as error:  # a step of 0, or a bound that is no number
        raise ConfigError(f"{override.input_line}: not a range; write range(START,STOP,STEP)") from error
    if len(some) > MOST_RUNS:
        raise ConfigError(f"{override.input_line}: {TOO_MANY}")
    levels = [*dict.fromkeys(YAML_WORDS.get(level, level) for level in some)]
    if not levels:
        raise ConfigError(f"{override.input_line}: the sweep is empty; list values, as 1,2,4")
    return Setting(levels, swept=True)


def _with(values: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    """A copy of `values` with one plain value replaced. Raises LookupError for what only Hydra can do."""
    first, *rest = path
    before = values[first]
    if isinstance(before, dict) != bool(rest) or isinstance(value, dict):
        raise LookupError(first)
    return values | {first: _with(before, rest, value) if rest else value}
