"""The kind `tuned`: each arm at its own best value of a key, chosen on development seeds.

Comparing arms at one learning rate compares how well that rate suits them; taking the best of a few rates for
each arm calls equal arms different in 7–97 % of studies, by how steep their curves are. So every arm is
trained over one grid of powers of two, on development seeds, and evaluated on the validation split. Its value
is the minimum of a parabola fitted to its mean loss in log2 of the key. The report is on fresh seeds and the
test split.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

import numpy as np

from ablate.config.rules import AtLeast, ConfigError, Meaning
from ablate.phrases import only_if
from ablate.store.columns import HIGHER_IS_BETTER
from ablate.store.record import Choice, Role
from ablate.store.status import RESULTS
from ablate.study.declared import Declared, Seeds
from ablate.study.design import Absent, Overrides, Rows, combinations
from ablate.study.kinds.baselines import Baseline, baseline_of, parted, read_baseline
from ablate.study.kinds.parabola import minimum

DIGITS = 4  # significant digits of a chosen value, so that it is the same override on every machine
SETTLED = (*RESULTS, Absent.LEFT_OUT)


@dataclass(frozen=True, kw_only=True)
class Tuned(Declared):
    """tune: the key for which each arm gets its own value. develop: the seeds used to choose it. extend: by
    how many octaves the grid may grow on either side. report_at: the values at which arms report: their own
    (tuned), that of their baseline, and an octave to either side of their own."""

    kind: ClassVar[str] = "tuned"
    example: ClassVar[str] = "tuned"

    tune: str
    develop: Seeds
    extend: Annotated[int, AtLeast(0), Meaning("how many octaves the grid may grow by; use 0, 1, 2, …")]
    report_at: Annotated[
        list[Literal["tuned", "baseline_rate", "octaves"]],
        Meaning("write [tuned], with baseline_rate and octaves if arms are to report there too"),
    ] = field(default_factory=lambda: ["tuned", "baseline_rate", "octaves"])

    def design(self, levels: Mapping[str, Sequence[str]]) -> "Tuning":
        key = self.tune
        if key not in levels:
            raise ConfigError(
                f"study.tune={key}: it has no grid; list powers of two of it, as {key}=1e-3,2e-3,4e-3"
            )
        if not self.metric.startswith("test_"):
            raise ConfigError(
                f"study.metric={self.metric}: the validation split chooses the values of a tuned study, so it"
                " reports on the test split; use test_loss"
            )
        report = list(dict.fromkeys(levels["seed"]))
        if used := [seed for seed in report if seed in self.develop]:
            raise ConfigError(
                f"seed={used[0]}: a development seed (study.develop) chose the values, so it can't report on"
                " them; use fresh seeds"
            )
        of_arms = self.set_by_arms
        for baseline in (baselines := [read_baseline(contrast, of_arms) for contrast in self.primary]):
            of_factors = {k: v for k, v in baseline.values.items() if k not in of_arms}
            if lacking := [
                f"{k}={v}" for k, v in of_factors.items() if k == key or v not in levels.get(k, ())
            ]:
                raise ConfigError(
                    f"study.primary: the baseline {lacking[0]} is no level of the study's factors"
                )
        grid = _octaves(key, levels[key])
        factors = {k: values for k, values in levels.items() if k not in (key, "seed")}
        return Tuning(
            key=key,
            grid=grid,
            levels={**levels, key: grid},
            arms=combinations(factors, self.named_arms),
            named=self.named_arms,
            baselines=baselines,
            develop=self.develop,
            report=report,
            report_at=self.report_at,
            extend=self.extend,
            metric=self.metric.replace("test_", "val_"),
        )


@dataclass(frozen=True)
class Member:
    """A run of the study. phase: develop or report. roles, in the report: tuned (at the arm's own value),
    baseline_rate (at the value of a baseline of the arm), octave_down and octave_up (at half and at twice its
    own value); each with the arms whose value it comes from."""

    phase: str
    arm: Overrides
    roles: Mapping[str, tuple[Overrides, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Progress:
    """The state of a study, derived from its rows. grid: with its extensions so far. choices: by arm, once
    development is complete. waiting: development runs without a result."""

    arms: list[Overrides]
    grid: list[str]
    choices: Mapping[Overrides, Choice]
    waiting: list[Overrides]


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """The design of a tuned study. arms: overrides without the key and the seed, those of a named arm first.
    named: the names, by these first overrides. grid: values of the key, lowest first, in the syntax of
    overrides. baselines: of the primary contrasts. develop, report: seeds. report_at,
    extend: as declared. metric: of the validation split, by which values are chosen."""

    key: str
    grid: list[str]
    levels: Mapping[str, Sequence[str]]
    arms: list[Overrides]
    named: Mapping[Overrides, str]
    baselines: Sequence[Baseline]
    develop: list[str]
    report: list[str]
    report_at: Sequence[str]
    extend: int
    metric: str
    needs_test_split: ClassVar[bool] = True

    def propose(self, rows: Rows) -> list[Overrides]:
        """First the grid on development seeds, then its extensions, then the report."""
        return [overrides for overrides in members(self, rows) if overrides not in rows]

    def roles(self, rows: Rows, ids: Mapping[Overrides, str]) -> tuple[dict[str, Role], dict[str, Choice]]:
        """The roles of the runs by run id, and the value chosen for each arm."""
        values: dict[str, dict[str, list[str]]] = {}
        found: dict[str, Role] = {}
        for overrides, member in members(self, rows).items():
            if overrides in ids:  # two arms may share one run
                of = values.setdefault(ids[overrides], {})
                for role, arms in member.roles.items():
                    names = [self.name(arm) for arm in arms]
                    of[role] = list(dict.fromkeys([*of.get(role, []), *names]))
                found[ids[overrides]] = Role(phase=member.phase, role=" ".join(of), tuned=self.key, values=of)
        return found, {self.name(arm): choice for arm, choice in progress(self, rows).choices.items()}

    def closing(self, rows: Rows) -> list[str]:
        """The chosen value, in one line per arm; or why nothing could be chosen."""
        now = progress(self, rows)
        if now.waiting:
            return [
                f"{len(now.waiting)} development runs have no result, so nothing is tuned yet;"
                " the same command runs them again"
            ]
        return [
            f"{self.name(arm)}: "
            + "; ".join(
                [*only_if(choice.value, f"{self.key}={choice.value}"), *only_if(choice.doubt, choice.doubt)]
            )
            for arm, choice in now.choices.items()
        ]

    def forecast(self) -> list[str]:
        return [
            f"these choose {self.key} for each arm, and may extend its grid by {self.extend} octaves on"
            " either side; the runs that report follow from what they choose"
        ]

    def name(self, arm: Overrides) -> str:
        """The name of the arm, with the overrides that distinguish it from others of that name."""
        own, others = parted(self.named, arm)
        shared = set(self.arms[0]).intersection(*self.arms)
        words = [*only_if(self.named[own], self.named[own]), *(o for o in others if o not in shared)]
        return " ".join(words) or " ".join(arm)


def members(study: Tuning, rows: Rows) -> dict[Overrides, Member]:
    """Every run of the study that can be known from these rows."""
    now = progress(study, rows)
    found = {
        overrides: Member("develop", arm) for arm in now.arms for overrides in _develop(study, arm, now.grid)
    }
    for arm, choice in now.choices.items():
        if choice.value is None:
            continue
        for role, source, value in _report(study, arm, now.choices):
            for overrides in _at(study, arm, value, study.report):
                before = found.get(overrides, Member("report", arm))
                roles = {**before.roles, role: (*before.roles.get(role, ()), source)}
                found[overrides] = replace(before, roles=roles)
    return found


def progress(study: Tuning, rows: Rows) -> Progress:
    """The state of the study. While some arm does best at an end of the grid, the grid grows there by an
    octave, for all arms."""
    arms = [
        arm
        for arm in study.arms
        if any(
            rows.get(overrides, {}).get("status") != Absent.LEFT_OUT
            for overrides in _develop(study, arm, study.grid)
        )
    ]
    grid, below, above = list(study.grid), 0, 0
    while True:
        develop = [overrides for arm in arms for overrides in _develop(study, arm, grid)]
        waiting = [
            overrides
            for overrides in develop
            if overrides in rows and rows[overrides]["status"] not in SETTLED
        ]
        if waiting or any(overrides not in rows for overrides in develop):
            return Progress(arms, grid, {}, waiting)
        curves = {arm: [_mean(study, rows, arm, value) for value in grid] for arm in arms}
        best = {_best(curve) for curve in curves.values()}
        down, up = 0 in best and below < study.extend, len(grid) - 1 in best and above < study.extend
        if not (down or up):
            choices = {arm: choose(study, grid, curve) for arm, curve in curves.items()}
            return Progress(arms, grid, choices, [])
        if down:
            grid, below = [_text(study, float(grid[0]) / 2), *grid], below + 1
        if up:
            grid, above = [*grid, _text(study, float(grid[-1]) * 2)], above + 1


def choose(study: Tuning, grid: Sequence[str], curve: Sequence[float]) -> Choice:
    """Choose the value of an arm. curve: its mean loss at each point of the grid; inf if a seed diverged, NaN
    if the arm can't be built there."""
    loss = np.array(curve)
    if not np.isfinite(loss).any():
        return Choice(None, f"no value: all of {study.key}={','.join(grid)} diverged")
    at, doubt = minimum(np.log2([float(value) for value in grid]), loss)
    best, there = _best(curve), ~np.isnan(loss)
    if not (there[:best].any() and there[best + 1 :].any()):
        doubt = f"not bracketed: {study.key}={grid[best]}, the best of the grid, is at its end"
    return Choice(_text(study, 2.0**at), doubt)


# --- helpers ----------------------------------------------------------------------------------------


def _octaves(key: str, values: Sequence[str]) -> list[str]:
    """The values in order. Raises ConfigError unless each is twice the one before."""
    try:
        grid = sorted(dict.fromkeys(values), key=float)
    except ValueError:
        raise ConfigError(
            f"{key}={','.join(values)}: a tuned key takes numbers; list powers of two"
        ) from None
    numbers = [float(value) for value in grid]
    if numbers[0] <= 0 or any(
        not math.isclose(b / a, 2, rel_tol=0.02) for a, b in itertools.pairwise(numbers)
    ):
        raise ConfigError(
            f"{key}={','.join(values)}: in a tuned study each value has to be twice the one before"
        )
    return grid


def _text(study: Tuning, value: float) -> str:
    """A value of the key in the syntax of overrides; a whole number if all values of the grid are."""
    if all(point.isdigit() for point in study.grid):
        return str(round(value))
    return f"{value:.{DIGITS}g}"


def _report(
    study: Tuning, arm: Overrides, choices: Mapping[Overrides, Choice]
) -> Iterator[tuple[str, Overrides, str]]:
    """The values at which an arm reports: (role, arm whose value it comes from, value)."""
    own = choices[arm].value
    assert own is not None
    yield "tuned", arm, own
    if "baseline_rate" in study.report_at:
        for other in dict.fromkeys(baseline_of(study.named, arm, baseline) for baseline in study.baselines):
            reference = choices.get(other) if other else None
            if other and reference and reference.value is not None:
                yield "baseline_rate", other, reference.value
    if "octaves" in study.report_at:
        yield "octave_down", arm, _text(study, float(own) / 2)
        yield "octave_up", arm, _text(study, float(own) * 2)


def _at(study: Tuning, arm: Overrides, value: str, seeds: Sequence[str]) -> list[Overrides]:
    return [(*arm, f"{study.key}={value}", f"seed={seed}") for seed in seeds]


def _develop(study: Tuning, arm: Overrides, grid: Sequence[str]) -> list[Overrides]:
    return [overrides for value in grid for overrides in _at(study, arm, value, study.develop)]


def _mean(study: Tuning, rows: Rows, arm: Overrides, value: str) -> float:
    """The mean of the metric over development seeds, negated if higher is better; inf if a seed diverged, NaN
    if the arm can't be built."""
    those = [rows[overrides] for overrides in _at(study, arm, value, study.develop)]
    if any(row["status"] == Absent.LEFT_OUT for row in those):
        return math.nan
    losses = [row.get(study.metric) for row in those]
    finite = [float(loss) for loss in losses if loss is not None and math.isfinite(loss)]
    if len(finite) < len(losses):
        return math.inf
    return math.fsum(finite) / len(finite) * (-1 if study.metric in HIGHER_IS_BETTER else 1)


def _best(curve: Sequence[float]) -> int:
    return int(np.argmin(np.where(np.isnan(curve), np.inf, curve)))
