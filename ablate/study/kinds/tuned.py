"""Each arm at its own best value of a key: chosen on development seeds, reported on fresh ones.

Comparing arms at one learning rate compares how well that rate suits them; taking the best of a few rates
for each calls equal arms different in 13–30 % of studies. So: the loss of every arm over one grid of powers
of two, on development seeds and the validation split; an arm's value is the minimum of a parabola fitted to
its mean loss in log2 of the key; the report is on fresh seeds and the test split.

All of it is a pure function of the study and of the rows so far, so a study resumes from whatever there is.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ablate.config.overrides import as_value
from ablate.config.rules import ConfigError
from ablate.store.columns import HIGHER_IS_BETTER, Row
from ablate.store.status import RESULTS
from ablate.study.declared import Declared
from ablate.study.kinds.grid import Cell, cells

# Octaves on either side of the best point that the parabola is fitted to. Loss rises faster above the best
# learning rate than below it, so a wider fit is off by more than the noise that it averages away.
WINDOW = 1
DIGITS = 4  # of a chosen value: it becomes an override, the same one whichever machine computes it
SETTLED = (*RESULTS, "left out")


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """A tuned study. arms: overrides without the key and the seed. grid: values of the key, lowest first,
    as an override writes them. baselines: what an arm's baseline has in place of its own overrides.
    develop, report: seeds. extend: octaves that the grid may grow by on either side. metric: of the
    validation split, by which values are chosen."""

    key: str
    grid: list[str]
    arms: list[Cell]
    baselines: Sequence[Mapping[str, str]]
    develop: list[str]
    report: list[str]
    extend: int
    metric: str


@dataclass(frozen=True)
class Part:
    """What a run is to the study. phase: develop or report. roles, of the latter: tuned (at the arm's own
    value), baseline_rate (at that of a baseline of the arm), octave_down and octave_up (at half and twice
    its own); each with the arms whose value it comes from."""

    phase: str
    arm: Cell
    roles: Mapping[str, tuple[Cell, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """The value of an arm, as an override writes it; None if it has none. doubt: what speaks against it."""

    value: str | None
    doubt: str = ""


@dataclass(frozen=True)
class Progress:
    """How far the rows bring a study. grid: as far as they extend it. choices: by arm, once development is
    over. waiting: development runs without a result."""

    arms: list[Cell]
    grid: list[str]
    choices: Mapping[Cell, Choice]
    waiting: list[Cell]


def tuning(declared: Declared, levels: Mapping[str, Sequence[str]]) -> Tuning:
    """levels: override key -> values, of the tuned key and the seed too. Raises ConfigError."""
    key = declared.tune
    if key not in levels:
        raise ConfigError(
            f"study.tune={key}: it has no grid; list powers of two of it, as {key}=1e-3,2e-3,4e-3"
        )
    if not declared.metric.startswith("test_"):
        raise ConfigError(
            f"study.metric={declared.metric}: the validation split chooses the values of a tuned study, so it"
            " reports on the test split; use test_loss"
        )
    report = list(dict.fromkeys(levels["seed"]))
    if used := [seed for seed in report if seed in declared.develop]:
        raise ConfigError(
            f"seed={used[0]}: a development seed (study.develop) chose the values, so it can't report on"
            " them; use fresh seeds"
        )
    for baseline in (given := [_baseline(entry) for entry in declared.primary]):
        if lacking := [f"{k}={v}" for k, v in baseline.items() if k == key or v not in levels.get(k, ())]:
            raise ConfigError(f"study.primary: the baseline {lacking[0]} is no level of the study's factors")
    return Tuning(
        key=key,
        grid=_octaves(key, levels[key]),
        arms=cells({k: values for k, values in levels.items() if k not in (key, "seed")}),
        baselines=given,
        develop=declared.develop,
        report=report,
        extend=declared.extend,
        metric=declared.metric.replace("test_", "val_"),
    )


def propose(study: Tuning, rows: Mapping[Cell, Row]) -> list[Cell]:
    """What to run next: the grid on development seeds, its extensions, then the report."""
    return [cell for cell in parts(study, rows) if cell not in rows]


def parts(study: Tuning, rows: Mapping[Cell, Row]) -> dict[Cell, Part]:
    """Every run that belongs to the study, as far as these rows show."""
    now = progress(study, rows)
    found = {cell: Part("develop", arm) for arm in now.arms for cell in _develop(study, arm, now.grid)}
    for arm, choice in now.choices.items():
        if choice.value is None:
            continue
        for role, source, value in _report(study, arm, now.choices):
            for cell in _cells(study, arm, value, study.report):
                before = found.get(cell, Part("report", arm))
                roles = {**before.roles, role: (*before.roles.get(role, ()), source)}
                found[cell] = replace(before, roles=roles)
    return found


def progress(study: Tuning, rows: Mapping[Cell, Row]) -> Progress:
    """The grid grows by an octave at an end, for all arms, while some arm does best at that end."""
    arms = [
        arm
        for arm in study.arms
        if any(rows.get(cell, {}).get("status") != "left out" for cell in _develop(study, arm, study.grid))
    ]
    grid, below, above = list(study.grid), 0, 0
    while True:
        develop = [cell for arm in arms for cell in _develop(study, arm, grid)]
        waiting = [cell for cell in develop if cell in rows and rows[cell]["status"] not in SETTLED]
        if waiting or any(cell not in rows for cell in develop):
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
    """The value of an arm. curve: its mean loss at each point of the grid, inf where a seed diverged, NaN
    where the arm can't be built."""
    loss = np.array(curve)
    if not np.isfinite(loss).any():
        return Choice(None, f"no value: all of {study.key}={','.join(grid)} diverged")
    at, doubt = minimum(np.log2([float(value) for value in grid]), loss)
    best, there = _best(curve), ~np.isnan(loss)
    if not (there[:best].any() and there[best + 1 :].any()):
        doubt = f"not bracketed: {study.key}={grid[best]}, the best of the grid, is at its end"
    return Choice(_text(study, 2.0**at), doubt)


