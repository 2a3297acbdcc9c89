"""The kind `tuned`: each arm at its own best value of a key, chosen on development seeds.

Comparing arms at one learning rate compares how well that rate suits them; taking the best of a few rates for
each arm calls equal arms different in 7–97 % of studies, by how steep their curves are. So every arm is
trained over one grid of powers of two, on development seeds, and evaluated on the validation split. Its value
is the minimum of a parabola fitted to its mean loss in log2 of the key. The report is on fresh seeds and the
test split.
"""

import functools
import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import yaml

from ablate.compose.composer import Composer
from ablate.config.conditions import contradicts, key_in
from ablate.config.contrast import Contrast
from ablate.config.overrides import as_value
from ablate.config.rules import AtLeast, ConfigError, ErrorText
from ablate.phrases import counted, lines_if
from ablate.store.columns import RESULTS, Row, column_named, on_validation
from ablate.store.record import Choice, Role, keys_of_arms
from ablate.study.config import (
    Absent,
    Design,
    Overrides,
    Phase,
    Rows,
    Seeds,
    StudyConfig,
    combinations,
    seed_of,
)
from ablate.study.curve import HALF, STEEP, curvature, has_late_seed, minimum
from ablate.study.looks import Looks

EXTENSIONS = 1  # octaves by which grids grow in most studies, for forecasts
DIGITS = 4  # significant digits of a chosen value, so that it is the same override on every machine
SETTLED = (*RESULTS, Absent.LEFT_OUT)


@dataclass(frozen=True, kw_only=True)
class Tuned(StudyConfig):
    """tune: the key for which each arm gets its own value. develop: the seeds used to choose it. extend: by
    how many octaves the grid may grow on either side. report_at: the values at which arms report: their own
    (tuned), that of their baseline, and an octave to either side of their own."""

    kind: ClassVar[str] = "tuned"
    example: ClassVar[str] = "tuned"

    tune: str
    develop: Seeds
    extend: Annotated[int, AtLeast(0), ErrorText("how many octaves the grid may grow by; use 0, 1, 2, …")]
    report_at: Annotated[
        list[Literal["tuned", "baseline_rate", "octaves"]],
        ErrorText("write [tuned], with baseline_rate and octaves if arms are to report there too"),
    ] = field(default_factory=lambda: ["tuned", "baseline_rate", "octaves"])

    @property
    def first_seed(self) -> int:
        return 1 + max(map(int, self.develop))

    def design(self, levels: Mapping[str, Sequence[str]], configs: Composer) -> Design:
        return self.tuning(levels)

    def tuning(self, levels: Mapping[str, Sequence[str]]) -> "Tuning":
        key = self.tune
        if key not in levels:
            raise ConfigError(
                f"study.tune={key}: it has no grid; list powers of two of it, as {key}=1e-3,2e-3,4e-3"
            )
        if column_named(self.metric).split != "test":
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
        grid = _octaves(key, levels[key])
        factors = {k: values for k, values in levels.items() if k not in (key, "seed")}
        arms = combinations(factors, self.named_arms)
        for name, value in (one for contrast in self.primary for one in contrast.baseline.items()):
            of_arms = [arm for arm in map(settings_of, arms) if key_in(name, arm)]
            if all(contradicts({name: [value]}, arm) for arm in of_arms) and name not in keys_of_arms(
                self.arms
            ):
                raise ConfigError(
                    f"study.primary: the baseline {name}={as_value(value)} is no level of the study's factors"
                )
        return Tuning({**levels, key: grid, "seed": report}, arms, config=self)


@dataclass(frozen=True)
class Progress:
    """The state of a study, derived from its rows. points: of each arm, the grid with its extensions so far,
    and half-octaves where its curve is steep. choices: by arm, once development is complete. waiting:
    development runs without a result. round: of development, as `round 2 (0.003 to 0.024)`."""

    points: Mapping[Overrides, list[str]]
    choices: Mapping[Overrides, Choice]
    waiting: list[Overrides]
    round: str


