"""What a race has shown so far, by the judge of `compare`, and what makes that doubtful."""

import time
from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy.special import stdtr

from ablate.analysis import stats
from ablate.analysis.looks import stand
from ablate.config.contrast import FEWEST
from ablate.phrases import counted, joined, lines_if
from ablate.race.race import Race
from ablate.store.columns import Status

SURE = 0.01  # the level at which a drift, or a run far from all others, is told


def standing(race: Race) -> pd.DataFrame:
    """A row for each command, the baseline first: what its runs gave; of its differences from the baseline
    the mean, the interval at the last look, the verdict, and why there is none; about how many more pairs it
    takes; the least difference that so many show; and whether more are run."""
    plan, values, seconds = race.plan, race.by_seed(race.plan["metric"]), race.by_seed("seconds")
    ran_MS, value_MS = seconds.notna().to_numpy(bool), values.to_numpy(float)
    diff_MS, both_MS, (M, S) = value_MS - value_MS[0], ran_MS & ran_MS[0], ran_MS.shape
    pairs_S, k = np.cumsum(np.isfinite(diff_MS[1:]), 1).max(0), plan["tries"] * (M - 1)
    scale = np.nanmax(np.abs(value_MS), initial=0.0)
    judged = stand(
        diff_MS,
        both_MS,
        np.zeros_like(diff_MS),
        at=[look for look in race.looks if look > S or pairs_S[look - 1] >= FEWEST] or [S + 1],
        k=k,
        margin=plan["margin"] or np.nan,
        higher_is_better=plan["higher_is_better"],
        scale=scale,
    )
    lost_M = ((both_MS & np.isnan(value_MS)).sum(1), (both_MS & np.isnan(value_MS[0])).sum(1))
    reasons = {
        "the two failed at unequal numbers of seeds": lost_M[0] != lost_M[1],
        f"fewer than {FEWEST} pairs were judged": judged.n < FEWEST,
        "both gave the same values, so what differs does nothing": ~(np.abs(diff_MS) > 0).any(1),
        "every pair differs by the same, so there is no scatter to judge by": np.isnan(judged.low),
    }
    why = np.select([*reasons.values()], [*reasons], "")
    n, mean, sd = stats.moments(diff_MS)
    scatter = np.where(sd > stats.ROUNDING * scale, sd, np.nan)
    level = np.fmax(judged.level, 1 - stats.ALPHA / k)
    needed = stats.seeds_to_claim(mean, scatter, stats.ALPHA / k, margin=plan["margin"])
    needed = np.where(np.isnan(scatter), 0, needed)
    more = np.clip(needed, min((look for look in race.looks if look > S), default=S), stats.MOST_SEEDS) - S
    now = pd.DataFrame({"n": values.count(axis=1), "mean": values.mean(axis=1), "sd": values.std(axis=1)})
    now["failed"], now["seconds"] = (seconds.notna() & values.isna()).sum(axis=1), seconds.mean(axis=1)
    now["difference"], now["low"], now["high"] = mean, judged.low, judged.high
    now["verdict"], now["why"] = np.where(why == "", judged.verdict, stats.UNDECIDED), why
    now["going"] = ~judged.decided & ((n > 1) | (race.looks[0] > S))
    now["more"], now["least"] = np.where(now["going"], more, 0), stats.least_difference(n, scatter, 1 - level)
    now.loc[now.index[0], ["difference", "verdict", "why", "going"]] = np.nan, "", "", True
    return now


def raced(race: Race, jobs: int, warmup: int, limit_s: float) -> Iterator[str]:
    """Run until everything is decided, or the seeds or the time are over. Yields a line after each pair."""
    began, told = time.monotonic(), -1
    while True:
        now, values, seconds = standing(race), race.by_seed(race.plan["metric"]), race.by_seed("seconds")
        going = [*now.index[now["going"]]]
        reached = int(seconds.loc[going].notna().all().cumprod().sum())
        for seed in range(reached if told < 0 else told, reached):
            apart = (values[seed] - values[seed].iloc[0]).iloc[1:].dropna()
            line = "{} {:+.3g}, on average {:+.3g}, {:,.0f} more".format
            each = [line(name, one, *now.loc[name, ["difference", "more"]]) for name, one in apart.items()]
            yield f"seed {seed}: {'; '.join(each) or 'no pair'} ({race.looks[-1] - reached} left)"
        told = reached
        if len(going) == 1 or reached == race.looks[-1]:
            return
        if time.monotonic() - began + seconds.loc[going].mean(axis=1).sum() > limit_s:
            return race.look_at({*race.looks, *lines_if(reached >= FEWEST, reached)})
        race.warm_up(warmup)
        warmup = 0
        end = min(*(look for look in race.looks if look > reached), reached + max(1, jobs // len(going)))
        for row in race.run(going, range(reached, end), jobs):
            if row["status"] != Status.DONE:
                yield f"seed {row['seed']}: {row['method']} {row['status']}"


def answer(race: Race, now: pd.DataFrame, null: bool) -> list[str]:
    """What the race has shown, and how sure that is."""
    values, against, metric = race.by_seed(race.plan["metric"]), now.iloc[1:], race.plan["metric"]
    found = [
        f"{one.Index} is {one.verdict}: {metric} {one.difference:+.4g} against {now.index[0]}"
        f" ({one.why or f'{one.low:+.4g} to {one.high:+.4g}'})"
        for one in against.itertuples()
    ]
    if null:
        apart, seed = values.diff().iloc[1].std(), 2**0.5 * values.iloc[0].std()
        found = [f"noise: two runs of one seed differ with sd {apart:.3g}, of two seeds with sd {seed:.3g}"]
    pairs = f"{now['n'].max()} of at most {race.looks[-1]} pairs"
    sure = f"95 % confidence for {counted(race.plan['tries'] * len(against), 'comparison')}"
    least = against["least"].max()
    shows = lines_if(least < np.inf, f"a difference of {least:.2g} shows in 8 of 10 such races")
    return ["; ".join(found), "; ".join([pairs, sure, *shows])]


def doubts(values: pd.DataFrame) -> list[str]:
    """What makes the runs of a race worth little. values: a row for each command, a column for each seed."""
    same = [str(name) for name, one in values.iterrows() if one.count() > 2 and one.nunique() == 1]
    lines = lines_if(same, f"every run of {joined(same)} gave one value: the seed does not reach the program")
    for apart in (row.dropna() for _, row in (values.iloc[1:] - values.iloc[0]).iterrows()):
        if len(apart) >= FEWEST:  # one outlier, by the test of Grubbs (1950)
            rest = apart.drop(far := (apart - apart.mean()).abs().idxmax())
            scale = max(rest.std() * (1 + 1 / len(rest)) ** 0.5, 1e-30)
            if _p((apart[far] - rest.mean()) / scale, len(rest) - 1) * len(apart) < SURE:
                gave = ", ".join(f"{name} {value:g}" for name, value in values[far].dropna().items())
                lines.append(f"seed {far} is far from all others ({gave}): read its logs")
    means = values.mean(skipna=False).dropna()
    if len(means) >= FEWEST and means.nunique() > 1:
        r = np.corrcoef(means.index, means)[0, 1]
        if _p(r / np.sqrt(max(1 - r * r, 1e-12) / (len(means) - 2)), len(means) - 2) < SURE:
            lines.append(
                f"values drift with time (correlation {r:.2f}): something else changes on this machine"
            )
    return [*dict.fromkeys(lines)]


def _p(t: float, df: int) -> float:
    return 2 * float(stdtr(df, -abs(t)))
