"""A duel: a tuned study of two methods at equal parameters on one text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from ablate.analysis.compare import PLANNED, Comparison, compare
from ablate.analysis.contrasts import equal_forms
from ablate.analysis.load import load
from ablate.analysis.speed import step_times
from ablate.compose.configs import defaults_of
from ablate.compose.sweep import Sweep
from ablate.config.contrast import MARGIN
from ablate.config.rules import ConfigError, as_value, did_you_mean
from ablate.config.schema import PARTS, STANDARD_FUSION, STANDARD_SCORES
from ablate.execution.plugins import KINDS, Method, methods, read
from ablate.execution.run import Run, resolve
from ablate.files.atomic import digest
from ablate.phrases import counted
from ablate.reporting.answers import answer
from ablate.reporting.cells import step_ratio
from ablate.store.store import Store
from ablate.study.run import declared_here
from ablate.study.study import settings as variants_of

BUDGET = {"corpus": "study", "train": "study"}  # text and training, where nothing else is given
DEVELOP, RATES = [0, 1, 2, 3, 4], [0.006, 0.012, 0.024]
FIRST_SEED = 1000  # that reports
TAKEN = ("name", "seed", "seeds", "study", "force", "hydra/sweeper")  # keys that a duel sets


@dataclass(frozen=True)
class Side:
    """A side of a duel. options: those of its method that are its own, common: those that both sides have, in
    the syntax of overrides."""

    method: Method
    options: Mapping[str, str] = field(default_factory=dict)
    common: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """gated per=channel"""
        of_method = (f"{key.partition('.')[2]}={value}" for key, value in self.options.items())
        return " ".join([self.method.name, *of_method])

    @property
    def arm(self) -> dict[str, str]:
        """What the side sets, with the standard part of the other kind, and at equal parameters."""
        chosen = {"fusion": STANDARD_FUSION, "scores": STANDARD_SCORES, self.method.kind: self.method.name}
        return {**chosen, **self.common, **self.options, "match": "params"}

    @property
    def defaults(self) -> dict[str, str]:
        """All options of the method, with their defaults."""
        kind, name = self.method.kind, self.method.name
        options = defaults_of(kind, name, KINDS[kind].methods()[name].Options)
        return {f"{kind}.{option}": as_value(value) for option, value in options.items()}


class Duel:
    """The duel of `one` against `other`, the baseline. settings: overrides of every run. command: what was
    typed; another command, as with more seeds, is another duel with fresh ones. study: its name in the
    store. Raises ConfigError."""

    def __init__(self, one: Side, other: Side, settings: Sequence[str], command: str) -> None:
        of_both = [setting for setting in settings if setting.partition(".")[0] in PARTS]
        settings = [setting for setting in settings if setting not in of_both]
        self.one, self.other = _with_options(one, other, of_both)
        if self.one.arm == self.other.arm:
            raise ConfigError(
                f"{self.one.name}: a method can't be in a duel with itself; name another one, or give one of"
                " them an option with --a or --b"
            )
        keys = [setting.lstrip("+~").partition("=")[0] for setting in settings]
        taken = (one.method.kind, other.method.kind, "train.lr", "match")
        for setting, key in zip(settings, keys, strict=True):
            if key.partition(".")[0] in TAKEN or key in taken:
                raise ConfigError(f"{setting}: a duel sets {key} itself; leave it out")
        named = digest([self.one.arm, self.other.arm, sorted(settings), command])
        self.study = f"duel-{one.method.name}-{other.method.name}-{named[:6]}"
        self.first_seed = FIRST_SEED + int(named[:6], 16)
        budget = [f"{key}={value}" for key, value in BUDGET.items() if key not in keys]
        self._sweep = declared_here({}, [f"name={self.study}", *budget, *settings], command=command)
        options = [[f"{key}={value}" for key, value in a.options.items()] for a in (self.one, self.other)]
        for given in (settings, of_both, *options):
            for key, values in self._sweep.configs.levels(given).items():
                if len(values) > 1:
                    raise ConfigError(
                        f"{key}={','.join(values)}: a duel has one value on both sides; give one"
                    )

    def sweep(self, seeds: int) -> Sweep:
        """The study of the two with so many reporting seeds. Raises ConfigError if they are one function."""
        if len({*equal_forms(variants_of(self._runs))}) == 1:
            raise ConfigError(
                f"{self.one.name} and {self.other.name} are the same function here, so there is nothing to"
                " compare; name another method, or change a setting such as heads"
            )
        one, other = self.one, self.other
        study = {
            **{"kind": "tuned", "question": f"Is {one.name} better than {other.name}?"},
            "arms": {other.name: other.arm, one.name: one.arm},
            **{"tune": "train.lr", "factors": {"train.lr": RATES}},
            **{"develop": DEVELOP, "extend": 3, "metric": "test_loss", "margin": MARGIN, "looks": []},
            "seeds": [*range(self.first_seed, self.first_seed + seeds)],
            "primary": [f"{one.name} - {other.name}"],
        }
        return replace(self._sweep, study=study)

    def result(self) -> tuple[Comparison, list[str]]:
        """The comparison of the two once all runs are finished, with its answer and what to do next. Raises
        ConfigError."""
        results = load([self.study])
        comparison = compare(results.rows, records=results.records)
        parts = answer(comparison, results.records, results.notes)
        found = [*parts.findings, parts.trust, parts.robust, *self._step(comparison)]
        return comparison, [" ".join(filter(None, found)), *map(str, parts.next)]

    def _step(self, comparison: Comparison) -> list[str]:
        """A sentence on how long a training step of `one` takes relative to `other`, taking turns here; none
        if nothing was compared, or no model was trained."""
        from ablate.execution.timing import StepTimer  # loads torch

        if self._runs[0].is_simulated:
            return []
        table = comparison.table_of(PLANNED)
        runs = {variant: comparison.runs[variant] for variant in table["variant"]}
        timed = step_times(table, StepTimer(runs, [Store()]))
        ratios = filter(None, map(step_ratio, timed.to_dict("records")))
        return [f"A training step of {self.one.name} takes {ratio} times as long." for ratio in ratios]

    @cached_property
    def _runs(self) -> tuple[Run, Run]:
        """A run of `one` and one of `other`. Raises ConfigError if a side can't be built or matched."""
        one, other = (
            resolve(self._sweep.configs((*self._sweep.arguments, *(f"{k}={v}" for k, v in a.arm.items()))))
            for a in (self.one, self.other)
        )
        return one, other


