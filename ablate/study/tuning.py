"""The value of a key for each arm, from runs of development: `tune`, a pure function of their rows.

Comparing arms at one learning rate compares how well that rate suits them; taking the best of a few rates for
each arm calls equal arms different in 7–97 % of studies, by how steep their curves are. So every arm is
trained over one grid of powers of two, on development seeds, and evaluated on the validation split. Its value
is the minimum of a parabola fitted to its mean loss in log2 of the key.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ablate.compose.composer import Overrides
from ablate.store.columns import RESULTS, column_named
from ablate.store.record import Choice
from ablate.study.config import Absent, Rows

DIGITS = 4  # significant digits of a chosen value, so that it is the same override on every machine
# The parabola is fitted to this many octaves on either side of the best point. Loss rises faster above the
# best learning rate than below it, so the bias of a wider fit is larger than the noise that it averages out.
WINDOW = 1
# Where a curve is steeper than this, in nats per squared octave, points half an octave beside the best one
# come first: a parabola over octaves would miss the minimum by more than the noise.
STEEP, HALF = 0.1, 0.5
SETTLED = (*RESULTS, Absent.EXCLUDED)


@dataclass(frozen=True, kw_only=True)
class Search:
    """Where values are looked for. key: what is tuned. grid: its values at first, lowest first, each twice
    the one before, in the syntax of overrides. extend: by how many octaves it may grow on either side. seeds:
    those of development. metric: of the validation split."""

    key: str
    grid: Sequence[str]
    extend: int
    seeds: Sequence[str]
    metric: str

    def runs(self, arm: Overrides, values: Sequence[str]) -> list[Overrides]:
        """The runs of development of an arm at these values."""
        return [run for value in values for run in at_value(arm, self.key, value, self.seeds)]

    def curve(self, rows: Rows, arm: Overrides, values: Sequence[str]) -> list[float]:
        """The mean of the metric over seeds at each of these values, negated if higher is better; inf where a
        seed diverged, NaN where the arm can't be built."""
        sign, curve = -1 if column_named(self.metric).higher_is_better else 1, list[float]()
        for value in values:
            of_runs = [rows[run] for run in self.runs(arm, [value])]
            losses = [float("nan" if (x := row.get(self.metric)) is None else x) for row in of_runs]
            mean = sign * math.fsum(losses) / len(losses) if all(map(math.isfinite, losses)) else math.inf
            curve.append(math.nan if any(row["status"] == Absent.EXCLUDED for row in of_runs) else mean)
        return curve

    def text(self, value: float) -> str:
        """A value of the key in the syntax of overrides; a whole number above 0 if all of the grid are."""
        if all(point.isdigit() for point in self.grid):
            return str(max(1, round(value)))
        return f"{value:.{DIGITS}g}"


@dataclass(frozen=True)
class Found:
    """What the rows give. points: of each arm, the grid with its extensions so far, and half-octaves where
    its curve is steep. choices: by arm, once development is complete. waiting: runs without a result. round:
    of development, as `round 2 (0.003 to 0.024)`."""

    points: Mapping[Overrides, list[str]]
    choices: Mapping[Overrides, Choice]
    waiting: list[Overrides]
    round: str


def tune(search: Search, arms: Sequence[Overrides], rows: Rows) -> Found:
    """While some arm does best at an end of the grid, the grid grows there by an octave, for all arms; then
    arms with steep curves get their half-octaves."""
    left_out = {run for run, row in rows.items() if row.get("status") == Absent.EXCLUDED}
    arms = [arm for arm in arms if {*search.runs(arm, search.grid)} - left_out]
    grid, below, above = [*search.grid], 0, 0
    points, halves, number = {arm: grid for arm in arms}, False, 0
    while True:
        number += 1
        what = "finer steps" if halves else f"{grid[0]} to {grid[-1]}"
        runs = [run for arm in arms for run in search.runs(arm, points[arm])]
        waiting = [run for run in runs if run in rows and rows[run]["status"] not in SETTLED]
        if waiting or any(run not in rows for run in runs):
            return Found(points, {}, waiting, f"round {number} ({what})")
        curves = {arm: search.curve(rows, arm, points[arm]) for arm in arms}
        best = {points[arm][_best(curve)] for arm, curve in curves.items()}
        half = search.text(float(grid[0]) / 2)
        down = grid[0] in best and below < search.extend and half != grid[0]
        up = grid[-1] in best and above < search.extend
        if not (down or up):
            finer = {arm: _with_halves(search, points[arm], curve) for arm, curve in curves.items()}
            if finer == points:
                choices = {arm: choose(search, points[arm], curve) for arm, curve in curves.items()}
                return Found(points, choices, [], "")
            points, halves = finer, True
            continue
        if down:
            grid, below = [half, *grid], below + 1
        if up:
            grid, above = [*grid, search.text(float(grid[-1]) * 2)], above + 1
        points = {arm: grid for arm in arms}