@dataclass(frozen=True, kw_only=True)
class Tuning(Design):
    """The design of a tuned study. arms: overrides without the key and the seed, a name's first."""

    config: Tuned
    needs_test_split: ClassVar[bool] = True

    @property
    def key(self) -> str:
        return self.config.tune

    @property
    def grid(self) -> Sequence[str]:
        """Values of the key, lowest first, in the syntax of overrides."""
        return self.levels[self.key]

    @cached_property
    def named(self) -> Mapping[Overrides, str]:
        return self.config.named_arms

    def members(self, rows: Rows) -> Collection[Overrides]:
        """First the grid on development seeds, then its extensions, then the report."""
        return members(self, rows)

    @property
    def compared(self) -> list[Overrides]:
        return [*self.arms]

    def runs_a_seed(self, arm: Overrides) -> int:
        baselines = {baseline_of(self.named, self.arms, arm, one) for one in self.config.primary}
        at_baselines = len(baselines - {None, arm}) if "baseline_rate" in self.config.report_at else 0
        return 1 + at_baselines + 2 * ("octaves" in self.config.report_at)

    def first_runs(self, arm: Overrides) -> list[Overrides]:
        return [run for value in self.grid for run in at_value(self, arm, value, self.levels["seed"][:1])]

    def arm_of(self, run: Overrides) -> Overrides:
        """The arm without the key and the seed, which `_at` adds."""
        return run[:-2]

    def results(self, rows: Rows) -> dict[tuple[Overrides, str], Row]:
        """The rows of arms at their own values."""
        chosen = {arm: f"{self.key}={choice.value}" for arm, choice in progress(self, rows).choices.items()}
        return {(run[:-2], seed_of(run)): row for run, row in rows.items() if chosen.get(run[:-2]) == run[-2]}

    def looks_after(self, rows: Rows) -> Looks | None:
        now, late = progress(self, rows), []
        for arm, choice in now.choices.items():
            loss_PS = np.array([losses_of(self, rows, arm, point) for point in now.points[arm]])
            if choice.value and has_late_seed(
                np.array(now.points[arm], float) / float(choice.value), loss_PS
            ):
                late.append(self.name(arm))
        return self.looks and self.looks.after(late)

    def roles(self, rows: Rows, ids: Mapping[Overrides, str]) -> tuple[dict[str, Role], dict[str, Choice]]:
        """The roles of the runs by run id, and the value chosen for each arm."""
        values: dict[str, dict[str, list[str]]] = {}
        roles: dict[str, Role] = {}
        for overrides, arms_by_role in members(self, rows).items():
            if overrides in ids:  # two arms may share one run
                of = values.setdefault(ids[overrides], {})
                for role, arms in arms_by_role.items():
                    names = [self.name(arm) for arm in arms]
                    of[role] = list(dict.fromkeys([*of.get(role, []), *names]))
                phase = "report" if arms_by_role else "develop"
                roles[ids[overrides]] = Role(phase=phase, role=" ".join(of), tuned=self.key, values=of)
        return roles, {self.name(arm): choice for arm, choice in progress(self, rows).choices.items()}

    def phase(self, rows: Rows) -> Phase:
        """Development, round by round, and then the report."""
        now = progress(self, rows)
        known = len({run for run, row in rows.items() if row["status"] != Absent.LEFT_OUT})
        most = "at most " if self.looks else ""
        if now.choices:
            return Phase("reporting seeds", f"{most}{counted(known + len(self._up_to('most', rows)), 'run')}")
        points = {arm: len(of_arm) for arm, of_arm in now.points.items()}
        octaves = min(EXTENSIONS, self.config.extend) if {*points.values()} == {len(self.grid)} else 0
        develop = (sum(points.values()) + octaves * len(points)) * len(self.config.develop)
        report = sum(map(self.runs_a_seed, points)) * len(self.levels["seed"])
        values = "rates" if self.key == "train.lr" else f"values of {self.key}"
        return Phase(f"{values}, {now.round}", f"{most}about {counted(develop + report, 'run')}")

    def closing(self, rows: Rows) -> list[str]:
        """The chosen value, in one line per arm; or why nothing could be chosen."""
        now = progress(self, rows)
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

    def forecast(self) -> list[str]:
        return [
            f"these choose {self.key} for each arm, and may extend its grid by"
            f" {counted(self.config.extend, 'octave')} on either side; the runs that report follow from"
            f" what they choose: {self.phase({}).of} in all"
        ]

    def name(self, arm: Overrides) -> str:
        """The name of the arm, with the overrides that distinguish it from others of that name."""
        own, others = parted(self.named, arm)
        shared = set(self.arms[0]).intersection(*self.arms)
        words = [*lines_if(self.named[own], self.named[own]), *(o for o in others if o not in shared)]
        return " ".join(words) or " ".join(arm)