def side(given: str, options: Sequence[str] = ()) -> Side:
    """The method of this name, or of this plugin file, which has to be in use, with options of its own, as
    KEY=VALUE. Raises ConfigError."""
    mine = Side(_method(given))
    for option in options:
        key, _, value = option.partition("=")
        if key not in mine.defaults:
            choices = did_you_mean(key, mine.defaults) if mine.defaults else "; it has none"
            raise ConfigError(f"{option}: no option of {mine.method.name}{choices}")
        mine = replace(mine, options={**mine.options, key: value})
    return mine


def _method(given: str) -> Method:
    if given.endswith(".py"):
        own = methods([read(Path(given))])
        if len(own) != 1:
            raise ConfigError(f"{given}: {counted(len(own), 'method')} in it; a duel takes a file with one")
        return own[0]
    known = [Method(kind, name) for kind, folder in KINDS.items() for name in folder.methods()]
    for method in known:
        if method.name == given:
            return method
    if Path(f"{given}.py").is_file():
        raise ConfigError(f"{given}: no such method, but {given}.py is here; name that")
    raise ConfigError(f"{given}: no such method{did_you_mean(given, [one.name for one in known])}")


def _with_options(one: Side, other: Side, of_both: Sequence[str]) -> tuple[Side, Side]:
    """Both sides with the options that are given for both; what one of them sets, the other spells out if it
    has it. Raises ConfigError."""
    given = {key: value for key, _, value in (option.partition("=") for option in of_both)}
    for key, value in given.items():
        having = [(flag, a) for flag, a in (("--a", one), ("--b", other)) if key in a.defaults]
        if len(having) < 2:
            lacking = " and ".join(a.method.name for a in (one, other) if key not in a.defaults)
            alone = [f"; for {a.method.name} alone, write {flag} {key}={value}" for flag, a in having]
            raise ConfigError(f"{key}={value}: no option of {lacking}{''.join(alone) or '; leave it out'}")
    own = {**one.options, **other.options}
    common = {key: value for key, value in given.items() if key not in own}
    one, other = (
        Side(a.method, {k: {**a.defaults, **given, **a.options}[k] for k in own if k in a.defaults}, common)
        for a in (one, other)
    )
    return one, other