def minimum(octaves: np.ndarray, loss: np.ndarray) -> tuple[float, str]:
    """Where a parabola, fitted by least squares to the finite losses within WINDOW octaves of the lowest (or
    to the three nearest, where there are fewer), has its minimum, kept to the range of those points.

    The lowest point itself where there are not three finite ones or the parabola is not convex, and why.
    """
    finite = np.isfinite(loss)
    x, y = octaves[finite], loss[finite]
    best = x[np.argmin(y)]
    x = x - best
    if len(x) < 3:
        return float(best), "the best of the grid: a fit takes three finite points"
    order = np.argsort(np.abs(x), kind="stable")
    near = order[: max(3, int((np.abs(x) < WINDOW + 0.5).sum()))]
    curvature, slope, _ = np.polyfit(x[near], y[near], 2)
    if curvature <= 0:
        return float(best), "the best of the grid: the curve around it is not convex"
    return float(best + np.clip(-slope / (2 * curvature), x[near].min(), x[near].max())), ""


def about(study: Tuning, rows: Mapping[Cell, Row], ids: Mapping[Cell, str]) -> dict[str, Any]:
    """What study.json says of it: `parts` by run, and the value `chosen` for each arm. ids: run ids.

    A part has, beside what stands in the columns, `values`: by role, the arms whose value it comes from.
    """
    values: dict[str, dict[str, list[str]]] = {}
    runs: dict[str, dict[str, Any]] = {}
    for cell, part in parts(study, rows).items():
        if cell in ids:  # two arms may come to one run
            of = values.setdefault(ids[cell], {})
            for role, arms in part.roles.items():
                names = [_name(study, arm) for arm in arms]
                of[role] = list(dict.fromkeys([*of.get(role, []), *names]))
            runs[ids[cell]] = {"phase": part.phase, "role": " ".join(of), "tuned": study.key, "values": of}
    choices = progress(study, rows).choices
    chosen = {_name(study, arm): {"value": c.value, "doubt": c.doubt} for arm, c in choices.items()}
    return {"parts": runs, "chosen": chosen}