def members(study: Tuning, rows: Rows) -> dict[Overrides, dict[str, list[Overrides]]]:
    """Every run of the study that follows from these rows, with its roles in the report: tuned (at the arm's
    own value), baseline_rate (at the value of a baseline of the arm), octave_down and octave_up (at half and
    at twice its own value); each with the arms whose value it comes from. A development run has none."""
    now = progress(study, rows)
    members: dict[Overrides, dict[str, list[Overrides]]] = {
        overrides: {} for arm, points in now.points.items() for overrides in development(study, arm, points)
    }
    for arm, choice in now.choices.items():
        if choice.value is None:
            continue
        for role, source, value in _report(study, arm, now.choices):
            for overrides in at_value(study, arm, value, study.levels["seed"]):
                members.setdefault(overrides, {}).setdefault(role, []).append(source)
    return members


def progress(study: Tuning, rows: Rows) -> Progress:
    """The state of the study. While some arm does best at an end of the grid, the grid grows there by an
    octave, for all arms; then arms with steep curves get their half-octaves."""
    left_out = {overrides for overrides, row in rows.items() if row.get("status") == Absent.LEFT_OUT}
    arms = [arm for arm in study.arms if {*development(study, arm, study.grid)} - left_out]
    extend, grid, below, above = study.config.extend, [*study.grid], 0, 0
    points, halves, number = {arm: grid for arm in arms}, False, 0
    while True:
        number += 1
        what = "half-octaves" if halves else f"{grid[0]} to {grid[-1]}"
        develop = [run for arm in arms for run in development(study, arm, points[arm])]
        waiting = [one for one in develop if one in rows and rows[one]["status"] not in SETTLED]
        if waiting or any(overrides not in rows for overrides in develop):
            return Progress(points, {}, waiting, f"round {number} ({what})")
        curves = {arm: [mean_loss(study, rows, arm, value) for value in points[arm]] for arm in arms}
        best = {points[arm][_best(curve)] for arm, curve in curves.items()}
        half = value_text(study, float(grid[0]) / 2)
        down, up = grid[0] in best and below < extend and half != grid[0], grid[-1] in best and above < extend
        if not (down or up):
            finer = {arm: _with_halves(study, points[arm], curve) for arm, curve in curves.items()}
            if finer == points:
                choices = {arm: choose(study, points[arm], curve) for arm, curve in curves.items()}
                return Progress(points, choices, [], "")
            points, halves = finer, True
            continue
        if down:
            grid, below = [half, *grid], below + 1
        if up:
            grid, above = [*grid, value_text(study, float(grid[-1]) * 2)], above + 1
        points = {arm: grid for arm in arms}


def choose(study: Tuning, grid: Sequence[str], curve: Sequence[float]) -> Choice:
    """Choose the value of an arm. curve: its mean loss at each point of the grid; inf if a seed diverged, NaN
    if the arm can't be built there."""
    loss = np.array(curve)
    if not np.isfinite(loss).any():
        return Choice(None, f"no value: all of {study.key}={','.join(grid)} diverged")
    at, doubt = minimum(np.log2([float(value) for value in grid]), loss)
    best, known = _best(curve), ~np.isnan(loss)
    if not (known[:best].any() and known[best + 1 :].any()):
        doubt = f"not bracketed: {study.key}={grid[best]}, the best of the grid, is at its end"
    return Choice(value_text(study, 2.0**at), doubt)


def _with_halves(study: Tuning, points: list[str], curve: Sequence[float]) -> list[str]:
    """The points and, if the curve is steep around the best of them, those half an octave beside it."""
    loss, octaves = np.array(curve), np.log2([float(point) for point in points])
    finite, best = np.isfinite(loss), _best(curve)
    if finite.sum() < 3 or np.diff(octaves).min() < 1.5 * HALF:
        return points
    if curvature(octaves[finite], loss[finite]) <= STEEP:
        return points
    inside = [side for side in (-HALF, HALF) if octaves[0] < octaves[best] + side < octaves[-1]]
    return sorted(
        {*points, *(value_text(study, float(points[best]) * 2.0**side) for side in inside)}, key=float
    )


# --- the baseline of an arm --------------------------------------------------------------------------


def parted(named: Collection[Overrides], arm: Overrides) -> tuple[Overrides, Overrides]:
    """What an arm sets by its name, and its levels of the factors. named: what each named arm sets."""
    own = max((one for one in named if arm[: len(one)] == one), key=len)
    return own, arm[len(own) :]


