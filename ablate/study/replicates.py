"""Prepare the runs of a sweep. Runs that differ only in seeds are composed and prepared once."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple, TypeVar

from ablate.compose.variants import Composer, Overrides
from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig
from ablate.execution.prepare import Prepared
from ablate.execution.run import Resolved

SEEDS = ("seed", "seeds.backbone", "seeds.fusion", "seeds.data")
WHOLE = re.compile(r"[+-]?(0|[1-9]\d{0,999})")  # what Hydra reads as a whole number
T = TypeVar("T")
R = TypeVar("R", bound=Resolved)


class Replicate(NamedTuple):
    """A run as a variant, the overrides without seeds, and its seeds by key. If a seed is not a number, or
    another key depends on it, the seeds stay among the overrides."""

    variant: Overrides
    seeds: dict[str, int]


class Replicates:
    """Composes and prepares the runs of a sweep, once per variant; errors are remembered and raised again.

    elsewhere: other machines will train the runs, so they are only resolved.
    """

    def __init__(self, compose: Composer, *, elsewhere: bool) -> None:
        self._compose = compose
        self._elsewhere = elsewhere
        self._is_plain: dict[Overrides, bool | ConfigError] = {}
        self._configs: dict[Overrides, RunConfig | ConfigError] = {}
        self._prepared: dict[Overrides, Prepared | ConfigError] = {}

    def of(self, overrides: Overrides) -> Replicate:
        """The replicate for all overrides of one run. Raises NotComposed."""
        variant, seeds = [], {}
        for override in overrides:
            key, _, value = override.partition("=")
            if key not in SEEDS:
                variant.append(override)
            elif WHOLE.fullmatch(value):
                seeds[key] = int(value)
            else:
                return Replicate(overrides, {})
        variant = tuple(variant)
        plain = _once(self._is_plain, variant, self._compose.is_plain)
        return Replicate(variant, seeds) if plain else Replicate(overrides, {})

    def config(self, replicate: Replicate) -> RunConfig:
        """The config of a replicate. Raises ConfigError, NotComposed."""
        config, seeds = _once(self._configs, replicate.variant, self._compose), {**replicate.seeds}
        seed = seeds.pop("seed", config.seed)
        streams = {key.removeprefix("seeds."): value for key, value in seeds.items()}
        return replace(config, seed=seed, seeds=replace(config.seeds, **streams) if streams else config.seeds)

    def run(self, variant: Overrides, config: RunConfig) -> Resolved:
        """The prepared run. config: of a replicate of this variant. Raises ConfigError."""
        prepared = _once(self._prepared, variant, lambda _: Prepared(config, elsewhere=self._elsewhere))
        return prepared.with_seeds(config)


def one_of_each(runs: Iterable[R]) -> list[tuple[R, int]]:
    """One run of each kind, with how many there are; runs that differ only in seeds share their spec
    object."""
    kinds: dict[int, R] = {}
    counts = Counter[int]()
    for run in runs:
        kinds.setdefault(id(run.spec), run)
        counts[id(run.spec)] += 1
    return [(run, counts[spec]) for spec, run in kinds.items()]


def _once(known: dict[Overrides, T | ConfigError], variant: Overrides, make: Callable[[Overrides], T]) -> T:
    if variant not in known:
        try:
            known[variant] = make(variant)
        except ConfigError as error:
            known[variant] = error
    found = known[variant]
    if isinstance(found, ConfigError):
        raise found.with_traceback(None)
    return found
