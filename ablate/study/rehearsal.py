"""A study rehearsed many times in memory, with simulated runs: how often each contrast is decided, rightly or
wrongly."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.compose.sweep import Sweep
from ablate.config.rules import ConfigError
from ablate.execution.simulated import effect_on, row_of
from ablate.store.columns import Row, column_named
from ablate.study.config import Absent, Design, Overrides
from ablate.study.study import Study

APART = 1_000_000  # between the seeds of one rehearsal and the next


@dataclass(frozen=True)
class Rehearsals:
    """runs: of one, on average. wrong: the share with a wrong verdict on any contrast. contrasts: a row each:
    contrast; effect, its difference as it is assumed, in nats; right and wrong, in which share of them it was
    decided so, while the others left it undecided; seeds that this took, on average."""

    runs: float
    wrong: float
    contrasts: pd.DataFrame


def require_contrasts(sweep: Sweep, count: int) -> None:
    """Raises ConfigError if the sweep names no contrast of which rehearsals could be right or wrong."""
    plan = Study(sweep).design.plan
    if not (plan and plan.family):
        why = "only a study with primary contrasts can be right or wrong; rehearse this one once"
        raise ConfigError(f"--rehearse {count}: {why}")


def rehearse(sweep: Sweep, count: int) -> Rehearsals:
    """The sweep's study with simulated runs, `count` times with other seeds. Raises ConfigError."""
    study = Study(sweep)
    design, plan, runs = study.design, study.design.plan, list[int]()
    assert plan, "it has contrasts"
    if not plan.at:  # it is judged at its last seed
        design = replace(design, plan=replace(plan, at=[len(plan.seeds)]))
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
    of = {"contrast": [one.name for one in plan.contrasts], "effect": effects, "right": right.mean(0)}
    table = pd.DataFrame({**of, "wrong": wrong.mean(0), "seeds": seeds / count})
    return Rehearsals(sum(runs) / count, float(wrong.any(1).mean()), table)


def judged(
    verdict_K: stats.Array, effect_K: stats.Array, margin: float, metric: str
) -> tuple[stats.Array, stats.Array]:
    """Which verdicts are right, and which are wrong, where the true differences are `effect`, in nats.
    Equivalent is right within the margin, of a metric in other units at no difference."""
    most = margin if column_named(metric).unit == "nats" and not math.isnan(margin) else 0.0
    is_better, is_worse, is_equal, _ = (verdict_K == verdict for verdict in stats.VERDICTS)
    right = is_better & (effect_K < 0) | is_worse & (effect_K > 0) | is_equal & (np.abs(effect_K) <= most)
    return right, (is_better | is_worse | is_equal) & ~right


def _rows(study: Study, design: Design, number: int) -> dict[Overrides, Row]:
    """The rows of a whole study, by the overrides of its runs."""
    rows, by = dict[Overrides, Row](), APART * number
    while proposed := design.propose(rows):
        for overrides in proposed:
            try:
                run = study.run(overrides)
                seeds = {name: seed + by for name, seed in vars(run.config.seeds).items() if seed is not None}
                config = replace(run.config, seeds=replace(run.config.seeds, **seeds))
                rows[overrides] = row_of(run.with_seeds(replace(config, seed=config.seed + by)))
            except ConfigError:  # left out
                rows[overrides] = {"status": Absent.EXCLUDED}
    return rows
