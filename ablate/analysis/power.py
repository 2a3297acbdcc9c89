"""How many seeds it takes to detect a difference, given the noise of a pilot study."""

import math
from collections.abc import Sequence
from typing import Unpack

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ablate.analysis import stats
from ablate.analysis.compare import ALPHA, Comparison, compare
from ablate.analysis.contrasts import EQUAL
from ablate.analysis.finding import Finding
from ablate.analysis.frames import is_foreign, seconds_a_run
from ablate.analysis.looks import usual, usual_seeds
from ablate.analysis.question import Question
from ablate.config.contrast import FEWEST, MARGIN
from ablate.config.rules import ConfigError
from ablate.phrases import counted, lines_if, option, texts
from ablate.store.columns import column_named
from ablate.store.record import StudyRecord

SURE = 0.9  # the level of the interval of the noise itself


def seeds_needed(
    rows: pd.DataFrame,
    *,
    difference: float | None = None,
    power: float = 0.8,
    contrasts: int | None = None,
    records: Sequence[StudyRecord] = (),
    cores: int = 1,
    **question: Unpack[Question],
) -> tuple[pd.DataFrame, list[str]]:
    """Seeds per variant with which `compare` detects a true difference (in the metric's unit) with this
    power.

    One row for the noise as measured, and one for each end of its interval: noise, sd, difference, seeds,
    runs, minutes (from the pilot's wall_s, on `cores` cores). contrasts: the size of the family, by default
    that of the primary contrasts in records, else of all; each is tested at ALPHA/contrasts. difference: by
    default MARGIN, of what is in nats. question: as for `compare`. Raises ConfigError.
    """
    result = compare(rows, records=records, **question)
    if difference is None and column_named(result.metric).unit != "nats":
        raise ConfigError(f"{result.metric} is not in nats, so give the --difference to detect, in its unit")
    difference = MARGIN if difference is None else difference
    family = _family(result)
    sd, df, source = _noise(result, family)
    k = contrasts or max(len(family), 1)
    arms = (
        k + 1
        if contrasts or not family
        else len({side for one in family for side in (one.variant, one.baseline)})
    )
    low, high = sd_interval(sd, df)
    noise = {"as measured": sd, "if lower": low, "if higher": high}
    table = pd.DataFrame({"noise": [*noise], "sd": [*noise.values()], "difference": difference})
    seeds = stats.seeds_to_claim(difference, table["sd"], ALPHA / k, power=power)
    if np.isinf(seeds).any():
        raise ConfigError(
            f"--difference {difference:g}: more than {stats.MOST_SEEDS:,} seeds, at a noise of {sd:.2g}"
        )
    run_s, at_once = seconds_a_run(result.rows, cores)
    is_named = family[0].is_primary if family else any(record.primary for record in records)
    fewest = 2 if is_named else FEWEST
    table["seeds"] = np.maximum(seeds, fewest).astype(int)
    table["runs"] = table["seeds"] * arms
    table["minutes"] = table["runs"] * run_s / 60 / at_once
    lines = [
        *texts(note for note in result.notes if note.kind == "taken"),
        source,
        f"its {SURE:.0%} interval is {low:.2g} to {high:.2g}: a pilot of few seeds knows its noise badly",
        f"power {power:g} of each of {counted(k, 'comparison')} at {ALPHA:g}/{k} (Bonferroni, the first"
        f" step of Holm), {arms} variants; not of all at once",
    ]
    lines += lines_if(
        (seeds < fewest).any(),
        f"at least {fewest} seeds: compare gives no verdict of fewer that no study named",
    )
    if math.isnan(run_s):
        lines.append("no times: the rows have no wall_s")
    else:
        lines.append(f"minutes: {at_once} at a time on the cores of this machine, {run_s:.3g} s a run")
    looks = usual(usual_seeds(k))
    at = ", ".join(map(str, looks))
    lines.append(f"looks at {at} seeds: {arms * looks[0]:,} to {arms * looks[-1]:,} runs")
    return table, lines


def _family(result: Comparison) -> list[Finding]:
    """The comparisons to plan for: those that a study declared in advance, else all others."""
    tested = [one for one in result.findings if one.is_tested]
    return [one for one in tested if one.is_primary] or [one for one in tested if one.family == "exploratory"]


def _noise(result: Comparison, family: Sequence[Finding]) -> tuple[float, int, str]:
    """The sd of paired differences, its degrees of freedom, and a line on its source.

    It is pooled over comparisons. As these share baselines, the degrees of freedom are only those of the
    comparison with the most seeds. Without comparisons it is √2 times the sd of single variants, as if
    pairing gained nothing.
    """
    if family:
        n = np.array([one.seeds for one in family])
        pooled = _pooled([one.sd_diff for one in family], n)
        which = "primary comparison" if family[0].is_primary else "comparison"
        compared = f"{counted(len(n), which)}, up to {n.max()} seeds"
        what = (
            "paired differences"
            if all(one.n_baseline is None for one in family)
            else "differences, not all of pairs"
        )
        return pooled, int(n.max() - 1), f"noise: sd {pooled:.2g} of {what}, {compared}"
    table = result.table
    if ((table["pairs"] >= 2) & (table["sd_diff"] == 0) & (table["verdict"] != EQUAL)).any():
        raise ConfigError(
            f"{result.metric} differs by the same at every seed: there is no noise to plan for; run more"
            " seeds"
        )
    n, sd = table["n"].to_numpy(int), table["sd"].to_numpy(float)
    if not (n >= 2).any():
        raise ConfigError("no variant has two finished seeds: the noise is unknown; run a pilot, seed=0,1,2")
    known = (n >= 2) & (sd > 0)
    if not known.any():
        raise ConfigError(
            f"{result.metric} is the same at every seed of each variant: there is no noise to plan for"
        )
    if is_foreign(result.rows) and len(n) > 1 and result.table["baseline"].isna().all():
        last = option("--baseline", *(f"{key}={result.table[key].iloc[-1]}" for key in result.shown))
        raise ConfigError(f"no baseline is named; name one, as {last}")
    single = math.sqrt(2) * _pooled(sd[known], n[known])
    source = f"√2 times that of single variants, {n.max()} seeds: no two variants to pair"
    return single, int(n.max() - 1), f"noise: sd {single:.2g} = {source}"


def _pooled(sd: ArrayLike, n: stats.Array) -> float:
    return float(np.sqrt(np.average(np.square(sd), weights=n - 1)))


def sd_interval(sd: float, df: int) -> tuple[float, float]:
    """sd·√(df/χ²), the confidence interval of the standard deviation of a normal distribution."""
    from scipy.stats import chi2

    low, high = (sd * math.sqrt(df / chi2.isf(p, df)) for p in ((1 - SURE) / 2, (1 + SURE) / 2))
    return low, high
