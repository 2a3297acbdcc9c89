"""The tables of a comparison, a full one of each family and a short one, and the cells that others share."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ablate.analysis.compare import BASELINE, Comparison
from ablate.analysis.finding import Finding
from ablate.analysis.variant import varying
from ablate.phrases import counted
from ablate.reporting.tables import lines_of
from ablate.reporting.words import confidence, interval, look, p_value, unit, verdict

DIGITS = ".4f"  # of metrics in tables


def full_table(comparison: Comparison, family: str) -> pd.DataFrame:
    """One family for readers: the columns that distinguish the variants, and the numbers behind the
    verdict."""
    table = comparison.family(family)
    read = as_called(comparison, table, comparison.varying or comparison.shown[:1])
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
        read["p_holm"] = [p_value(p) for p in table["p_holm"].tolist()]
        read["verdict"] = verdicts(comparison, table, with_why=True)
        if table["look"].notna().any():
            read["seeds"] = [look(one) if one else "" for one in comparison.findings_of(table)]
    if "step_ms" in table:
        read["step_ms"] = table["step_ms"]
        read["step_ratio"] = [step_ratio(row) for row in table.to_dict("records")]
    if table["best"].any():
        read["best"] = table["best"]
    return read


def as_called(comparison: Comparison, table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """These columns of a table of variants, with what a reader asked to call their levels."""
    variants = [comparison.variants[name] for name in table["variant"]]
    return pd.DataFrame(
        {c: [one.words.get(c, cell) for one, cell in zip(variants, table[c], strict=True)] for c in columns},
        index=table.index,
    )


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
    """The number of seeds of each row, with those that ended without a number: 7 + 1 diverged; 6 of 8, if its
    difference is of fewer pairs than its mean of seeds."""
    pairs = table["pairs"].mask(table["n_baseline"].notna()).fillna(0).astype(int)
    seeds = [f"{k} of {n}" if 0 < k < n else str(n) for k, n in zip(pairs, table["n"], strict=True)]
    lost = table["diverged"].astype(int)
    return [f"{of} + {gone} diverged" if gone else of for of, gone in zip(seeds, lost, strict=True)]


def verdicts(comparison: Comparison, rows: pd.DataFrame, *, with_why: bool = False) -> list[str]:
    """The verdict of each row in words, or that it is a baseline. with_why: and, where there is no verdict,
    why."""
    tell, found = _with_why if with_why else verdict, comparison.findings_of(rows)
    return [tell(one) if one else text or "" for one, text in zip(found, rows["verdict"], strict=True)]


def intervals(table: pd.DataFrame, low: str, high: str) -> list[str]:
    """The interval of each row, from these columns."""
    return [interval(*ends, DIGITS) for ends in zip(table[low].tolist(), table[high].tolist(), strict=True)]


def differences(table: pd.DataFrame) -> list[str]:
    """The difference of each row with its interval; empty for a row without."""
    each = zip(table["diff"].tolist(), intervals(table, "low", "high"), strict=True)
    return ["" if diff != diff else f"{diff:+{DIGITS}} {ends}".rstrip() for diff, ends in each]


def step_ratio(row: Mapping[Any, Any]) -> str:
    """The relative time of a training step with its range; empty if it was not measured."""
    ratio, low, high = (row[f"step_ratio{end}"] for end in ("", "_low", "_high"))
    return "" if ratio != ratio else f"{ratio:.2f} {interval(low, high, '.2f')}"


def _with_why(one: Finding) -> str:
    """The verdict and, where there is none, what would bring one or why there is none."""
    if one.is_undecided and one.more_seeds is not None:
        return f"undecided: {counted(one.more_seeds, 'more seed')}"
    return f"undecided: {one.why}" if one.is_undecided and one.why else verdict(one)


# --- in short ---------------------------------------------------------------------------------------------


def short_table(comparison: Comparison, tuned: str = "") -> pd.DataFrame:
    """Each contrast in a row: variant, n, mean, difference [low, high], verdict; each baseline once, above
    those that are compared with it. If nothing is compared: variant, n, mean.

    tuned: the column of which each variant has its own value; it is in no name.
    """
    family = comparison.family(_family(comparison))
    rows = family[family["baseline"].notna()]
    rows = family if rows.empty else _with_baselines(family, rows)
    read = _of_contrasts(comparison, rows)
    if rows["diff"].isna().all():
        read = read[["n"]]
    read.insert(0, "variant", _names(comparison, rows["variant"], tuned))
    read.insert(2, "mean", rows["mean"].tolist())
    if "step_ms" in rows:
        read["step_ms"] = rows["step_ms"].tolist()
        read["step_ratio"] = [step_ratio(row) for row in rows.to_dict("records")]
    return read


def _of_contrasts(comparison: Comparison, rows: pd.DataFrame) -> pd.DataFrame:
    read = {"n": numbers_of_seeds(rows), "difference [low, high]": differences(rows)}
    return pd.DataFrame({**read, "verdict": verdicts(comparison, rows)})


def in_width(read: pd.DataFrame, width: int) -> pd.DataFrame:
    """The table with `worse, perhaps` for `worse, perhaps within the margin` if it is too wide otherwise. The
    answer above it has the whole verdict."""
    if "verdict" not in read or max(map(len, lines_of(read, None)[0].splitlines())) <= width:
        return read
    return read.assign(verdict=read["verdict"].str.replace(", perhaps within .*", ", perhaps", regex=True))


def _family(comparison: Comparison) -> str:
    """The first family with a contrast that was tested or, without any, with a contrast."""
    for column in ("p", "diff"):
        if len(having := comparison.table[comparison.table[column].notna()]):
            return str(having["family"].iloc[0])
    return comparison.families[0]


def _with_baselines(family: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows and their baselines, best first; below its baseline each, if there are several."""
    bases = family[(family["verdict"] == BASELINE) & family["variant"].isin(rows["baseline"])]
    if len(bases) == 1:
        return family[family.index.isin([*bases.index, *rows.index])]
    return pd.concat(
        part
        for name in bases["variant"]
        for part in (bases[bases["variant"] == name], rows[rows["baseline"] == name])
    )


def _names(comparison: Comparison, names: pd.Series, tuned: str) -> list[str]:
    """What variants are called here: by their arms, else without what all of them share; a fusion is named by
    itself."""
    variants = [comparison.variants[name].without(tuned) for name in names]
    columns = varying(variants) or [*variants[0].levels][:1]
    called = [one.title(columns) for one in variants]
    return called if len({*called}) == names.nunique() else [one.name for one in variants]
