"""How many seeds it takes to detect a difference, given the noise of a pilot study."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ablate.analysis import stats
from ablate.analysis.compare import Comparison, compare
from ablate.analysis.finding import Finding
from ablate.analysis.looks import SEEDS, usual
from ablate.analysis.question import NOTHING_ASKED, Question
from ablate.config.contrast import FEWEST, MARGIN
from ablate.config.rules import ConfigError
from ablate.phrases import counted, described, lines_if, option
from ablate.store.columns import column_named
from ablate.store.frames import is_foreign, seconds_a_run
from ablate.store.record import StudyRecord

SURE = 0.9  # the level of the interval of the noise itself


def seeds_needed(
    rows: pd.DataFrame,
    question: Question = NOTHING_ASKED,
    records: Sequence[StudyRecord] = (),
    *,
    difference: float | None = None,
    power: float = 0.8,
    contrasts: int | None = None,
    cores: int = 1,
) -> tuple[pd.DataFrame, list[str]]:
    """Seeds per variant with which `compare` detects a true difference (in the metric's unit) with this
    power.

    One row for the noise as measured, and one for each end of its interval: noise, sd, difference, seeds,
    runs, minutes (from the pilot's wall_s, on `cores` cores). contrasts: the size of the family, by default
    that of the planned contrasts in records, else of all; each is tested at ALPHA/contrasts. difference: by
    default MARGIN, of what is in nats. question: as for `compare`. Raises ConfigError.
    """
    result = compare(rows, question, records)
    if difference is None and column_named(result.metric).unit != "nats":
        raise ConfigError(f"{result.metric} is not in nats, so give the --difference to detect, in its unit")
    difference, family = MARGIN if difference is None else difference, result.tested
    sd, df, source = _noise(result, family, records)
    k = contrasts or max(len(family), 1)
    arms = k + 1 if contrasts or not family else len({side for one in family for side in one.both})
    low, high = sd_interval(sd, df)
    noise = {"as measured": sd, "if lower": low, "if higher": high}
    table = pd.DataFrame({"noise": [*noise], "sd": [*noise.values()], "difference": difference})
    seeds = stats.seeds_to_claim(difference, table["sd"], stats.ALPHA / k, power=power)
    if np.isinf(seeds).any():
        most = f"more than {stats.MOST_SEEDS:,} seeds, at a noise of {sd:.2g}"
        raise ConfigError(f"--difference {difference:g}: {most}")
    run_s, at_once = seconds_a_run(result.rows, cores)
    table["seeds"] = np.maximum(seeds, FEWEST).astype(int)
    table["runs"] = table["seeds"] * arms
    table["minutes"] = table["runs"] * run_s / 60 / at_once
    each = f"power {power:g} of each of {counted(k, 'comparison')} at {stats.ALPHA:g}/{k} (Bonferroni)"
    interval = f"its {SURE:.0%} interval is {low:.2g} to {high:.2g}"
    lines = [*described(result.notes), source, f"{interval}: a pilot of few seeds knows its noise badly"]
    lines.append(f"{each}, {arms} variants; not of all at once")
    lines += lines_if((seeds < FEWEST).any(), f"at least {FEWEST} seeds: fewer give no verdict")
    times = f"minutes: {at_once} at a time on the cores of this machine, {run_s:.3g} s a run"
    lines.append("no times: the rows have no wall_s" if math.isnan(run_s) else times)
    looks = usual(SEEDS)
    at = ", ".join(map(str, looks))
    return table, [*lines, f"looks at {at} seeds: {arms * looks[0]:,} to {arms * looks[-1]:,} runs"]


def _noise(
    result: Comparison, family: Sequence[Finding], records: Sequence[StudyRecord]
) -> tuple[float, int, str]:
    """The sd of paired differences, its degrees of freedom, and a line on its source.

    It is pooled over comparisons. As these share baselines, the degrees of freedom are only those of the
    comparison with the most seeds. Of a study with looks only the seeds of the first look count: which
    contrasts go on from there depends on their scatter. Without comparisons it is √2 times the sd of single
    variants, as if pairing gained nothing.
    """
    if family:
        looks = next((record.looks for record in records if record.looks), None)
        first = looks.at[0] if looks else None
        n = np.array([min(one.seeds, first or one.seeds) for one in family])
        sds = [stats.moments(one.differences[None, :first])[2][0] if first else one.sd for one in family]
        which = counted(len(n), "planned comparison" if family[0].is_planned else "comparison")
        is_paired = all(one.pairs is not None for one in family)
        what = "paired differences" if is_paired else "differences, not all of pairs"
        pooled = _pooled(sds, n)
        return pooled, int(n.max() - 1), f"noise: sd {pooled:.2g} of {what}, {which}, up to {n.max()} seeds"
    none = "there is no noise to plan for"
    if any(one.pairs and one.pairs >= 2 and one.sd == 0 and one.verdict for one in result.findings):
        raise ConfigError(f"{result.metric} differs by the same at every seed: {none}; run more seeds")
    n, sd = result.summary["n"].to_numpy(int), result.summary["sd"].to_numpy(float)
    if not (n >= 2).any():
        raise ConfigError("no variant has two finished seeds: the noise is unknown; run a pilot, seed=0,1,2")
    known = (n >= 2) & (sd > 0)
    if not known.any():
        raise ConfigError(f"{result.metric} is the same at every seed of each variant: {none}")
    if is_foreign(result.rows) and len(n) > 1 and not result.findings:
        last = option("--baseline", *(f"{key}={result.summary[key].iloc[-1]}" for key in result.shown))
        raise ConfigError(f"no baseline is named; name one, as {last}")
    single = math.sqrt(2) * _pooled(sd[known], n[known])
    source = f"√2 times that of single variants, {n.max()} seeds: no two variants to pair"
    return single, int(n.max() - 1), f"noise: sd {single:.2g} = {source}"


def _pooled(sd: ArrayLike, n: stats.Array) -> float:
    return float(np.sqrt(np.average(np.square(sd), weights=n - 1)))


def sd_interval(sd: float, df: int) -> tuple[float, float]:
    """sd·√(df/χ²), the confidence interval of the standard deviation of a normal distribution."""
    from scipy.special import chdtri

    low, high = (sd * math.sqrt(df / chdtri(df, p)) for p in ((1 - SURE) / 2, (1 + SURE) / 2))
    return low, high
