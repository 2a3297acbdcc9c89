"""What a race has shown so far, by the judge of `compare`, and what makes that doubtful."""

import time
from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy.special import stdtr

from ablate.analysis import stats
from ablate.analysis.looks import Case, stand
from ablate.config.contrast import FEWEST
from ablate.phrases import counted, first_few, lines_if
from ablate.race.race import Race
from ablate.store.columns import Status

SURE = 0.01  # the level at which a drift is told


def standing(race: Race) -> pd.DataFrame:
    """A row for each command, the baseline first: what its runs gave; of its differences from the baseline
    the mean, the interval at the last look, the verdict, and why there is none; about how many more pairs it
    takes; the least difference that so many show; and whether more are run."""
    plan, values, seconds = race.plan, race.by_seed(race.plan["metric"]), race.by_seed("seconds")
    value_MS, ran_MS = values.to_numpy(float), seconds.notna().to_numpy(bool)
    diff_MS, both_MS, lost_MS = value_MS - value_MS[0], ran_MS & ran_MS[0], ran_MS & np.isnan(value_MS)
    (M, S), pairs_S = diff_MS.shape, np.isfinite(diff_MS[1:]).cumsum(1).max(0)
    k, scale = plan["tries"] * (M - 1), np.nanmax(np.abs(value_MS), initial=0.0)
    looks = [look for look in race.looks if look > S or pairs_S[look - 1] >= FEWEST] or [S + 1]
    how = {"margin": plan["margin"] or np.nan, "higher_is_better": plan["higher_is_better"]}
    gone_MS, weights = both_MS & np.isnan(diff_MS), np.array([1.0, -1.0])  # a pair that failed has ended
    cases = [Case(weights, value_MS[[m, 0]], np.array([gone_MS[m]] * 2)) for m in range(M)]
    judged = stand(cases, at=looks, k=k, **how)
    n, mean, sd = stats.moments(diff_MS)
    sd = np.where(sd > stats.ROUNDING * scale, sd, np.nan)
    seeded_M = np.array(["{seed}" in command for command in plan["commands"].values()])
    still_M = seeded_M & (values.nunique(axis=1).to_numpy() < 2) & (judged.n >= FEWEST)
    failed_M, of_base_M = (lost_MS & both_MS).sum(1), (lost_MS[0] & both_MS).sum(1)
    reasons = {
        "they failed at unequal numbers of seeds": failed_M != of_base_M,
        f"fewer than {FEWEST} pairs were judged": judged.n < FEWEST,
        "one gave the same at every seed: perhaps the seed never reached it": still_M | still_M[0],
        "every pair differs by the same: perhaps what differs does nothing": np.isnan(judged.low),
    }
    why = np.select([*reasons.values()], [*reasons], "")
    needed = np.where(sd > 0, stats.seeds_to_claim(mean, sd, stats.ALPHA / k, margin=plan["margin"]), 0)
    soonest = min((look for look in race.looks if look > S), default=S)
    now = pd.DataFrame({"n": values.count(axis=1), "mean": values.mean(axis=1), "sd": values.std(axis=1)})
    now = now.assign(failed=lost_MS.sum(1), seconds=seconds.mean(axis=1))
    now = now.assign(difference=mean, low=judged.low, high=judged.high)
    now = now.assign(verdict=np.where(why == "", judged.verdict, stats.UNDECIDED), why=why)
    now["going"] = ~(judged.decided | still_M | still_M[0]) & ((n > 1) | (race.looks[0] > S))
    now["more"] = np.where(now["going"], np.clip(needed, soonest, stats.MOST_SEEDS) - S, 0)
    now["least"] = stats.least_difference(n, sd, np.fmin(1 - judged.level, stats.ALPHA / k))
    now.loc[now.index[0], ["difference", "verdict", "why", "going"]] = np.nan, "", "", True
    return now


def raced(race: Race, jobs: int, warmup: int, limit_s: float) -> Iterator[str]:
    """Run until everything is decided, or the seeds or the time are over. Yields a line after each pair."""
    began, batch = time.monotonic(), range(0)
    while True:
        now, values, seconds = standing(race), race.by_seed(race.plan["metric"]), race.by_seed("seconds")
        going = [*now.index[now["going"]]]
        reached = int(seconds.loc[going].notna().all().cumprod().sum())
        for seed in batch:
            apart = (values[seed] - values[seed].iloc[0]).iloc[1:].dropna()
            line = "{} {:+.3g}, on average {:+.3g}, {:,.0f} more".format
            each = [line(name, one, *now.loc[name, ["difference", "more"]]) for name, one in apart.items()]
            yield f"seed {seed}: {'; '.join(each) or 'no pair'} ({race.looks[-1] - reached} left)"
        if len(going) == 1 or reached == race.looks[-1]:
            return
        if time.monotonic() - began + seconds.loc[going].mean(axis=1).sum() > limit_s:
            return race.look_at({*race.looks, *lines_if(reached >= FEWEST, reached)})
        race.warm_up(warmup)
        warmup = 0
        at_once = max(1, -(-jobs // len(going)))
        batch = range(reached, min(*(look for look in race.looks if look > reached), reached + at_once))
        for row in race.run(going, batch, jobs):
            if row["status"] != Status.DONE:
                yield f"seed {row['seed']}: {row['method']} {row['status']}"


def answer(race: Race, now: pd.DataFrame, null: bool) -> list[str]:
    """What the race has shown, and how sure that is."""
    values, against, metric = race.by_seed(race.plan["metric"]), now.iloc[1:], race.plan["metric"]
    found = [
        f"{one.Index} is {one.verdict}: {metric} {one.difference:+.4g} against {now.index[0]}"
        f" ({one.why or f'{one.low:+.4g} to {one.high:+.4g}'})".replace("+nan", "unknown")
        for one in against.itertuples()
    ]
    if null:
        found = [f"noise: two runs of one seed differ with sd {values.diff().iloc[1].std():.3g}"]
    sure = f"95 % confidence for {counted(race.plan['tries'] * len(against), 'comparison')}"
    least = against["least"].max()
    shows = lines_if(least < np.inf, f"a difference of {least:.2g} shows in 8 of 10 such races")
    pairs = f"{now['n'].max()} of at most {race.looks[-1]} pairs"
    return ["; ".join(found), "; ".join([pairs, sure, *shows])]


def doubts(values: pd.DataFrame) -> list[str]:
    """What makes the runs of a race worth little. values: a row for each command, a column for each seed."""
    lines = list[str]()
    for name, apart in (values - values.iloc[0]).iloc[1:].iterrows():
        if (far := stats.bimodal(apart.to_numpy(float), len(values) - 1)) is not None:
            lines.append(
                f"{name}: seed {first_few([*apart.index[far]])} is far from all others: read the logs"
            )
    means = values.mean(skipna=False).dropna()
    if len(means) >= FEWEST and means.nunique() > 1:
        r, df = np.corrcoef(means.index, means)[0, 1], len(means) - 2
        if 2 * stdtr(df, -abs(r) * np.sqrt(df / max(1 - r * r, 1e-12))) < SURE:
            lines.append(f"values drift with time (correlation {r:.2f}): something else changes here")
    return lines
