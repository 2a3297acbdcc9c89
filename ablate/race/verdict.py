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
    value_MS, lost_MS = values.to_numpy(), (values.isna() & seconds.notna()).to_numpy()
    cases = [Case(np.array([1.0, -1.0]), value_MS[[m, 0]], lost_MS[[m, 0]]) for m in range(len(values))]
    k, reached = plan["tries"] * (len(cases) - 1), seconds.iloc[0].count()
    how = {"margin": plan["margin"] or np.nan, "higher_is_better": plan["higher_is_better"]}
    judged = stand(cases, at=plan["looks"], k=k, **how)
    pairs = stats.paired(np.array([of.difference for of in cases]), np.nanmax(np.abs(value_MS), initial=0.0))
    sd = np.where(np.isnan(pairs.se), np.nan, pairs.sd)
    seeded_M = np.array(["{seed}" in command for command in plan["commands"].values()])
    still_M = seeded_M & (values.nunique(axis=1).to_numpy() < 2) & (judged.n >= FEWEST)
    still_M |= still_M[0]
    more_failed = [of.more[:seeds].sum() for of, seeds in zip(cases, judged.seeds, strict=True)]
    reasons = {
        "they failed at unequal numbers of seeds": np.array(more_failed) != 0,
        f"fewer than {FEWEST} pairs were judged": judged.n < FEWEST,
        "one gave the same at every seed: perhaps the seed never reached it": still_M,
        "every pair differs by the same: perhaps what differs does nothing": np.isnan(judged.low),
    }
    why = np.select([*reasons.values()], [*reasons], "")
    needed = stats.seeds_to_claim(pairs.diff, sd, stats.ALPHA / k, margin=plan["margin"])
    columns = {
        **{"n": values.count(axis=1), "mean": values.mean(axis=1), "sd": values.std(axis=1)},
        **{"failed": lost_MS.sum(1), "seconds": seconds.mean(axis=1)},
        **{"difference": pairs.diff, "low": judged.low, "high": judged.high},
        **{"verdict": np.where(why == "", judged.verdict, stats.UNDECIDED), "why": why},
        "more": np.clip(np.where(sd > 0, needed, 0), max(FEWEST, reached), stats.MOST_SEEDS) - reached,
        "least": stats.least_difference(pairs.n, sd, np.fmin(1 - judged.level, stats.ALPHA / k)),
        "going": ~(judged.decided | still_M) & ((pairs.n > 1) | (plan["looks"][0] > reached)),
    }
    now = pd.DataFrame(columns, values.index)
    now.loc[now.index[0], ["difference", "verdict", "why", "going"]] = np.nan, "", "", True
    return now


def raced(race: Race, jobs: int, warmup: int, limit_s: float) -> Iterator[str]:
    """Run until everything is decided, or the seeds or the time are over. Yields a line after each pair."""
    began, batch, metric = time.monotonic(), range(0), race.plan["metric"]
    while True:
        now, values, seconds = standing(race), race.by_seed(metric), race.by_seed("seconds")
        looks = race.plan["looks"]
        going = [*now.index[now["going"]]]
        reached = int(seconds.loc[going].notna().all().cumprod().sum())
        for seed in batch:
            ended = race.runs["status"].xs(seed, level="seed").items()
            each = [f"{name} {status}" for name, status in ended if status != Status.DONE]
            line = "{} {:+.3g}, on average {:+.3g}, {:,.0f} more".format
            apart = (values[seed] - values[seed].iloc[0]).iloc[1:].dropna()
            each += [line(name, one, *now.loc[name, ["difference", "more"]]) for name, one in apart.items()]
            yield f"seed {seed}: {'; '.join(each)} ({looks[-1] - reached} left)"
        if len(going) == 1 or reached == looks[-1]:
            return
        if time.monotonic() - began + seconds.loc[going].mean(axis=1).sum() > limit_s:
            return race.look_at(*lines_if(reached >= FEWEST, reached))
        for warm in range(0 if batch else warmup):  # at seeds behind those of the race, without a row
            for name in going:
                race.run_one(name, race.plan["seeds"] + warm)
        at_once = max(1, -(-jobs // len(going)))
        batch = range(reached, min(*(look for look in looks if look > reached), reached + at_once))
        race.run(going, batch, jobs)


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
    pairs = f"{now['n'].max()} of at most {race.plan['looks'][-1]} pairs"
    return ["; ".join(found), "; ".join([pairs, sure, *shows])]


def doubts(values: pd.DataFrame) -> list[str]:
    """What makes the runs of a race worth little. values: a row for each command, a column for each seed."""
    lines = list[str]()
    for name, apart in (values - values.iloc[0]).iloc[1:].iterrows():
        if (far := stats.bimodal(apart.to_numpy(float), len(values) - 1)) is not None:
            seeds = first_few([*apart.index[far]])
            lines.append(f"{name}: seed {seeds} is far from all others: read the logs")
    means = values.mean(skipna=False).dropna()
    if len(means) >= FEWEST and means.nunique() > 1:
        r, df = np.corrcoef(means.index, means)[0, 1], len(means) - 2
        if 2 * stdtr(df, -abs(r) * np.sqrt(df / max(1 - r * r, 1e-12))) < SURE:
            lines.append(f"values drift with time (correlation {r:.2f}): something else changes here")
    return lines
