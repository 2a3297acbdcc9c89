"""The table of a comparison for readers, a row a contrast, and how its cells are written."""

import re
from collections.abc import Mapping
from typing import Any

import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import BASELINE, PLANNED, Comparison
from ablate.analysis.variant import varying
from ablate.phrases import counted
from ablate.reporting.words import interval, unit

DIGITS = ".4f"  # of metrics in tables


def short_table(comparison: Comparison, tuned: str = "", steps: pd.DataFrame | None = None) -> pd.DataFrame:
    """The contrasts that the answer is about: variant, n, mean, difference [low, high], verdict; each
    baseline once, above those that are compared with it. If nothing is compared: variant, n, mean.

    tuned: the column of which each variant has its own value; it is in no name. steps: times of training
    steps, by the rows of the comparison's table.
    """
    first = next((one for one in comparison.tested), None)
    family = PLANNED if first and first.is_planned else comparison.families[-1]
    table = comparison.table[comparison.table["family"] == family]
    rows = table[table["baseline"].notna()]
    rows = table if rows.empty else _with_baselines(table, rows)
    read = _readable(comparison, rows, tuned)
    if rows["diff"].notna().any():
        read["verdict"] = verdicts(rows)
    return read if steps is None else _with_steps(read, steps.loc[rows.index])


def full_table(
    comparison: Comparison, family: str, tuned: str = "", steps: pd.DataFrame | None = None
) -> pd.DataFrame:
    """One family, also with what is compared with nothing: the same, with parameters, scatter and why.
    tuned, steps: as of `short_table`."""
    rows = comparison.table[comparison.table["family"] == family]
    read = _readable(comparison, rows, tuned)
    if rows["sd"].notna().any():
        read.insert(3, "sd", rows["sd"].tolist())
    if "match_error" in rows:  # the difference in cost that remains after matching
        errors = ["" if error != error else f"{error:+.1%}" for error in rows["match_error"]]
        read = read.assign(params=rows["params"].tolist(), match_error=errors)
    if rows["diff"].notna().any() and comparison.summary["n"].max() > 1:  # one seed decides nothing
        read["verdict"] = [_with_why(row) for row in rows.to_dict("records")]
        if rows["look"].notna().any():
            looks = zip(rows["look"], rows["last_look"], strict=True)
            read["seeds"] = ["" if pd.isna(at) else f"{at} of {last}" for at, last in looks]
    return read if steps is None else _with_steps(read, steps.loc[rows.index])


def caption(comparison: Comparison, family: str) -> str:
    """The caption of a family: what its intervals are corrected for, in a line."""
    tested = [one for one in comparison.family(family) if one.is_tested]
    margin = f"margin {comparison.margin:g}{unit(comparison.metric)}"
    if comparison.margin != comparison.margin:
        margin = "without --margin, so none is called equivalent"
    if not tested:
        return f"{family} ({comparison.metric}): nothing tested"
    named = "named beforehand" if family == PLANNED else "test it on new seeds"
    return (
        f"{family} ({comparison.metric}; {named}): {counted(len(tested), 'comparison')}, intervals of"
        f" {100 * (1 - stats.ALPHA):g} % together, {levels_in_words(tested)} each, {margin}"
    )


def levels_in_words(tested: list[Any]) -> str:
    """The levels of the intervals of these findings: 97.5 %, or 95 % to 99 %."""
    levels = [f"{100 * level:.4g} %" for level in sorted({one.level for one in tested})]
    return " to ".join([*dict.fromkeys([levels[0], levels[-1]])])


def names(comparison: Comparison, variants: pd.Series, tuned: str = "") -> list[str]:
    """What variants are called here: by their arms, else without what all of them share; a fusion is named by
    itself."""
    of = [comparison.variants[name].without(tuned) for name in variants]
    columns = [*varying(of), *of[0].difference] or [*of[0].levels][:1]
    called = [one.title(columns) for one in of]
    return called if len({*called}) == variants.nunique() else [one.name for one in of]


def numbers_of_seeds(table: pd.DataFrame) -> list[str]:
    """The number of seeds of each row, with those that ended without a number: 7 + 1 diverged; 6 of 8, if its
    difference is of fewer pairs than its mean of seeds."""
    pairs = table["pairs"].fillna(0).astype(int)
    seeds = [f"{k} of {n}" if 0 < k < n else str(n) for k, n in zip(pairs, table["n"], strict=True)]
    lost = table["diverged"].astype(int)
    return [f"{of} + {gone} diverged" if gone else of for of, gone in zip(seeds, lost, strict=True)]


def verdicts(table: pd.DataFrame) -> list[str]:
    """The verdict of each row, if it is undecided with the reason in a few words; where there is nothing to
    judge, why."""
    short = [re.split("[,:]", why)[0] for why in table["why"]]
    return [": ".join(filter(None, pair)) for pair in zip(table["verdict"], short, strict=True)]


def difference(row: Mapping[Any, Any], digits: str = DIGITS) -> str:
    """A difference with its interval, which stands alone, behind a ~, where it is undecided; empty for a row
    without."""
    if row["diff"] != row["diff"]:
        return ""
    ends = interval(row["low"], row["high"], digits)
    size = f"{row['diff']:+{digits}}" if row["verdict"] != stats.UNDECIDED else "~" if ends else ""
    return f"{size} {ends}".rstrip()


def _readable(comparison: Comparison, rows: pd.DataFrame, tuned: str) -> pd.DataFrame:
    sums = {(one.variant.name, one.diff): one.name for one in comparison.findings if one.is_sum}
    places = zip(rows["variant"], rows["diff"], names(comparison, rows["variant"], tuned), strict=True)
    called = [sums.get((variant, diff), name) for variant, diff, name in places]
    read = pd.DataFrame({"variant": called, "n": numbers_of_seeds(rows)})
    read["mean"] = rows["mean"].tolist()
    if rows["diff"].notna().any():
        read["difference [low, high]"] = [*map(difference, rows.to_dict("records"))]
    return read


def _with_why(row: Mapping[Any, Any]) -> str:
    if not (row["verdict"] and row["why"]):
        return row["verdict"] or row["why"]
    return f"{row['verdict']}: {row['why']}"


def step_ratio(row: Mapping[Any, Any]) -> str:
    """The relative time of a training step with its range; empty if it was not measured."""
    ratio, low, high = (row[f"step_ratio{end}"] for end in ("", "_low", "_high"))
    return "" if ratio != ratio else f"{ratio:.2f} {interval(low, high, '.2f')}"


def _with_steps(read: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    ratios = [*map(step_ratio, steps.to_dict("records"))]
    return read.assign(step_ms=steps["step_ms"].tolist(), step_ratio=ratios)


def _with_baselines(table: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows and their baselines, best first; below its baseline each, if there are several."""
    bases = table[(table["why"] == BASELINE) & table["variant"].isin(rows["baseline"])]
    if len(bases) == 1:
        return table[table.index.isin([*bases.index, *rows.index])]
    return pd.concat(
        part
        for name in bases["variant"]
        for part in (bases[bases["variant"] == name], rows[rows["baseline"] == name])
    )
