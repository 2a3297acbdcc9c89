"""What each contrast of a comparison comes to: its statistics, its verdict, and why there is none; in a study
with looks, at which of them it stands."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from ablate.analysis import controls, stats
from ablate.analysis.contrasts import EQUAL, Pair, differing, primary_pairs, tuned_columns
from ablate.analysis.looks import Decisions, Looks
from ablate.analysis.variants import Variants
from ablate.config.contrast import FEWEST
from ablate.phrases import counted
from ablate.store.columns import column_named
from ablate.store.record import StudyRecord

POWER = 0.8
NEVER = "no number of seeds would decide it"
TOO_FEW = "too few seeds for a verdict, {} of at least {}"
OWED = "the study is not finished: {} of {} seeds"
NUMBERS = (
    *("pairs", "n_baseline", "diff", "low", "high", "p", "p_holm"),
    *("sd_diff", "p_tost", "p_tost_holm", "ratio", "skew", "correlation", "p_welch"),
    *("more_seeds", "level", "look", "last_look"),
)
WHOLE = ("pairs", "n_baseline", "more_seeds", "look", "last_look")


def contrast_table(
    variants: Variants,
    family: str,
    pairs: Sequence[Pair],
    margin: float,
    alpha: float,
    now: Decisions | None,
    owed: int,
) -> pd.DataFrame:
    """One row per pair: statistics of NUMBERS, verdict, why, baseline, differs, same_class. now: of a study
    with looks, what these have decided; the first seeds count then, up to the look of each pair. owed: how
    many seeds each pair of a study without looks is to have, while it is not finished."""
    ones, bases = np.array(pairs, int).reshape(-1, 2).T
    equal = controls.equal_variants(variants, pairs)
    is_equal = np.array([one is not None for one in equal], bool)
    in_family = ~is_equal & (not variants.crossed)
    counted_KS, of_look = seeds_that_count(variants, len(pairs), now), dict[str, Any]()
    if now:
        of_look["contrasts"] = now.looks.contrasts
        of_look["share"] = np.where(now.seeds, now.share, 1.0)
        of_look["least_sd"] = np.nan_to_num(now.scatter)
    one_KS, base_KS = (np.where(counted_KS, variants.values[side], np.nan) for side in (ones, bases))
    more = np.subtract(*((variants.diverged[side] & counted_KS).sum(1) for side in (ones, bases)))
    # Two groups, where there are values but no two pairs.
    n, n_base, pairs_K = (np.isfinite(x).sum(1) for x in (one_KS, base_KS, one_KS - base_KS))
    apart = (n >= 2) & (n_base >= 2) & ((pairs_K < 2) | (not variants.paired)) & (now is None)
    in_any_order = (np.where(apart[:, None], np.sort(x), x) for x in (one_KS, base_KS))
    unlike_KS = (variants.learned[ones] != variants.learned[bases]) & np.isfinite(one_KS - base_KS)
    is_identical = stats.identical(*in_any_order) & ~is_equal & (more == 0)
    is_identical &= np.where(apart, n == n_base, ~unlike_KS.any(1))
    result = stats.paired(
        one_KS,
        base_KS,
        margin=margin,
        alpha=alpha,
        higher_is_better=variants.higher_is_better,
        apart=apart,
        in_family=in_family & ~is_identical,
        **of_look,
    )
    in_family = result.pop("family")
    table = pd.DataFrame(result).rename(columns={"n": "pairs", "sd": "sd_diff"})
    table["n_baseline"] = np.where(apart, n_base, np.nan)
    with np.errstate(over="ignore"):  # a difference of hundreds of nats
        table["ratio"] = np.exp(table["diff"]) if column_named(variants.metric).unit == "nats" else np.nan
    table["baseline"] = [variants.names[base] for base in bases]
    table["differs"] = differing(variants, pairs)
    table["same_class"] = controls.same_classes(variants, pairs)
    by_interval = table["verdict"].to_numpy()
    table["verdict"] = np.where(is_equal, EQUAL, stats.withheld(by_interval, more))
    is_lost = (table["verdict"] != by_interval) & ~is_equal
    seeds_K = np.where(apart, np.minimum(n, n_base), pairs_K)
    fewest = max(owed, FEWEST if family == "exploratory" and now is None else 0)
    is_few = (seeds_K < fewest) & in_family & ~is_lost & table["p"].notna()
    table["verdict"] = table["verdict"].mask(is_few, stats.UNDECIDED).mask(is_identical, stats.IDENTICAL)
    _add_looks(table, now)
    open_ = (table["verdict"] == stats.UNDECIDED) & in_family & ~is_lost & (now is None)
    table["more_seeds"] = _more_seeds(table, open_, seeds_K, fewest, margin)
    never = np.isinf(table["more_seeds"])
    table["more_seeds"] = table["more_seeds"].mask(never)
    reasons = zip(table.to_dict("records"), is_lost, equal, more, strict=True)
    table["why"] = [
        _why(variants, row, more if lost else 0, same, alpha) for row, lost, same, more in reasons
    ]
    table["why"] = table["why"].mask(never, NEVER)
    few = pd.Series([(OWED if owed else TOO_FEW).format(count, fewest) for count in seeds_K], table.index)
    table["why"] = table["why"].mask(is_few & (table["verdict"] == stats.UNDECIDED), few)
    return table


def _add_looks(table: pd.DataFrame, now: Decisions | None) -> None:
    """Add the look at which each contrast stands, and the last one; NaN without looks."""
    table[["look", "last_look"]] = np.nan
    if now:
        once = np.isin(np.arange(len(table)), now.looks.once)
        table["look"], table["last_look"] = now.seeds, np.where(once, now.looks.at[0], now.looks.at[-1])


def _more_seeds(
    table: pd.DataFrame, open_: pd.Series, seeds: stats.Array, fewest: int, margin: float
) -> pd.Series:
    """How many more seeds would decide each open contrast, if its difference is the true one: NaN for any
    other, infinity if no number would. seeds: (K,) that there are. fewest: that a verdict takes."""
    more = pd.Series(np.nan, table.index)
    if open_.any():
        diff, sd, level = (table[column][open_] for column in ("diff", "sd_diff", "level"))
        needed = stats.seeds_to_claim(diff, sd, 1 - level, power=POWER, margin=margin)
        more[open_] = np.maximum(np.maximum(needed, fewest) - seeds[open_], 1)
    return more


def _why(
    variants: Variants, row: Mapping[Any, Any], more: int, equal: int | None, alpha: float
) -> str | None:
    """Why there is no verdict, in a few words; None if there is one or nothing to add. more: on how many more
    seeds than its baseline the variant diverged; negative the other way round, 0 if that played no part."""
    if row["verdict"] == stats.IDENTICAL:
        return _identical(variants, row)
    if equal is not None:  # at one head a learned weight changes the training, but not the function
        return f"the same function as {variants.names[equal]}"
    if more:
        one, other = ("it", "its baseline") if more > 0 else ("its baseline", "it")
        return f"{one} diverged on {counted(abs(more), 'more seed')} than {other}"
    if row["verdict"] != stats.UNDECIDED:
        return None
    if row["look"] == 0:
        return "its first look is not complete"
    if row["n_baseline"] != row["n_baseline"] and row["pairs"] < 2:
        return "one paired seed" if row["pairs"] else "no paired seed"
    if variants.crossed:
        return "its seeds are crossed, so they are not independent"
    if np.isnan(row["p"]):
        where = "at every seed" if variants.paired else "in every run"
        return f"{'the same' if row['diff'] else 'no'} difference {where}"
    if row["p_holm"] < alpha:
        return "Holm's p alone would decide; the simultaneous interval holds 0"
    return None


def _identical(variants: Variants, row: Mapping[Any, Any]) -> str:
    """The words for two variants that agree to the last digit."""
    runs = f"at all {row['pairs']} seeds" if row["pairs"] else "in every run"
    what = " ".join(row["differs"].split())
    perhaps = "; perhaps the option never reached the program" if variants.is_foreign else ""
    return f"identical {runs}: {what} {'change' if ' ' in what else 'changes'} nothing here{perhaps}"


# --- of a study with looks ----------------------------------------------------------------------------


def decisions(
    variants: Variants,
    records: Sequence[StudyRecord],
    pairs: Mapping[str, Sequence[Pair]],
    margin: float,
    alpha: float,
) -> dict[str, Decisions]:
    """What the looks of the one study that these variants are of have decided, by family; empty if it has
    none. pairs: of each family. The primary one has at least as many contrasts as were planned."""
    if len(records) != 1 or records[0].looks is None or variants.crossed or "seed" not in variants.seeds:
        return {}
    planned, now, ended = records[0].looks, dict[str, Decisions](), _at_first_look(variants, records[0])
    for family, of in pairs.items():
        equal = [k for k, other in enumerate(controls.equal_variants(variants, of)) if other is not None]
        looks = Looks(
            at=planned.at,
            pairs=of,
            equal=equal,
            once=[k for k, pair in enumerate(of) if ended & {*pair}],
            contrasts=max(len(of) - len(equal), planned.contrasts if family == "primary" else 1),
            metric=variants.metric,
            margin=margin,
            alpha=alpha,
            seeds=[*map(str, planned.seeds)],
        )
        in_order = _in_order(looks, variants, variants.values, np.nan)
        now[family] = looks.decide(in_order, _in_order(looks, variants, variants.diverged, False))
    return now


def _at_first_look(variants: Variants, record: StudyRecord) -> set[int]:
    """The variants of which a study trains no more than the first look takes (Decisions.seeds_wanted)."""
    pairs, _ = primary_pairs(variants, record.primary, free=tuned_columns(variants))
    compared = {side for pair in pairs for side in pair}
    return {*range(len(variants.table))} - compared if compared else set()


def that_count(variants: Variants, now: Mapping[str, Decisions]) -> Variants:
    """The variants without results beyond the last look at which a contrast of each stands or, of one without
    a contrast, at which any does; before the first look, beyond that one. now: by family."""
    if not now:
        return variants
    reach, looks = np.zeros(len(variants.table), int), next(iter(now.values())).looks
    for decided in now.values():
        for pair, look in zip(decided.looks.pairs, decided.seeds, strict=True):
            reach[[*pair]] = np.maximum(reach[[*pair]], max(look, looks.at[0]))
    seeds_C = np.where(reach, reach, reach.max(initial=looks.at[0]))
    counted_CS = counted_seeds(variants, looks, seeds_C)
    return replace(
        variants,
        values=np.where(counted_CS, variants.values, np.nan),
        diverged=variants.diverged & counted_CS,
    )


def seeds_that_count(variants: Variants, pairs: int, now: Decisions | None) -> stats.Array:
    """(K, S) which seeds of each contrast count: up to the look at which it stands."""
    if now is None:
        return np.ones((pairs, len(variants.seeds)), bool)
    return counted_seeds(variants, now.looks, now.seeds)


def counted_seeds(variants: Variants, looks: Looks, seeds_K: stats.Array) -> stats.Array:
    """(K, S) which seeds are among the first so many."""
    return looks.places(variants.seeds["seed"]) < np.asarray(seeds_K)[:, None]


def _in_order(looks: Looks, variants: Variants, values_CS: stats.Array, missing: float | bool) -> stats.Array:
    """The columns in the order in which looks take their seeds; `missing` for a seed without runs."""
    place_S, last = looks.places(variants.seeds["seed"]), looks.at[-1]
    ordered = np.full((len(values_CS), last), missing)
    ordered[:, place_S[place_S < last]] = values_CS[:, place_S < last]
    return ordered
