"""How many seeds it takes to detect a difference, given the noise of a pilot study."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import compare
from ablate.analysis.question import NOTHING_ASKED, Question, above_0
from ablate.config.contrast import FEWEST, MARGIN
from ablate.config.rules import ConfigError
from ablate.phrases import counted, described, lines_if
from ablate.store.columns import column_named
from ablate.store.record import StudyRecord

SURE = 0.9  # the level of the interval of the noise itself


def seeds_needed(
    rows: pd.DataFrame,
    question: Question = NOTHING_ASKED,
    records: Sequence[StudyRecord] = (),
    *,
    difference: float | None = None,
) -> tuple[pd.DataFrame, list[str]]:
    """Seeds per variant with which `compare` detects a true difference (in the metric's unit) in the share
    stats.POWER of cases, and lines on how that is reckoned.

    One row for the noise as measured, and one for each end of its interval: noise, sd, difference, seeds,
    runs. difference: by default MARGIN, of what is in nats. question: as for `compare`. Raises ConfigError.

    The noise is the sd of paired differences, pooled over the planned contrasts or, without any, over all. As
    these share baselines, its degrees of freedom are only those of the one with the most seeds. Of a study
    with looks only the seeds of the first look count: which contrasts go on depends on their scatter.
    """
    result = compare(rows, question, records)
    if difference is None and column_named(result.metric).unit != "nats":
        raise ConfigError(f"{result.metric} is not in nats, so give the --difference to detect, in its unit")
    difference = MARGIN if difference is None else above_0("--difference", difference)
    if not (family := result.tested):
        raise ConfigError(
            f"{result.metric}: no difference of two variants scatters over seeds here, so there is no noise"
            " to plan for; name a --baseline, or run a pilot, as -m fusion=concat,sum seed=0,1,2"
        )
    first = next((record.looks.at[0] for record in records if record.looks), None)
    n = np.array([min(one.seeds, first or one.seeds) for one in family])
    sds = [stats.moments(one.differences[None, :first])[2][0] if first else one.sd for one in family]
    sd = float(np.sqrt(np.average(np.square(sds), weights=n - 1)))
    low, high = sd_interval(sd, int(n.max() - 1))
    noise = {"as measured": sd, "if lower": low, "if higher": high}
    table = pd.DataFrame({"noise": [*noise], "sd": [*noise.values()], "difference": difference})
    k, arms = len(family), len({side for one in family for side in one.both})
    seeds = stats.seeds_to_claim(difference, table["sd"], stats.ALPHA / k, power=stats.POWER)
    most = f"more than {stats.MOST_SEEDS:,} seeds"
    if (beyond := np.isinf(seeds)).all():
        raise ConfigError(f"--difference {difference:g}: {most}, at a noise of {sd:.2g}")
    table["seeds"] = pd.array(np.where(beyond, np.nan, np.maximum(seeds, FEWEST)), "Int64")
    table["runs"] = table["seeds"] * arms
    kind = "planned comparison" if family[0].is_planned else "comparison"
    return table, [
        *described(result.notes),
        f"noise: sd {sd:.2g} of differences, {counted(k, kind)}, up to {n.max()} seeds",
        f"its {SURE:.0%} interval is {low:.2g} to {high:.2g}: a pilot of few seeds knows its noise badly",
        f"power {stats.POWER:g} of each of {counted(k, 'comparison')} at {stats.ALPHA:g}/{k} (Bonferroni)",
        *lines_if(beyond.any(), f"blank: {most}"),
        *lines_if((seeds < FEWEST).any(), f"at least {FEWEST} seeds: fewer give no verdict"),
    ]


def sd_interval(sd: float, df: int) -> tuple[float, float]:
    """sd·√(df/χ²), the confidence interval of the standard deviation of a normal distribution."""
    from scipy.special import chdtri

    low, high = (sd * math.sqrt(df / chdtri(df, p)) for p in ((1 - SURE) / 2, (1 + SURE) / 2))
    return low, high