def closing(study: Tuning, rows: Mapping[Cell, Row]) -> list[str]:
    """What was chosen, a line an arm; or why nothing could be."""
    now = progress(study, rows)
    if now.waiting:
        return [
            f"{len(now.waiting)} development runs have no result, so nothing is tuned yet;"
            " the same command runs them again"
        ]
    return [
        f"{_name(study, arm)}: "
        + "; ".join(
            ([f"{study.key}={choice.value}"] if choice.value else []) + [choice.doubt] * bool(choice.doubt)
        )
        for arm, choice in now.choices.items()
    ]


# --- the parts --------------------------------------------------------------------------------------


def _baseline(entry: Mapping[str, Any]) -> dict[str, str]:
    """The baseline of a primary contrast, as overrides."""
    given = entry.get("baseline")
    mapping = given if isinstance(given, Mapping) else {entry.get("vary", "fusion"): given}
    return {str(key): as_value(value) for key, value in mapping.items()}


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
    """A value of the key as an override writes it; whole where the grid is."""
    if all(point.isdigit() for point in study.grid):
        return str(round(value))
    return f"{value:.{DIGITS}g}"


def _report(study: Tuning, arm: Cell, choices: Mapping[Cell, Choice]) -> Iterator[tuple[str, Cell, str]]:
    """Where an arm that has a value reports: the role, the arm whose value it comes from, the value."""
    own = choices[arm].value
    assert own is not None
    yield "tuned", arm, own
    for baseline in dict.fromkeys(_with(arm, overrides) for overrides in study.baselines):
        reference = choices.get(baseline)
        if reference and reference.value is not None:
            yield "baseline_rate", baseline, reference.value
    yield "octave_down", arm, _text(study, float(own) / 2)
    yield "octave_up", arm, _text(study, float(own) * 2)


def _cells(study: Tuning, arm: Cell, value: str, seeds: Sequence[str]) -> list[Cell]:
    return [(*arm, f"{study.key}={value}", f"seed={seed}") for seed in seeds]


def _develop(study: Tuning, arm: Cell, grid: Sequence[str]) -> list[Cell]:
    return [cell for value in grid for cell in _cells(study, arm, value, study.develop)]


def _with(arm: Cell, overrides: Mapping[str, str]) -> Cell:
    keys = [override.partition("=")[0] for override in arm]
    return tuple(
        f"{key}={overrides[key]}" if key in overrides else override
        for key, override in zip(keys, arm, strict=True)
    )


def _mean(study: Tuning, rows: Mapping[Cell, Row], arm: Cell, value: str) -> float:
    """Over development seeds; what is better is lower. inf if one diverged, NaN if it can't be built."""
    those = [rows[cell] for cell in _cells(study, arm, value, study.develop)]
    if any(row["status"] == "left out" for row in those):
        return math.nan
    losses = [row.get(study.metric) for row in those]
    finite = [float(loss) for loss in losses if loss is not None and math.isfinite(loss)]
    if len(finite) < len(losses):
        return math.inf
    return math.fsum(finite) / len(finite) * (-1 if study.metric in HIGHER_IS_BETTER else 1)


def _best(curve: Sequence[float]) -> int:
    return int(np.argmin(np.where(np.isnan(curve), np.inf, curve)))


def _name(study: Tuning, arm: Cell) -> str:
    """The overrides that tell the arms apart."""
    shared = set(study.arms[0]).intersection(*study.arms)
    return " ".join(override for override in arm if override not in shared) or " ".join(arm)
