"""The kind `tuned`: each arm at its own best value of a key, chosen on development seeds (tuning). The report
is on fresh seeds and the test split."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, ClassVar

from ablate.config.conditions import column_for
from ablate.config.rules import AtLeast, ConfigError, Rule
from ablate.store.columns import Row, column_named, on_validation
from ablate.store.record import Choice, Role, keys_of_levels
from ablate.study.config import (
    Absent,
    Arm,
    Design,
    Overrides,
    Rows,
    Seeds,
    StudyConfig,
    combinations,
    seed_of,
)
from ablate.study.tuning import Found, Search, at_value, tune

EXTENSIONS = 1  # octaves by which grids grow in most studies, for forecasts


@dataclass(frozen=True, kw_only=True)
class Tuned(StudyConfig):
    """tune: the key for which each arm gets its own value. develop: the seeds used to choose it. extend: by
    how many octaves the grid may grow on either side. tune_at: levels of factors at which values are chosen,
    for all levels of these. per_level: by factor and level, what a level sets besides, as heads and
    train.steps at each size of the model, unless an arm sets it."""

    kind: ClassVar[str] = "tuned"
    example: ClassVar[str] = "tuned"

    tune: str
    develop: Seeds
    extend: Annotated[
        int, AtLeast(0), Rule(text="how often the grid may grow by half or twice the rate; use 0, 1, 2, …")
    ]
    tune_at: Arm = field(default_factory=dict)
    per_level: Mapping[
        str, Annotated[Mapping[str, Arm], Rule(text="write levels, as {tiny: {heads: 4}}")]
    ] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, of_levels in self.per_level.items():
            if key not in self.factors:
                raise ConfigError(f"study.per_level.{key}: the study has no such factor; name one of its own")
            if key in self.tune_at:
                raise ConfigError(
                    f"study.tune_at.{key}: its levels set more (study.per_level), so each has values of its"
                    " own; leave it out"
                )
            for level, arm in of_levels.items():
                if taken := sorted(arm.keys() & {*self.factors, self.tune, "seed"}):
                    raise ConfigError(
                        f"study.per_level.{key}.{level}.{taken[0]}: the study sets it already; leave it out"
                    )

    @property
    def own_keys(self) -> set[str]:
        return super().own_keys | keys_of_levels(self.per_level)

    def arms_at(self, levels: Mapping[str, Sequence[str]]) -> list[Overrides]:
        """The arms, each with every combination of these levels and with what the levels set."""
        return [self._whole(arm) for arm in combinations(levels, self.named_arms)]

    def _whole(self, arm: Overrides) -> Overrides:
        sets = dict[str, str](override.split("=", 1) for override in arm)
        more = dict[str, str]()
        for key, of_levels in self.per_level.items():
            if (level := sets[key]) not in of_levels:
                raise ConfigError(
                    f"{key}={level}: study.per_level says nothing of it; choose one of {', '.join(of_levels)}"
                )
            more |= of_levels[level]
        return (*arm, *(f"{key}={value}" for key, value in more.items() if key not in sets))

    @property
    def of_no_arm(self) -> set[str]:
        return {"seed", self.tune}

    @property
    def first_seed(self) -> int:
        return 1 + max(map(int, self.develop))

    @property
    def free(self) -> list[str]:
        return [column_for(self.tune)]

    def design(self, levels: Mapping[str, Sequence[str]]) -> "TunedDesign":
        key = self.tune
        if key not in levels:
            raise ConfigError(
                f"study.tune={key}: it has no grid; list powers of two of it, as {key}=1e-3,2e-3,4e-3"
            )
        if column_named(self.metric).split != "test" or on_validation(self.metric) == self.metric:
            raise ConfigError(
                f"study.metric={self.metric}: the validation split chooses the values of a tuned study, so it"
                " reports on the test split; use test_loss"
            )
        if used := [seed for seed in levels["seed"] if seed in self.develop]:
            raise ConfigError(
                f"seed={used[0]}: a development seed (study.develop) chose the values, so it can't report on"
                " them; use fresh seeds"
            )
        grid = _octaves(key, levels[key])
        factors = {k: values for k, values in levels.items() if k not in (key, "seed")}
        if unknown := sorted(self.tune_at.keys() - {*self.factors} | {*self.tune_at} & {key}):
            why = "it is what is tuned" if unknown[0] == key else "the study has no such factor"
            raise ConfigError(f"study.tune_at.{unknown[0]}: {why}; name a factor, with one of its levels")
        return TunedDesign({**levels, key: grid}, self.arms_at(factors), self.named_arms, study=self)


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
        grid, seeds = self.levels[self.key], study.develop
        return Search(key=self.key, grid=grid, extend=study.extend, seeds=seeds, metric=metric)

    @property
    def key(self) -> str:
        return self.study.tune

    def tuned_as(self, arm: Overrides) -> Overrides:
        """The arm whose value it takes: itself, but at the levels of tune_at."""
        each = [(override, override.partition("=")[0]) for override in arm]
        at = self.study.tune_at
        return tuple(f"{key}={at[key]}" if key in at else override for override, key in each)

    def found(self, rows: Rows) -> Found:
        return tune(self.search, [*dict.fromkeys(map(self.tuned_as, self.arms))], rows)

    def choices(self, rows: Rows) -> dict[Overrides, Choice]:
        """The value of each arm, as far as it is chosen."""
        return self._of_arms(self.found(rows))

    def _of_arms(self, found: Found) -> dict[Overrides, Choice]:
        chosen = found.choices
        return {arm: chosen[of] for arm in self.arms if (of := self.tuned_as(arm)) in chosen}

    def members(self, rows: Rows) -> dict[Overrides, list[Overrides]]:
        """First the grid on development seeds, then its extensions, then the report: each run with the arms
        at whose own value it reports, none for one of development."""
        now = self.found(rows)
        members: dict[Overrides, list[Overrides]] = {
            run: [] for arm, points in now.points.items() for run in self.search.runs(arm, points)
        }
        for arm, choice in self._of_arms(now).items():
            for run in at_value(arm, self.key, choice.value, self.levels["seed"]) if choice.value else ():
                members.setdefault(run, []).append(arm)
        return members

    @property
    def compared(self) -> list[Overrides]:
        return [*self.arms]

    def first_runs(self, arm: Overrides) -> list[Overrides]:
        first = self.levels["seed"][:1]
        return [run for value in self.search.grid for run in at_value(arm, self.key, value, first)]

    def arm_of(self, run: Overrides) -> Overrides:
        """The arm without the key and the seed, which `_at` adds."""
        return run[:-2]

    def results(self, rows: Rows) -> dict[tuple[Overrides, str], Row]:
        """The rows of arms at their own values."""
        chosen = {arm: f"{self.key}={choice.value}" for arm, choice in self.choices(rows).items()}
        return {(run[:-2], seed_of(run)): row for run, row in rows.items() if chosen.get(run[:-2]) == run[-2]}

    def reporting(self, ids: Mapping[Overrides, str], rows: Rows) -> dict[Overrides, list[str]]:
        own = {arm: f"{self.key}={choice.value}" for arm, choice in self.choices(rows).items()}
        runs: dict[Overrides, list[str]] = {}
        for run, run_id in ids.items():
            if own.get(run[:-2]) == run[-2] and seed_of(run) not in self.study.develop:
                runs.setdefault(run[:-2], []).append(run_id)
        return runs

    def roles(self, rows: Rows, ids: Mapping[Overrides, str]) -> tuple[dict[str, Role], dict[str, Choice]]:
        """The roles of the runs by run id, and the value chosen for each arm."""
        named: dict[str, list[str]] = {}
        for overrides, arms in self.members(rows).items():
            if overrides in ids:  # two arms may share one run
                named.setdefault(ids[overrides], []).extend(map(self.name, arms))
        roles = {
            run_id: Role(
                phase="report", role="tuned", tuned=self.key, values={"tuned": [*dict.fromkeys(names)]}
            )
            if names
            else Role(phase="develop", role="", tuned=self.key)
            for run_id, names in named.items()
        }
        return roles, {self.name(arm): choice for arm, choice in self.choices(rows).items()}

    def phase(self, rows: Rows) -> tuple[str, str, int]:
        """Development, round by round, and then the report."""
        now = self.found(rows)
        known = len({run for run, row in rows.items() if row["status"] != Absent.EXCLUDED})
        if now.choices:
            how = "at most " if self.looks else ""
            return "reporting seeds", how, known + len(self._up_to("most", rows))
        points = [len(of_arm) for of_arm in now.points.values()]
        octaves = min(EXTENSIONS, self.search.extend) if {*points} == {len(self.search.grid)} else 0
        develop = len(self.search.seeds) * (sum(points) + octaves * len(points))
        return f"{self.values}, {now.round}", "about ", develop + self._most_reporting(now, rows)

    @property
    def values(self) -> str:
        return "rates" if self.key == "train.lr" else f"values of {self.key}"

    def costs(self, rows: Rows) -> dict[str, tuple[int, int]]:
        now = self.found(rows)
        develop = len(now.points) * len(self.search.seeds)
        most = self._most_reporting(now, rows)
        least, _ = super().costs(rows).get("report", (most, most))
        return {
            self.values: (develop * len(self.search.grid), develop * self.search.most),
            "report": (least, most),
        }

    @property
    def later(self) -> dict[str, list[Overrides]]:
        return {"report": self.compared} if self.study.tune_at else {}

    def _most_reporting(self, now: Found, rows: Rows) -> int:
        """The most runs that report."""
        now_at, seeds = self.standing(rows), len(self.levels["seed"])
        at_most = self.looks.seeds_wanted(now_at, "most") if self.looks and now_at else {}
        reporting = [arm for arm in self.arms if self.tuned_as(arm) in now.points]
        return sum(int(at_most.get(arm, seeds)) for arm in reporting)

    def closing(self, rows: Rows) -> list[str]:
        """The chosen value, in one line per arm; or why nothing could be chosen."""
        now = self.found(rows)
        if now.waiting:
            return [
                f"{len(now.waiting)} development runs have no result, so nothing is tuned yet;"
                " the same command runs them again"
            ]
        lines = []
        for arm, choice in now.choices.items():
            value = f"{self.key}={choice.value}" if choice.value else ""
            lines.append(f"{self.name(arm)}: {'; '.join(filter(None, (value, choice.doubt)))}")
        return lines

    def tells_apart(self, override: str) -> bool:
        return override.partition("=")[0] not in keys_of_levels(self.study.per_level)


# --- helpers ----------------------------------------------------------------------------------------


def _octaves(key: str, values: Sequence[str]) -> list[str]:
    """The values in order. Raises ConfigError unless each is twice the one before."""
    try:
        grid = sorted(values, key=float)
    except ValueError:
        raise ConfigError(
            f"{key}={','.join(values)}: a tuned key takes numbers; list powers of two"
        ) from None
    numbers = [float(value) for value in grid]
    doubles = (math.isclose(b / a, 2, rel_tol=0.02) for a, b in itertools.pairwise(numbers))
    if numbers[0] <= 0 or not all(doubles):
        raise ConfigError(
            f"{key}={','.join(values)}: in a tuned study each value has to be twice the one before"
        )
    return grid
