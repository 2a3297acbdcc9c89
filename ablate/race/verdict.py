"""What a race has shown so far, by the judge of `compare`, and what makes that doubtful."""

import time

import numpy as np
import pandas as pd
from scipy.special import betainc

from ablate.analysis import stats
from ablate.analysis.looks import Case, stand
from ablate.config.contrast import FEWEST
from ablate.phrases import counted, first_few, lines_if
from ablate.printing import say
from ablate.race.race import Race


def standing(race: Race) -> pd.DataFrame:
    """A row for each command, the baseline first: what its runs gave; of its differences from the baseline
    the mean, the interval at the last look, the verdict, and why there is none; whether it goes on; how many
    more pairs it takes, up to a look; and the least difference that so many show."""
    plan, values, seconds = race.plan, race.by_seed(race.plan["metric"]), race.by_seed("seconds")
    value_MS, lost_MS = values.to_numpy(), (values.isna() & seconds.notna()).to_numpy()
    cases = [Case(np.array([1.0, -1.0]), value_MS[[m, 0]], lost_MS[[m, 0]]) for m in range(len(values))]
    k, how = plan["tries"] * (len(cases) - 1), {key: plan[key] for key in ("margin", "higher_is_better")}
    judged = stand(cases, at=plan["looks"], k=k, **how)
    still_M = (values.nunique(axis=1) < 2).to_numpy() & ["{seed}" in one for one in plan["commands"].values()]
    still_M |= still_M[0]
    settled_M = judged.decided | (still_M & (judged.seeds > 0))
    reasons = {
        "they failed or diverged at unequal numbers of seeds": [of.more[of.ended].sum() != 0 for of in cases],
        f"fewer than {FEWEST} pairs were judged": judged.n < FEWEST,
        "one gave the same at every seed: perhaps the seed never reached it": still_M,
        "every pair differs by the same: perhaps what differs does nothing": np.isnan(judged.low),
    }
    pairs = stats.paired(value_MS - value_MS[0], np.nanmax(np.abs(value_MS), initial=0.0))
    sd, reached = pairs.se * np.sqrt(pairs.n), seconds.iloc[0].count()
    needed = np.where(sd > 0, stats.seeds_to_claim(pairs.diff, sd, stats.ALPHA / k, margin=plan["margin"]), 0)
    at_least = min((look for look in plan["looks"] if look > reached), default=reached)
    now = pd.DataFrame({"n": values.count(axis=1), "mean": values.mean(axis=1), "sd": values.std(axis=1)})
    now["failed"], now["seconds"], now["pairs"] = lost_MS.sum(1), seconds.mean(axis=1), pairs.n
    now["difference"], now["low"], now["high"] = pairs.diff, judged.low, judged.high
    now["why"] = np.select([*reasons.values()], [*reasons], "")
    now["verdict"] = np.where(now["why"] == "", judged.verdict, stats.UNDECIDED)
    now["going"] = ~settled_M & [not of.ended.all() for of in cases]
    now["more"] = np.where(settled_M, 0, np.clip(needed, at_least, stats.MOST_SEEDS) - reached)
    now["least"] = stats.least_difference(pairs.n, sd, np.fmin(1 - judged.level, stats.ALPHA / k))
    now.loc[now.index[0], ["difference", "verdict", "going"]] = np.nan, "", bool(now["going"][1:].any())
    return now


def raced(race: Race, jobs: int, warmup: int, limit_s: float) -> pd.DataFrame:
    """Run until everything is decided, or the seeds or the time are over; returns how it stands then. Says a
    line after each pair, or after those that are run at once."""
    began, now, plan = time.monotonic(), standing(race), race.plan
    for name in [*now.index[now["going"]]] * warmup:  # at a seed behind those of the race, without a row
        race.run_one(name, plan["seeds"])
    while names := [*now.index[now["going"]]]:
        reached = int((now["n"] + now["failed"])[names].min())
        if time.monotonic() - began + now["seconds"][names].sum() > limit_s:
            # A look here takes its share of the level from the one behind it.
            plan["looks"] = sorted({*plan["looks"], *lines_if(reached >= FEWEST, reached)})
            now = standing(race)
            break
        at_once = -(-jobs // len(names))
        upto = min(reached + at_once, *(look for look in plan["looks"] if look > reached))
        race.run(names, upto, jobs)
        now = standing(race)
        each = now.loc[names[1:], ["difference", "more"]].itertuples()
        apart = "; ".join(f"{name} {by:+.3g} on average, {more:,.0f} more" for name, by, more in each)
        say(f"{counted(upto, 'seed')} of {plan['seeds']}: {apart}".replace("+nan", "unknown"))
    race.save()
    return now


def answer(race: Race, now: pd.DataFrame, null: bool) -> list[str]:
    """What the race has shown, and how sure that is."""
    against, metric, least = now.iloc[1:], race.plan["metric"], now["least"].iloc[1:].max()
    found = "; ".join(
        f"{one.Index} is {one.verdict}: {metric} {one.difference:+.4g} against {now.index[0]}"
        f" ({one.why or f'{one.low:+.4g} to {one.high:+.4g}'})".replace("+nan", "unknown")
        for one in against.itertuples()
    )
    if null:
        found = f"noise: two runs of one seed differ with sd {race.by_seed(metric).diff().iloc[1].std():.3g}"
    sure = f"95 % confidence for {counted(race.plan['tries'] * len(against), 'comparison')}"
    shows = lines_if(least < np.inf, f"a difference of {least:.2g} shows in 8 of 10 such races")
    pairs = f"{against['pairs'].max()} of at most {race.plan['seeds']} pairs"
    return [found, "; ".join([pairs, sure, *shows])]


def doubts(values: pd.DataFrame) -> list[str]:
    """What makes the runs of a race worth little. values: a row for each command, a column for each seed."""
    lines = list[str]()
    for name, apart in (values - values.iloc[0]).iloc[1:].iterrows():
        if (far := stats.bimodal(apart.to_numpy(float), len(values) - 1)).any():
            lines.append(f"{name}: seed {first_few([*apart.index[far]])} is far from others: read both logs")
    means = values.mean(skipna=False).dropna()
    r = means.corr(means.index.to_series())
    if len(means) >= FEWEST and betainc(len(means) / 2 - 1, 0.5, 1 - min(r * r, 1)) < 1 - stats.LEVEL:
        lines.append(f"values drift with time (correlation {r:.2f}): something else changes here")
    return lines
