"""The table of a comparison for readers, a row a contrast, and how its cells are written."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import BASELINE, NO_BASELINE, PLANNED, Comparison
from ablate.analysis.findings import Finding
from ablate.analysis.variants import names as names_of_runs
from ablate.analysis.variants import varying
from ablate.config.conditions import column_for
from ablate.phrases import counted
from ablate.reporting.words import BETTER, by_groups, interval, unit

DIGITS = ".4f"  # of metrics in tables
AT_LEVEL = "at this level"  # of the differences that --within compares
DIFFERENCE = "difference [low, high]"


def contrast_table(comparison: Comparison, family: str = "", *, long: bool = False) -> pd.DataFrame:
    """The contrasts of a family, by default of the one that the answer is about: variant, n, mean, difference
    [low, high], verdict; each baseline once, above those that are compared with it. If nothing is compared:
    variant, n, mean. long: also what is known of each variant."""
    rows = contrast_rows(comparison, family)
    read, is_judged = readable(comparison, rows), bool(rows["diff"].notna().any())
    read["variant"] = [*map(brief, read["variant"])]
    if long and len(right := _right_answers(comparison)):
        read.insert(3, right.name, right.reindex(rows["variant"]).tolist())
    if long and rows["sd"].notna().any():
        read.insert(3, "sd", rows["sd"].tolist())
    if is_judged:
        whys = [re.split("[,:]", why)[0] for why in rows["why"]]
        average = rows["kinds"].astype(bool) & rows["why"].eq("")
        verdicts = rows["verdict"].where(~average, rows["verdict"] + " on average")
        read["verdict"] = [": ".join(filter(None, pair)) for pair in zip(verdicts, whys, strict=True)]
    return read.assign(**_known(comparison, rows)) if long else read


def brief(name: str) -> str:
    """The name; of a sum of many arms the first two."""
    of = re.split(r" (?=[+-] )", name)
    return name if len(of) < 5 else f"{' '.join(of[:2])} and {len(of) - 2} more"


def _right_answers(comparison: Comparison) -> pd.Series:
    """The share of right answers of each variant, beside the loss of a task; of anything else, none."""
    rows, metric = comparison.rows, comparison.metric
    right, graded = (metric.replace("_loss", of) for of in ("_acc", "_exact"))
    if right == metric or not {right, graded} <= {*rows} or rows[graded].isna().all():
        return pd.Series()
    return rows[right].groupby(names_of_runs(rows, comparison.shown).to_numpy()).mean()


def _known(comparison: Comparison, rows: pd.DataFrame) -> dict[str, list[Any]]:
    """What is known of the variants of these rows: their sizes, tuned values, and what arms set."""
    table = comparison.arrays.table.set_axis(comparison.arrays.names)
    tuned = next(filter(None, table["tuned"]), "")
    known = {name: table[name] for name in ("params", column_for(tuned)) if name in table}
    of = {name: one for name in rows["variant"] if (one := comparison.variants.get(name))}
    if any(one.arm for one in of.values()):
        columns = varying(of.values())
        known["settings"] = pd.Series({name: one.label(columns) for name, one in of.items()})
    every = {name: column.reindex(rows["variant"]) for name, column in known.items()}
    return {name: column.tolist() for name, column in every.items() if column.notna().any()}


def contrast_rows(comparison: Comparison, family: str = "") -> pd.DataFrame:
    """The rows of `contrast_table` with all columns, and kinds. Of several baselines each stands above
    those that are compared with it, then what is compared with nothing, and sums of arms below all."""
    is_planned = any(one.is_planned for one in comparison.tested[:1])
    family = family or (PLANNED if is_planned else comparison.families[-1])
    rows = comparison.table[comparison.table["family"] == family]
    found = {(one.variant.name, one.baseline.name): one for one in comparison.family(family)}
    of = [found.get(sides) for sides in zip(rows["variant"], rows["baseline"], strict=True)]
    kinds = pd.Series([one.kinds if one else () for one in of], rows.index, object)
    rows = rows.assign(kinds=kinds)
    compared = rows[~rows["why"].isin((BASELINE, NO_BASELINE))]
    bases = rows[(rows["why"] == BASELINE) & rows["variant"].isin(compared["baseline"])]
    under = [(at, *compared.index[compared["baseline"] == of]) for at, of in bases["variant"].items()]
    sums = compared.index[compared["baseline"].isna()]
    paired: list[Any] = [at for of in under for at in of]
    paired = paired if len(bases) > 1 else sorted(paired)
    return rows.loc[[*paired, *rows.index.difference([*paired, *sums]), *sums]]


def caption(comparison: Comparison, family: str) -> str:
    """The caption of a family: what its intervals are corrected for, in a line."""
    tested = [one for one in comparison.family(family) if one.is_tested]
    if not tested:
        return f"{family} ({comparison.metric}): nothing tested"
    metric = ", ".join(filter(None, (comparison.metric, BETTER[comparison.arrays.higher_is_better])))
    margin = f"margin {comparison.margin:g}{unit(comparison.metric)}"
    if comparison.margin != comparison.margin:
        margin = "without --margin, so none is called equivalent"
    named = "named beforehand" if family == PLANNED else "test it on new seeds"
    return (
        f"{family} ({metric}; {named}): {counted(len(tested), 'comparison')}, intervals of"
        f" {100 * (1 - stats.ALPHA):g} % together, {percent(of.level for of in tested)} each,"
        f" {margin}"
    )


def each_and_together(tested: Sequence[Finding]) -> str:
    """The levels of the intervals of a family: 97.5 % each, 95 % together."""
    together = f" each, {100 * (1 - stats.ALPHA):g} % together" * (len(tested) > 1)
    return percent(one.level for one in tested) + together


def percent(levels: Iterable[float]) -> str:
    """The levels of intervals: 97.5 %, or 95 % to 99 %."""
    each = [f"{100 * level:.4g} %" for level in sorted({*levels})]
    return " to ".join(dict.fromkeys([*each[:1], *each[-1:]]))


def names(comparison: Comparison, variants: pd.Series) -> list[str]:
    """What variants are called here: by their arms, else without what all of them share; a fusion is named by
    itself, and a sum of arms as it is."""
    of = {name: comparison.variants[name] for name in variants if name in comparison.variants}
    apart = dict.fromkeys(column for one in of.values() for column in one.difference)
    columns = [*varying(of.values()), *apart] or comparison.shown[:1]
    called = [of[name].title(columns) if name in of else name for name in variants]
    return called if len({*called}) == variants.nunique() else [*variants]


def called(comparison: Comparison) -> dict[str, str]:
    """What the long table of a comparison calls its variants, by their names and in its order."""
    variants = contrast_rows(comparison)["variant"].drop_duplicates()
    return dict(zip(variants, names(comparison, variants), strict=True))


def difference(row: Mapping[Any, Any]) -> str:
    """A difference with its interval, behind a ~ where it is undecided, or of two groups; empty for a row
    without, or without a verdict."""
    if row["kinds"]:
        return by_groups(row["kinds"], f"{{:+{DIGITS}}}".format)
    ends, is_open = interval(row["low"], row["high"], DIGITS), row["verdict"] == stats.UNDECIDED
    if row["diff"] != row["diff"] or (is_open and not ends):
        return ""
    return f"{'~' * is_open}{row['diff']:+{DIGITS}} {ends}".rstrip()


def readable(
    comparison: Comparison, rows: pd.DataFrame, cell: Callable[[Mapping[Any, Any]], str] = difference
) -> pd.DataFrame:
    """variant, n, mean and, if anything is compared, the difference as `cell` writes it; of differences, each
    with its interval for a mean. n: 7 + 1 diverged,
    where a seed ended without a number; 6 of 8, if a difference is of fewer pairs than its mean of seeds."""
    counts = zip(rows["pairs"].fillna(0).astype(int), rows["n"], rows["diverged"].astype(int), strict=True)
    n = [f"{f'{k} of ' * (0 < k < n)}{n}{f' + {gone} diverged' * (gone > 0)}" for k, n, gone in counts]
    read = pd.DataFrame({"variant": names(comparison, rows["variant"]), "n": n})
    levels = [comparison.levels.get(name) for name in rows["variant"]]
    at = [cell(vars(one) | {"verdict": AT_LEVEL}) for one in levels if one]
    read = read.assign(**({AT_LEVEL: at} if len(at) == len(rows) else {"mean": rows["mean"].tolist()}))
    if rows["diff"].notna().any():
        read[DIFFERENCE] = [*map(cell, rows.to_dict("records"))]
    return read


def by_layer(heads: pd.DataFrame) -> pd.DataFrame:
    """One row per variant and layer, one column per probe: its largest head, and in brackets that of the
    untrained twin. heads: as from probes.over_seeds."""
    cells = [f"{short(head)} ({short(twin)})" for head, twin in heads[["largest", "untrained"]].to_numpy()]
    wide = heads.assign(cell=cells).pivot_table(
        index=["variant", "layer", "n"], columns="probe", values="cell", aggfunc="first", sort=False
    )
    return wide.reset_index().rename_axis(columns=None)


def short(value: float) -> str:
    return "" if value != value else f"{value:.3g}"
