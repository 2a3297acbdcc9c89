"""Tables for papers: means with intervals as a pivot of the factors, or the differences, a row a contrast. In
LaTeX they are as wide as a column of text."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ablate import tables
from ablate.analysis import stats
from ablate.analysis.compare import BASELINE, Comparison
from ablate.config.conditions import column_for
from ablate.config.rules import ConfigError
from ablate.phrases import capital, counted_between, joined, lines_if, option
from ablate.reporting.answers import place
from ablate.reporting.cells import DIFFERENCE, contrast_rows, each_and_together, readable
from ablate.reporting.words import DECIDED, GROUPED, by_groups, in_words, interval, paired_in_words
from ablate.store.columns import column_named
from ablate.store.frames import column_of
from ablate.tables import escaped

MARKS = dict.fromkeys((stats.BETTER, stats.WORSE, stats.HIGHER, stats.LOWER), "†") | {stats.EQUIVALENT: "‡"}
SIGN = {True: " (positive is better)", False: " (positive is worse)", None: ""}
MOST_ACROSS = 2  # means with their intervals that fit into a column


@dataclass(frozen=True)
class PaperTable:
    """frame: cells as text. stub: how many columns name the rows. over: the factor whose levels name the
    other columns; empty if these have names of their own. groups: the rows, but the first, that begin one."""

    caption: str
    frame: pd.DataFrame
    stub: int = 1
    over: str = ""
    groups: Sequence[int] = ()


def pivot(comparison: Comparison, keys: Sequence[str]) -> PaperTable:
    """Means ± half of their 95 % t-intervals, with the levels of the last key as columns and those of the
    others as rows; of one key, a row each. Raises ConfigError if two variants would share a cell."""
    table = _variants(comparison)
    where = f"--pivot {','.join(keys)}"
    columns = [column_of(key, table, where, comparison.shown) for key in keys]
    if not columns or len({*columns}) < len(columns):
        raise ConfigError(f"{where}: give different keys, as fusion,heads: the last goes across")
    if table.duplicated(columns).any():
        others = [c for c in comparison.varying if c not in columns]
        one = " ".join(option("--where", f"{column}={table[column].iloc[0]}") for column in others)
        raise ConfigError(f"{where}: variants differ in {joined(others)} too; add that, or {one}")
    if len(columns) == 1:
        return PaperTable(_about(comparison, table), table[columns].assign(mean=table["cell"]))
    *down, across = columns
    for column in columns:  # numbers by size, words in the order of the table
        levels = [*dict.fromkeys(table[column])]
        if pd.to_numeric(pd.Series(levels), errors="coerce").notna().all():
            levels.sort(key=float)
        table[column] = pd.Categorical(table[column], levels, ordered=True)
    frame = table.pivot(index=down, columns=across, values="cell").fillna("")
    frame.columns = [*map(str, frame.columns)]
    return PaperTable(_about(comparison, table), frame.reset_index(), len(down), across)


def differences(comparison: Comparison) -> PaperTable:
    """The rows of a terminal, with the number of seeds where it varies; means without intervals, as those of
    differences decide. If nothing is compared, these have them."""
    rows, table = contrast_rows(comparison), _variants(comparison)
    frame = readable(comparison, rows, _difference)
    frame = frame.rename(columns={"n": "seeds", DIFFERENCE: "difference"})
    frame = frame if frame["seeds"].nunique() > 1 else frame.drop(columns="seeds")
    if "difference" not in frame:
        cells = table.set_index("variant")["cell"].reindex(rows["variant"])
        return PaperTable(_about(comparison, table), frame.assign(mean=cells.tolist()))
    if "mean" in frame:
        frame["mean"] = ["" if mean != mean else f"{mean:.3f}" for mean in rows["mean"]]
    bases = [name for name, why in zip(frame["variant"], rows["why"], strict=True) if why == BASELINE]
    to = f"to {bases[0]}" if len(bases) == 1 else "to the first row of each group"
    own = rows["variant"].where(rows["why"] == BASELINE, "")
    group = rows["baseline"].fillna(own).tolist()
    groups = [at for at in range(1, len(group)) if group[at] != group[at - 1]]
    about = _about(comparison, table[table["variant"].isin(rows["variant"])], of_means=False)
    return PaperTable(" ".join([about, *_intervals(comparison, to)]), frame, groups=groups)


def _intervals(comparison: Comparison, to: str) -> list[str]:
    """What differences, their intervals and marks are. to: their baseline."""
    tested, marks = comparison.tested, {MARKS.get(one.verdict) for one in comparison.tested}
    if not tested:
        return [f"Differences {to}, of which nothing was tested."]
    over = f" over {paired}" if (paired := paired_in_words(tested)) else ""
    whys = dict.fromkeys(one.why.partition(",")[0] for one in tested if one.is_undecided)
    is_crossed, levels = all(one.variant.difference for one in tested), comparison.levels.values()
    sign = SIGN[tested[0].higher_is_better]
    return [
        f"Differences {to}{sign * (not is_crossed)}{over}, with t-intervals at {each_and_together(tested)}.",
        *lines_if(is_crossed, f"At each level{sign} at {each_and_together([*levels])}."),
        *lines_if(any(one.kinds for one in tested), GROUPED),
        *lines_if("†" in marks, f"†: {DECIDED[is_crossed]}."),
        *lines_if("‡" in marks, f"‡: equivalent, within ±{comparison.margin:g}."),
        *lines_if(whys, f"Without a mark: undecided ({joined([*whys])})."),
    ]


def latex(table: PaperTable, name: str = "", remarks: Sequence[str] = ()) -> str:
    """The table in LaTeX, as a float with booktabs rules, as wide as a column, or as a page if it has many.
    name: by which it is referred to. remarks: sentences for its caption."""
    cells = len(table.frame.columns) - table.stub
    rows = [[*map(escaped, row)] for row in table.frame.itertuples(index=False, name=None)]
    names, levels = [*table.frame.columns[: table.stub], table.over], table.frame.columns[table.stub :]
    *stubs, over = (escaped(name.replace("_", " ")) for name in names)
    label = f"tab:{re.sub(r'[^A-Za-z0-9]+', '-', name).strip('-')}"
    return tables.latex(
        [*stubs, *map(escaped, levels)],
        "l" * table.stub + "r" * cells,
        rows,
        escaped(" ".join([table.caption, *remarks])),
        label=label,
        over=over,
        groups=table.groups,
        float="table*" if table.over and cells > MOST_ACROSS else "table",
    )


def plain(table: PaperTable) -> pd.DataFrame:
    """The table with its levels named in full, as heads=4."""
    columns = [*table.frame.columns]
    named = [f"{table.over}={name}" if table.over else name for name in columns[table.stub :]]
    return table.frame.set_axis([*columns[: table.stub], *named], axis=1)


def _variants(comparison: Comparison) -> pd.DataFrame:
    """Each variant once, with its mean and half the width of its 95 % interval as a cell."""
    table = comparison.summary.reset_index(drop=True)
    half = stats.half_width(table["n"].to_numpy(float), table["sd"].to_numpy(float))
    each = zip(table["mean"], half, strict=True)
    return table.assign(cell=[f"{mean:.3f}{'' if h != h else f' ± {h:.3f}'}" for mean, h in each])


def _difference(row: Mapping[Any, Any]) -> str:
    if row["diff"] != row["diff"] or not row["verdict"]:
        return "" if row["why"] == BASELINE else row["why"].partition(":")[0]
    digits = ".4f" if min(abs(row["low"]), abs(row["high"])) < 0.0005 else ".3f"  # a bound is never 0.000
    mark, ends = MARKS.get(row["verdict"], ""), interval(row["low"], row["high"], digits)
    size = f"{row['diff']:+.3f}{mark} {ends}".rstrip()
    return by_groups(row["kinds"], "{:+.3f}".format) + mark if row["kinds"] else size


def _about(comparison: Comparison, table: pd.DataFrame, *, of_means: bool = True) -> str:
    """The beginning of the caption of a table of these variants. of_means: with their intervals."""
    n = table["n"].astype(int)
    crossed = ": differences between variants" * any(one.difference for one in comparison.variants.values())
    interval = " ± half the width of its 95 % t-interval" if of_means and n.max() > 1 else ""
    where, tested = place(comparison.rows), comparison.tested
    tuned = next((column_named(column_for(key)).label for key in comparison.arrays.table["tuned"] if key), "")
    parts = [
        f"{in_words(comparison.metric, comparison.arrays.higher_is_better)}{crossed}, mean over"
        f" {counted_between(n.min(), n.max(), 'seed')}{interval}.",
        *lines_if(where, f"{where}."),
        *lines_if(tuned, f"Each variant has its own tuned {tuned}."),
        *lines_if(tested and not tested[0].is_planned, "Exploratory: no contrast was named beforehand."),
    ]
    return capital(" ".join(parts))