def baseline_of(
    named: Collection[Overrides], arms: Iterable[Overrides], arm: Overrides, contrast: Contrast
) -> Overrides | None:
    """The one of `arms` that is the baseline of this arm, perhaps the arm itself; None if it is in no such
    contrast, or has no baseline.

    An arm says nothing of keys that it does not set. Its baseline sets no key of the contrast to another
    value, and has the same levels of all factors that do not vary; of several, it is the one that sets most
    of the contrast's keys, and of these the one that sets least.
    """
    own, varies = settings_of(arm), contrast.baseline
    if contradicts(contrast.where, own):
        return None
    named_here = [one for one in contrast.variants if any(key_in(key, own) for key in one)]
    if contrast.variants and all(contradicts(one, own) for one in named_here):
        return None
    wanted = {**contrast.where, **contrast.is_baseline}

    def levels(one: Overrides) -> dict[str, Any]:
        of_factors = settings_of(parted(named, one)[1])
        return {key: value for key, value in of_factors.items() if not any(key_in(k, [key]) for k in varies)}

    def rank(one: Overrides) -> tuple[int, int]:
        return -sum(key_in(key, settings_of(one)) is not None for key in wanted), len(one)

    fitting = [
        one for one in arms if levels(one) == levels(arm) and not contradicts(wanted, settings_of(one))
    ]
    return min(fitting, key=rank, default=None)


@functools.lru_cache(4096)
def settings_of(arm: Overrides) -> Mapping[str, Any]:
    """The keys that overrides set, with their values."""
    return {key: yaml.safe_load(value) for key, _, value in (override.partition("=") for override in arm)}


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
    doubles = (math.isclose(b / a, 2, rel_tol=0.02) for a, b in itertools.pairwise(numbers))
    if numbers[0] <= 0 or not all(doubles):
        raise ConfigError(
            f"{key}={','.join(values)}: in a tuned study each value has to be twice the one before"
        )
    return grid


def value_text(study: Tuning, value: float) -> str:
    """A value of the key in the syntax of overrides; a whole number above 0 if all values of the grid are."""
    if all(point.isdigit() for point in study.grid):
        return str(max(1, round(value)))
    return f"{value:.{DIGITS}g}"


def _report(
    study: Tuning, arm: Overrides, choices: Mapping[Overrides, Choice]
) -> Iterator[tuple[str, Overrides, str]]:
    """The values at which an arm reports: (role, arm whose value it comes from, value)."""
    own = choices[arm].value
    assert own is not None
    yield "tuned", arm, own
    if "baseline_rate" in study.config.report_at:
        contrasts = study.config.primary
        baselines = (baseline_of(study.named, study.arms, arm, contrast) for contrast in contrasts)
        for other in dict.fromkeys(baselines):
            reference = choices.get(other) if other else None
            if other and reference and reference.value is not None:
                yield "baseline_rate", other, reference.value
    if "octaves" in study.config.report_at:
        if (half := value_text(study, float(own) / 2)) != own:
            yield "octave_down", arm, half
        yield "octave_up", arm, value_text(study, float(own) * 2)


def at_value(study: Tuning, arm: Overrides, value: str, seeds: Sequence[str]) -> list[Overrides]:
    return [(*arm, f"{study.key}={value}", f"seed={seed}") for seed in seeds]


def development(study: Tuning, arm: Overrides, grid: Sequence[str]) -> list[Overrides]:
    return [overrides for value in grid for overrides in at_value(study, arm, value, study.config.develop)]


def mean_loss(study: Tuning, rows: Rows, arm: Overrides, value: str) -> float:
    """The mean of the metric on the validation split over development seeds, negated if higher is better; inf
    if a seed diverged, NaN if the arm can't be built."""
    losses = losses_of(study, rows, arm, value)
    return math.fsum(losses) / len(losses) if math.inf not in losses else math.inf


def losses_of(study: Tuning, rows: Rows, arm: Overrides, value: str) -> list[float]:
    """As in mean_loss, of each development seed."""
    metric = on_validation(study.config.metric)
    those = [rows[overrides] for overrides in at_value(study, arm, value, study.config.develop)]
    if any(row["status"] == Absent.LEFT_OUT for row in those):
        return [math.nan] * len(those)
    sign, losses = -1 if column_named(metric).higher_is_better else 1, [row.get(metric) for row in those]
    return [sign * float(x) if x is not None and math.isfinite(x) else math.inf for x in losses]


def _best(curve: Sequence[float]) -> int:
    return int(np.argmin(np.where(np.isnan(curve), np.inf, curve)))