def choose(search: Search, points: Sequence[str], curve: Sequence[float]) -> Choice:
    """Choose the value of an arm. curve: its mean loss at each point; inf if a seed diverged, NaN if the arm
    can't be built there."""
    loss = np.array(curve)
    if not np.isfinite(loss).any():
        why = "can't be built" if np.isnan(loss).all() else "diverged"
        return Choice(None, f"no value: all of {search.key}={','.join(points)} {why}")
    at, doubt = minimum(np.log2([float(value) for value in points]), loss)
    best, known = _best(curve), ~np.isnan(loss)
    if not (known[:best].any() and known[best + 1 :].any()):
        doubt = f"not bracketed: {search.key}={points[best]}, the best of the grid, is at its end"
    return Choice(search.text(2.0**at), doubt)


def at_value(arm: Overrides, key: str, value: str, seeds: Sequence[str]) -> list[Overrides]:
    """The runs of an arm at a value of the key."""
    return [(*arm, f"{key}={value}", f"seed={seed}") for seed in seeds]


def _with_halves(search: Search, points: list[str], curve: Sequence[float]) -> list[str]:
    """The points and, if the curve is steep around the best of them, those half an octave beside it."""
    loss, log2_values = np.array(curve), np.log2([float(point) for point in points])
    finite, best = np.isfinite(loss), _best(curve)
    if finite.sum() < 3 or np.diff(log2_values).min() < 1.5 * HALF:
        return points
    if curvature(log2_values[finite], loss[finite]) <= STEEP:
        return points
    inside = [side for side in (-HALF, HALF) if log2_values[0] < log2_values[best] + side < log2_values[-1]]
    return sorted({*points, *(search.text(float(points[best]) * 2.0**side) for side in inside)}, key=float)


def _best(curve: Sequence[float]) -> int:
    """The place of the lowest loss: of equal ones the nearest to the middle; the first if none is finite."""
    known = np.where(np.isnan(curve), np.inf, curve)
    lowest, middle = np.flatnonzero(known == known.min()), (len(known) - 1) / 2
    return int(min(lowest, key=lambda place: abs(place - middle)) if np.isfinite(known.min()) else lowest[0])


def minimum(log2_values: np.ndarray, loss: np.ndarray) -> tuple[float, str]:
    """The place of the minimum, and a reason for doubt, empty if there is none.

    A parabola is fitted by least squares to the finite losses within WINDOW octaves of the lowest one, within
    half of that if there are points between, or to the nearest three if those are fewer; its minimum is
    clipped to the range of these points. The lowest point itself is taken if there are fewer than three
    finite losses, or if the parabola is not convex.
    """
    finite = np.isfinite(loss)
    x, y = log2_values[finite], loss[finite]
    best = log2_values[_best(loss.tolist())]
    if len(x) < 3:
        return float(best), "the best of the grid: a fit takes three finite points"
    bend, slope, near = _parabola(x - best, y)
    if bend <= 0:
        return float(best), "the best of the grid: the curve around it is not convex"
    return float(best + np.clip(-slope / (2 * bend), near.min(), near.max())), ""


def curvature(log2_values: np.ndarray, loss: np.ndarray) -> float:
    """The curvature of the parabola around the lowest of three finite losses or more, per squared octave."""
    return _parabola(log2_values - log2_values[_best(loss.tolist())], loss)[0]


def _parabola(x: np.ndarray, y: np.ndarray) -> tuple[float, float, np.ndarray]:
    """The curvature and the slope at 0 of the parabola through the points around 0, and these points."""
    step = np.diff(np.sort(x)).min()
    order = np.argsort(np.abs(x), kind="stable")
    near = order[: max(3, int((np.abs(x) < min(step, WINDOW) * 1.5).sum()))]
    bend, slope, _ = np.polyfit(x[near], y[near], 2)
    return float(bend), float(slope), x[near]
