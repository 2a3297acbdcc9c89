"""What tables of a comparison hold: the texts of each column, of which every table takes some."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ablate.analysis.compare import Comparison
from ablate.analysis.controls import CONTROLLED
from ablate.analysis.finding import Finding
from ablate.config.overrides import spelled
from ablate.phrases import counted
from ablate.reporting.words import confidence, interval, look, p_value, remaining, unit, verdict
from ablate.store.columns import column_named


def for_reading(comparison: Comparison, family: str, *, marginal: bool = False) -> pd.DataFrame:
    """One family for readers: the columns that distinguish the variants, and the numbers behind the
    verdict."""
    table = comparison.family(family)
    found = comparison.findings_of(table)
    read = table[comparison.varying or comparison.shown[:1]].copy()
    read["n"] = numbers_of_seeds(table)
    if "match_error" in table:  # the difference in cost that remains after matching
        read["params"] = table["params"]
        read["match_error"] = ["" if error != error else f"{error:+.1%}" for error in table["match_error"]]
    read["mean"] = table["mean"]
    if table["sd"].notna().any():
        read["sd"] = table["sd"]
    if table["diff"].notna().any():
        read["diff"] = ["" if diff != diff else f"{diff:+.4f}" for diff in table["diff"].tolist()]
    if table["diff"].notna().any() and comparison.table["n"].max() > 1:  # one seed decides nothing
        read["[low, high]"] = intervals(table, "low", "high")
        if marginal:
            level = confidence(comparison)
            read[f"marginal {level}"] = intervals(table, "low_marginal", "high_marginal")
        if table["controlled"].notna().any():
            ends = zip(*(table[name].tolist() for name in CONTROLLED), strict=True)
            read[f"with {spelled(comparison.placebo)}"] = [remaining(*each) for each in ends]
        if table["share"].notna().any():
            read["share"] = ["" if share != share else f"{share:.0%}" for share in table["share"].tolist()]
        read["p_holm"] = [p_value(p) for p in table["p_holm"].tolist()]
        read["verdict"] = verdicts(table, found, with_why=True)
        if table["look"].notna().any():
            read["seeds"] = [look(one) if one else "" for one in found]
    if "step_ms" in table:
        read["step_ms"] = table["step_ms"]
        read["step_ratio"] = [step_ratio(row) for row in table.to_dict("records")]
    if table["best"].any():
        read["best"] = table["best"]
    return read


def caption(comparison: Comparison, family: str) -> str:
    """The caption of a family: what its p-values and intervals are corrected for, in a line or two."""
    table = comparison.family(family)
    tested = table[table["p"].notna()]
    margin = f"margin {comparison.margin:g}{unit(comparison.metric)}"
    if comparison.margin != comparison.margin:
        margin = "without --margin, so none is called equivalent"
    if tested.empty:
        return f"{family} ({comparison.metric}): nothing tested"
    level = confidence(comparison)
    named = "named beforehand" if family == "primary" else "a lead to test, not a result"
    levels = [f"{100 * level:.4g} %" for level in sorted({*tested["level"]})]
    each = f"each at {' to '.join([*dict.fromkeys([levels[0], levels[-1]])])}"
    correlation = tested["correlation"].median()
    seeds = "" if correlation != correlation else f", seed correlation {correlation:.2f} (median)"
    repeated = "repeated " if tested["look"].notna().any() else ""
    return (
        f"{family} ({comparison.metric}; {named}): {counted(len(tested), 'comparison')},"
        f" p_holm by Holm over them,\n{repeated}simultaneous {level} intervals ({each}), {margin}{seeds}"
    )


def numbers_of_seeds(table: pd.DataFrame) -> list[str]:
    """The number of seeds of each row, with those that ended without a number: 7 + 1 diverged."""
    counts = zip(table["n"], table["diverged"].astype(int), strict=True)
    return [f"{n} + {lost} diverged" if lost else str(n) for n, lost in counts]


def verdicts(table: pd.DataFrame, found: Sequence[Finding | None], *, with_why: bool = False) -> list[str]:
    """The verdict of each row in words, or that it is a baseline. found: from each row. with_why: and, where
    there is no verdict, why."""
    tell = _with_why if with_why else verdict
    return [tell(one) if one else text or "" for one, text in zip(found, table["verdict"], strict=True)]


def intervals(table: pd.DataFrame, low: str, high: str, digits: str = ".4f") -> list[str]:
    """The interval of each row, from these columns."""
    return [interval(*ends, digits) for ends in zip(table[low].tolist(), table[high].tolist(), strict=True)]


def differences(table: pd.DataFrame, digits: str) -> list[str]:
    """The difference of each row with its interval; empty for a row without."""
    each = zip(table["diff"].tolist(), intervals(table, "low", "high", digits), strict=True)
    return ["" if diff != diff else f"{diff:+{digits}} {ends}".rstrip() for diff, ends in each]


def step_ratio(row: Mapping[Any, Any]) -> str:
    """The relative time of a training step with its range; empty if it was not measured."""
    ratio, low, high = (row[f"step_ratio{end}"] for end in ("", "_low", "_high"))
    return "" if ratio != ratio else f"{ratio:.2f} {interval(low, high, '.2f')}"


def digits(metric: str) -> str:
    """How tables format numbers of this metric: steps with one digit after the point, all else with four."""
    return ",.1f" if column_named(metric).unit == "steps" else ".4f"


def _with_why(one: Finding) -> str:
    """The verdict and, where there is none, what would bring one or why there is none."""
    if one.is_undecided and one.more_seeds is not None:
        return f"undecided: {counted(one.more_seeds, 'more seed')}"
    return f"undecided: {one.why}" if one.is_undecided and one.why else verdict(one)
