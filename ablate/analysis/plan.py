"""How many seeds a difference needs, from the noise of a pilot study."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.analysis.cells import Cells, collect
from ablate.analysis.compare import report_rows
from ablate.analysis.contrasts import pair_up
from ablate.analysis.roles import without_values
from ablate.analysis.where import select, with_options
from ablate.config import ConfigError

SURE = 0.9  # of the interval of the noise itself


def plan(
    rows: pd.DataFrame,
    *,
    difference: float,
    power: float = 0.8,
    alpha: float = 0.05,
    contrasts: int | None = None,
    budget_min: float | None = None,
    metric: str = "val_loss",
    where: Sequence[str] = (),
    baseline: Mapping[str, Any] | None = None,
) -> tuple[pd.DataFrame, list[str]]:
    """Seeds per variant with which `compare` sees a true difference (metric's unit) with this power.

    A row for the noise as measured and one for each end of its interval: noise, sd, difference, seeds, runs,
    minutes (one run after another, by the pilot's wall_s), and with a budget budget_seeds and sees, the
    smallest difference those see. contrasts: the size of the family, by default the pilot's; the power
    is that of each comparison at α/contrasts. Returns the table and lines that explain it.
    Raises ConfigError.
    """
    if not (difference > 0 and 0 < power < 1 and 0 < alpha < 1 and (contrasts is None or contrasts > 0)):
        raise ConfigError(
            f"--difference {difference} --power {power} --alpha {alpha} --contrasts {contrasts}: a difference"
            " is above 0, power and alpha lie between 0 and 1, and there is at least one contrast"
        )
    cells = collect(without_values(select(with_options(report_rows(rows)[0]), where)), metric)
    sd, df, told, pairs = _noise(cells, baseline)
    k = contrasts or max(pairs, 1)
    arms = k + 1
    low, high = _sd_interval(sd, df)
    table = pd.DataFrame(
        {"noise": ["as measured", "if lower", "if higher"], "sd": [sd, low, high], "difference": difference}
    )
    seeds = stats.seeds_to_claim(difference, table["sd"].to_numpy(), alpha / k, power=power)
    if np.isinf(seeds).any():
        raise ConfigError(
            f"--difference {difference:g}: more than {stats.MOST_SEEDS:,} seeds, at a noise of {sd:.2g}"
        )
    run_s = _seconds_a_run(rows)
    table["seeds"] = seeds.astype(int)
    table["runs"] = table["seeds"] * arms
    table["minutes"] = table["runs"] * run_s / 60
    lines = [
        told,
        f"its {SURE:.0%} interval is {low:.2g} to {high:.2g}: a pilot of few seeds knows its noise badly",
        f"power {power:g} of each of {k} comparison{'s' * (k > 1)} at {alpha:g}/{k} (Bonferroni, the first"
        f" step of Holm), {arms} variants; not of all at once",
    ]
    if math.isnan(run_s):
        lines.append("no times: the rows have no wall_s")
    if budget_min is not None:
        if math.isnan(run_s):
            raise ConfigError(f"--budget {budget_min:g}: the rows have no wall_s, so runs have no known time")
        if not budget_min * 60 >= 2 * arms * run_s:
            raise ConfigError(
                f"--budget {budget_min:g}: two seeds of {arms} variants take"
                f" {2 * arms * run_s / 60:.3g} minutes; give more, or fewer --contrasts"
            )
        table["budget_seeds"] = math.floor(budget_min * 60 / (arms * run_s))
        n = table["budget_seeds"].to_numpy()
        table["sees"] = [
            float(stats.least_difference(one, noise, alpha / k, power=power))
            for one, noise in zip(n, table["sd"], strict=True)
        ]
    return table, lines


def _noise(cells: Cells, baseline: Mapping[str, Any] | None) -> tuple[float, int, str, int]:
    """sd of paired differences, its degrees of freedom, a line on where it is from, the comparisons.

    Pooled over comparisons. They share baselines, so as degrees of freedom only those of the one with
    the most seeds count. One variant alone: √2 times its own sd, as if seeds paired nothing.
    """
    chosen = baseline or ({"fusion": "concat"} if "concat" in set(cells.table["fusion"]) else None)
    pairs = pair_up(cells, chosen) if chosen else []
    index = np.array(pairs, int).reshape(-1, 2)
    n, _, sd = stats.moments(cells.values[index[:, 0]] - cells.values[index[:, 1]])
    known = (n >= 2) & (sd > 1e-12)
    if known.any():
        pooled = float(np.sqrt(np.average(sd[known] ** 2, weights=n[known] - 1)))
        told = (
            f"noise: sd {pooled:.2g} of paired differences, {known.sum()} comparisons, up to {n.max()} seeds"
        )
        return pooled, int(n.max() - 1), told, int(known.sum())
    n, _, sd = stats.moments(cells.values)
    known = (n >= 2) & (sd > 0)
    if not known.any():
        raise ConfigError("no variant has two finished seeds: the noise is unknown; run a pilot, seed=0,1,2")
    single = math.sqrt(2) * float(np.sqrt(np.average(sd[known] ** 2, weights=n[known] - 1)))
    told = (
        f"noise: sd {single:.2g} = √2 times that of single variants, {n.max()} seeds: no two variants to pair"
    )
    return single, int(n.max() - 1), told, 0


def _sd_interval(sd: float, df: int) -> tuple[float, float]:
    """sd·√(df/χ²), the interval of a normal's standard deviation."""
    from scipy.stats import chi2

    low, high = (sd * math.sqrt(df / chi2.isf(p, df)) for p in ((1 - SURE) / 2, (1 + SURE) / 2))
    return low, high


def _seconds_a_run(rows: pd.DataFrame) -> float:
    return float(pd.to_numeric(rows["wall_s"], errors="coerce").mean()) if "wall_s" in rows else math.nan
