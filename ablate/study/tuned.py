"""The kind `tuned`: each arm at its own best value of a key, chosen on development seeds (tuning). The report
is on fresh seeds and the test split."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, ClassVar

from ablate.config.rules import AtLeast, ConfigError, Rule
from ablate.store.columns import on_validation, split_of
from ablate.store.record import Choice, Role
from ablate.study.config import Arm, Design, Overrides, Rows, Seeds, StudyConfig, combinations, seed_of
from ablate.study.tuning import Found, Search, at_value, tune

EXTENSIONS = 1  # octaves by which grids grow in most studies, for forecasts


@dataclass(frozen=True, kw_only=True)
class Tuned(StudyConfig):
    """tune: the key for which each arm gets its own value. develop: the seeds used to choose it. extend: by
    how many octaves the grid may grow on either side. per_level: by factor and level, what a level sets
    besides, as heads and train.steps at each size of the model, unless an arm sets it."""

    kind: ClassVar[str] = "tuned"
    example: ClassVar[str] = "tuned"

    tune: str
    develop: Seeds
    extend: Annotated[
        int, AtLeast(0), Rule(text="how often the grid may grow by half or twice the rate; use 0, 1, 2, …")
    ]
    per_level: Mapping[
        str, Annotated[Mapping[str, Arm], Rule(text="write levels, as {tiny: {heads: 4}}")]
    ] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, of_levels in self.per_level.items():
            where = f"study.per_level.{key}"
            if key not in self.factors:
                raise ConfigError(f"{where}: the study has no such factor; name one of its own")
            for level, arm in of_levels.items():
                if taken := sorted(arm.keys() & {*self.factors, self.tune, "seed"}):
                    raise ConfigError(f"{where}.{level}.{taken[0]}: the study sets it already; leave it out")

    @property
    def own_keys(self) -> set[str]:
        return super().own_keys | self.keys_of_levels

    @property
    def keys_of_levels(self) -> set[str]:
        """The keys that levels of factors set besides."""
        return {key for levels in self.per_level.values() for sets in levels.values() for key in sets}

    def arms_at(self, levels: Mapping[str, Sequence[str]]) -> list[Overrides]:
        """The arms, each with every combination of these levels and with what the levels set."""
        arms = list[Overrides]()
        for arm in combinations(levels, self.named_arms):
            sets, more = dict[str, str](override.split("=", 1) for override in arm), dict[str, str]()
            for key, of_levels in self.per_level.items():
                if (level := sets[key]) not in of_levels:
                    none = f"study.per_level says nothing of it; choose one of {', '.join(of_levels)}"
                    raise ConfigError(f"{key}={level}: {none}")
                more |= of_levels[level]
            arms.append((*arm, *(f"{key}={value}" for key, value in more.items() if key not in sets)))
        return arms

    @property
    def of_no_arm(self) -> list[str]:
        return ["seed", self.tune]

    @property
    def first_seed(self) -> int:
        return 1 + max(map(int, self.develop))

    def design(self, levels: Mapping[str, Sequence[str]]) -> "TunedDesign":
        key, metric = self.tune, self.metric
        if key not in levels:
            way_out = f"list powers of two of it, as {key}=1e-3,2e-3,4e-3"
            raise ConfigError(f"study.tune={key}: it has no grid; {way_out}")
        if split_of(metric) != "test" or on_validation(metric) == metric:
            why = "the validation split chooses the values of a tuned study, so it reports on the test split"
            raise ConfigError(f"study.metric={metric}: {why}; use test_loss")
        if used := [seed for seed in levels["seed"] if seed in self.develop]:
            why = "a development seed (study.develop) chose the values, so it can't report on them"
            raise ConfigError(f"seed={used[0]}: {why}; use fresh seeds")
        grid = _octaves(key, levels[key])
        factors = {k: values for k, values in levels.items() if k not in (key, "seed")}
        of = {"names": self.named_arms, "unnamed": self.keys_of_levels, "study": self}
        return TunedDesign({**levels, key: grid}, self.arms_at(factors), **of)


@dataclass(frozen=True, kw_only=True)
class TunedDesign(Design):
    """The design of a tuned study. study: what declares it. arms: overrides without the key and the seed, a
    name's first."""

    study: Tuned
    needs_test_split: ClassVar[bool] = True

    @cached_property
    def search(self) -> Search:
        """Where the values of the key are looked for."""
        study, metric = self.study, on_validation(self.study.metric)
        grid, seeds = self.levels[self.study.tune], study.develop
        return Search(key=self.study.tune, grid=grid, extend=study.extend, seeds=seeds, metric=metric)

    def found(self, rows: Rows) -> Found:
        return tune(self.search, self.arms, rows)

    def members(self, rows: Rows) -> dict[Overrides, list[Overrides]]:
        """First the grid on development seeds, then its extensions, then the report: each run with the arms
        at whose own value it reports, none for one of development."""
        now, search, key = self.found(rows), self.search, self.study.tune
        members = {run: list[Overrides]() for arm, of in now.points.items() for run in search.runs(arm, of)}
        for arm, choice in now.choices.items():
            for run in at_value(arm, key, choice.value, self.levels["seed"]) if choice.value else ():
                members.setdefault(run, []).append(arm)
        return members

    @property
    def compared(self) -> list[Overrides]:
        return [*self.arms]

    def first_runs(self, arm: Overrides) -> list[Overrides]:
        first = self.levels["seed"][:1]
        return [run for value in self.search.grid for run in at_value(arm, self.study.tune, value, first)]

    def arm_of(self, run: Overrides) -> Overrides:
        """The arm without the key and the seed, which `at_value` adds."""
        return run[:-2]

    def reporting(self, runs: Iterable[Overrides], rows: Rows) -> list[Overrides]:
        """Those of arms at their own values, but for development."""
        own = {arm: f"{self.study.tune}={choice.value}" for arm, choice in self.found(rows).choices.items()}
        report = (run for run in runs if seed_of(run) not in self.study.develop)
        return [run for run in report if own.get(self.arm_of(run)) == run[-2]]

    def roles(self, rows: Rows, ids: Mapping[Overrides, str]) -> tuple[dict[str, Role], dict[str, Choice]]:
        """The roles of the runs by run id, and the value chosen for each arm."""
        named: dict[str, list[str]] = {}
        for overrides, arms in self.members(rows).items():
            if overrides in ids:  # two arms may share one run
                named.setdefault(ids[overrides], []).extend(map(self.name, arms))
        roles = {
            run_id: Role(
                phase="report", role="tuned", tuned=self.study.tune, values={"tuned": [*dict.fromkeys(names)]}
            )
            if names
            else Role(phase="develop", role="", tuned=self.study.tune)
            for run_id, names in named.items()
        }
        return roles, {self.name(arm): choice for arm, choice in self.found(rows).choices.items()}

    def phase(self, rows: Rows) -> tuple[str, str, int]:
        """Development, round by round, and then the report."""
        now = self.found(rows)
        if now.choices:
            _, how, in_all = super().phase(rows)
            return "reporting seeds", how, in_all
        points = [len(of_arm) for of_arm in now.points.values()]
        octaves = min(EXTENSIONS, self.search.extend) if {*points} == {len(self.search.grid)} else 0
        develop = len(self.search.seeds) * (sum(points) + octaves * len(points))
        at, seeds = self.standing(rows), len(self.levels["seed"])
        at_most = self.looks.seeds_wanted(at, "most") if self.looks and at else {}
        report = sum(int(at_most.get(arm, seeds)) for arm in now.points)
        values = "rates" if self.study.tune == "train.lr" else f"values of {self.study.tune}"
        return f"{values}, {now.round}", "about ", develop + report

    def closing(self, rows: Rows) -> list[str]:
        """The chosen value, in one line per arm; or why nothing could be chosen."""
        now = self.found(rows)
        if now.waiting:
            count = f"{len(now.waiting)} development runs have no result, so nothing is tuned yet"
            return [f"{count}; the same command runs them again"]
        values = {arm: f"{self.study.tune}={of.value}" if of.value else "" for arm, of in now.choices.items()}
        said = {arm: [*filter(None, (values[arm], of.doubt))] for arm, of in now.choices.items()}
        return [f"{self.name(arm)}: {'; '.join(of)}" for arm, of in said.items()]


def _octaves(key: str, values: Sequence[str]) -> list[str]:
    """The values in order. Raises ConfigError unless each is twice the one before."""
    given = f"{key}={','.join(values)}"
    try:
        grid = sorted(values, key=float)
    except ValueError:
        raise ConfigError(f"{given}: a tuned key takes numbers; list powers of two") from None
    numbers = [float(value) for value in grid]
    doubles = (math.isclose(b / a, 2, rel_tol=0.02) for a, b in itertools.pairwise(numbers))
    if numbers[0] <= 0 or not all(doubles):
        raise ConfigError(f"{given}: in a tuned study each value has to be twice the one before")
    return grid
