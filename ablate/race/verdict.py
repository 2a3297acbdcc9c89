"""What a race has shown so far, by the judge of `compare`, and what makes that doubtful."""

import time

import numpy as np
import pandas as pd
from scipy.special import stdtr

from ablate.analysis import stats
from ablate.analysis.looks import Case, stand
from ablate.config.contrast import FEWEST
from ablate.phrases import counted, first_few, lines_if
from ablate.printing import say
from ablate.race.race import Race


def standing(race: Race) -> pd.DataFrame:
    """A row for each command, the baseline first: what its runs gave; of its differences from the baseline
    the mean, the interval at the last look, the verdict, and why there is none; how many more pairs it takes,
    up to a look; the least difference that so many show; and whether more are run."""
    plan, values, seconds = race.plan, race.by_seed(race.plan["metric"]), race.by_seed("seconds")
    value_MS, lost_MS = values.to_numpy(), (values.isna() & seconds.notna()).to_numpy()
    cases = [Case(np.array([1.0, -1.0]), value_MS[[m, 0]], lost_MS[[m, 0]]) for m in range(len(values))]
    k, reached = plan["tries"] * (len(cases) - 1), seconds.iloc[0].count()
    how = {"margin": plan["margin"] or np.nan, "higher_is_better": plan["higher_is_better"]}
    judged = stand(cases, at=plan["looks"], k=k, **how)
    still_M = np.array(["{seed}" in command for command in plan["commands"].values()])
    still_M &= (values.nunique(axis=1).to_numpy() < 2) & (judged.seeds > 0)
    still_M |= still_M[0]
    reasons = {
        "they failed or diverged at unequal numbers of seeds": [of.more[of.ended].sum() != 0 for of in cases],
        f"fewer than {FEWEST} pairs were judged": judged.n < FEWEST,
        "one gave the same at every seed: perhaps the seed never reached it": still_M,
        "every pair differs by the same: perhaps what differs does nothing": np.isnan(judged.low),
    }
    pairs = stats.paired(value_MS - value_MS[0], np.nanmax(np.abs(value_MS), initial=0.0))
    sd, at_least = pairs.se * np.sqrt(pairs.n), min(look for look in plan["looks"] if look >= reached)
    needed = stats.seeds_to_claim(pairs.diff, sd, stats.ALPHA / k, margin=plan["margin"])
    now = pd.DataFrame({"n": values.count(axis=1), "mean": values.mean(axis=1), "sd": values.std(axis=1)})
    now["failed"], now["seconds"], now["pairs"] = lost_MS.sum(1), seconds.mean(axis=1), pairs.n
    now["difference"], now["low"], now["high"] = pairs.diff, judged.low, judged.high
    now["why"] = np.select([*reasons.values()], [*reasons], "")
    now["verdict"] = np.where(now["why"] == "", judged.verdict, stats.UNDECIDED)
    now["more"] = np.clip(np.where(sd > 0, needed, 0), at_least, stats.MOST_SEEDS) - reached
    now["going"] = ~(judged.decided | still_M)
    now["least"] = stats.least_difference(pairs.n, sd, np.fmin(1 - judged.level, stats.ALPHA / k))
    now.loc[now.index[0], ["difference", "verdict", "why", "going"]] = np.nan, "", "", True
    return now


def raced(race: Race, jobs: int, warmup: int, limit_s: float) -> pd.DataFrame:
    """Run until everything is decided, or the seeds or the time are over; returns how it stands then. Says a
    line after each pair, or after those that are run at once."""
    began, going, batch = time.monotonic(), list[str](), range(0)
    while True:
        now, seconds, looks = standing(race), race.by_seed("seconds"), race.plan["looks"]
        paired = now.loc[going[1:], ["difference", "more"]].dropna()
        each = ["{} {:+.3g} on average, {:,.0f} more".format(*one) for one in paired.itertuples()]
        going = [*now.index[now["going"]]]
        reached = int(seconds.loc[going].notna().all().cumprod().sum())
        if each:
            say(f"{counted(reached, 'seed')} of {looks[-1]}: {'; '.join(each)}")
        if len(going) == 1 or reached == looks[-1]:
            return now
        if time.monotonic() - began + seconds.loc[going].mean(axis=1).sum() > limit_s:
            race.look_at(*lines_if(reached >= FEWEST, reached))
            return standing(race)
        for warm in range(0 if batch else warmup):  # at seeds behind those of the race, without a row
            for name in going:
                race.run_one(name, race.plan["seeds"] + warm)
        at_once = -(-jobs // len(going))
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
    pairs = f"{against['pairs'].max()} of at most {race.plan['looks'][-1]} pairs"
    return ["; ".join(found), "; ".join([pairs, sure, *shows])]


def doubts(values: pd.DataFrame) -> list[str]:
    """What makes the runs of a race worth little. values: a row for each command, a column for each seed."""
    lines = list[str]()
    for name, apart in (values - values.iloc[0]).iloc[1:].iterrows():
        if (far := stats.bimodal(apart.to_numpy(float), len(values) - 1)).any():
            lines.append(
                f"{name}: seed {first_few([*apart.index[far]])} is far from all others: read both logs"
            )
    means = values.mean(skipna=False).dropna()
    if len(means) >= FEWEST and means.nunique() > 1:
        r, df = np.corrcoef(means.index, means)[0, 1], len(means) - 2
        if 2 * stdtr(df, -abs(r) * np.sqrt(df / max(1 - r * r, 1e-12))) < 1 - stats.LEVEL:
            lines.append(f"values drift with time (correlation {r:.2f}): something else changes here")
    return lines
