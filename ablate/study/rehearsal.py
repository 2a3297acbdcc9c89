"""A study rehearsed many times in memory, with simulated runs: how often each contrast is decided, rightly or
wrongly."""

import math
from dataclasses import dataclass, replace

import numpy as np

from ablate.analysis import stats
from ablate.compose.sweep import Sweep
from ablate.config.rules import ConfigError
from ablate.execution.run import Run
from ablate.execution.simulated import effect_on, row_of
from ablate.store.columns import Row, column_named
from ablate.study.config import Absent, Design, Overrides
from ablate.study.study import Study

APART = 1_000_000  # between the seeds of one rehearsal and the next


@dataclass(frozen=True)
class Rehearsed:
    """A contrast in many rehearsals. effect: its difference as it is assumed, in nats. right, wrong: in which
    share of them it was decided so; the others left it undecided. seeds: that this took, on average."""

    contrast: str
    effect: float
    right: float
    wrong: float
    seeds: float


@dataclass(frozen=True)
class Rehearsals:
    """runs: of one, on average. wrong: the share with a wrong verdict on any contrast."""

    count: int
    runs: float
    wrong: float
    contrasts: list[Rehearsed]


def rehearse(sweep: Sweep, count: int) -> Rehearsals:
    """The sweep's study with simulated runs, `count` times with other seeds. Raises ConfigError."""
    study = Study(sweep)
    design = _judged(study)
    plan, runs = design.plan, list[int]()
    assert plan, "it has contrasts"
    of_arms = {arm: effect_on(study.run_of(arm).config) for arm in plan.arms}
    effects = np.array([sum(w * of_arms[arm] for w, arm in one.sides) for one in plan.contrasts])
    right, wrong = (np.zeros((count, len(effects)), bool) for _ in range(2))
    seeds = np.zeros(len(effects))
    for number in range(count):
        rows = _rows(study, design, number)
        now = design.standing(rows)
        assert now, "it looks"
        runs.append(sum(row["status"] != Absent.EXCLUDED for row in rows.values()))
        right[number], wrong[number] = judged(now.verdict, effects, plan.margin, plan.metric)
        seeds += now.seeds
    names = [one.name for one in plan.contrasts]
    each = zip(names, effects, right.mean(0), wrong.mean(0), seeds / count, strict=True)
    contrasts = [Rehearsed(name, *map(float, numbers)) for name, *numbers in each]
    return Rehearsals(count, sum(runs) / count, float(wrong.any(1).mean()), contrasts)


def judged(
    verdict_K: stats.Array, effect_K: stats.Array, margin: float, metric: str
) -> tuple[stats.Array, stats.Array]:
    """Which verdicts are right, and which are wrong, where the true differences are `effect`, in nats.
    Equivalent is right within the margin, of a metric in other units at no difference."""
    most = margin if column_named(metric).unit == "nats" and not math.isnan(margin) else 0.0
    verdicts = (stats.BETTER, stats.WORSE, stats.EQUIVALENT)
    is_better, is_worse, is_equal = (verdict_K == verdict for verdict in verdicts)
    right = is_better & (effect_K < 0) | is_worse & (effect_K > 0) | is_equal & (np.abs(effect_K) <= most)
    return right, (is_better | is_worse | is_equal) & ~right


def _judged(study: Study) -> Design:
    """Its design; without looks, with one at its last seed. Raises ConfigError without contrasts."""
    if not study.contrasts:
        raise ConfigError(
            "--rehearse N: only a study with primary contrasts can be right or wrong; rehearse this one once"
        )
    design, plan = study.design, study.design.plan
    assert plan, "it has contrasts"
    return design if plan.at else replace(design, plan=replace(plan, at=[len(plan.seeds)]))


def _rows(study: Study, design: Design, number: int) -> dict[Overrides, Row]:
    """The rows of a whole study, by the overrides of its runs."""
    rows = dict[Overrides, Row]()
    while proposed := design.propose(rows):
        for overrides in proposed:
            try:
                rows[overrides] = row_of(_reseeded(study.run(overrides), APART * number))
            except ConfigError:  # left out
                rows[overrides] = {"status": Absent.EXCLUDED}
    return rows


def _reseeded(run: Run, by: int) -> Run:
    streams = {name: None if seed is None else seed + by for name, seed in vars(run.config.seeds).items()}
    seeds = replace(run.config.seeds, **streams)
    return run.with_seeds(replace(run.config, seed=run.config.seed + by, seeds=seeds))
