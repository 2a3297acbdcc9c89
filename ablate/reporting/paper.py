"""Tables for papers: means with intervals, as a pivot of the factors or one row per contrast.

A cell is a mean ± half of its 95 % t-interval over seeds. The LaTeX needs no package but booktabs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from ablate import tables
from ablate.analysis import stats
from ablate.analysis.compare import Comparison
from ablate.analysis.findings import Finding
from ablate.config.rules import ConfigError
from ablate.phrases import counted_between, joined, lines_if, option
from ablate.reporting.answers import place
from ablate.reporting.cells import difference, levels_in_words, names
from ablate.store.columns import column_named
from ablate.store.frames import column_of
from ablate.tables import escaped

MARKS = {stats.BETTER: "†", stats.WORSE: "†", stats.EQUIVALENT: "‡"}


@dataclass(frozen=True)
class PaperTable:
    """frame: cells as text. stub: how many columns name the
    rows. over: the factor whose levels name the other columns; empty if these have names of their own."""

    caption: str
    frame: pd.DataFrame
    stub: int
    over: str = ""


def pivot(comparison: Comparison, keys: Sequence[str]) -> PaperTable:
    """A table with the levels of the last key as columns and those of the others as rows; of one key, a row
    each. Raises ConfigError if two variants would share a cell."""
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
        return by_variant(comparison)
    *down, across = columns
    for column in columns:  # numbers by size, words in the order of the table
        levels = [*dict.fromkeys(table[column])]
        if pd.to_numeric(pd.Series(levels), errors="coerce").notna().all():
            levels.sort(key=float)
        table[column] = pd.Categorical(table[column], levels, ordered=True)
    frame = table.pivot(index=down, columns=across, values="cell").fillna("")
    frame.columns = [*map(str, frame.columns)]
    return PaperTable(_caption(comparison, table), frame.reset_index(), len(down), across)


def by_variant(comparison: Comparison) -> PaperTable:
    """One row per contrast, best first, with its baseline if there are several; the number of seeds where it
    varies; also the variants without a contrast."""
    table, findings = _variants(comparison), comparison.family(comparison.families[0])
    called = dict(zip(table["variant"], names(comparison, table["variant"]), strict=True))
    of = {name: [one for one in findings if one.variant.name == name] or [None] for name in table["variant"]}
    rows = [(row, one) for row in table.to_dict("records") for one in of[row["variant"]]]
    sums = {id(one): one.name for one in findings if one.is_sum}  # which have no mean of their own
    frame = pd.DataFrame({"variant": [sums.get(id(one), called[row["variant"]]) for row, one in rows]})
    if table["n"].nunique() > 1:
        frame["seeds"] = [str(row["n"]) for row, _ in rows]
    frame["mean"] = ["" if id(one) in sums else row["cell"] for row, one in rows]
    frame["difference"] = ["" if one is None else _difference(one) for _, one in rows]
    bases = [*dict.fromkeys(one.baseline.name for one in findings)]
    if len(bases) > 1:
        frame["baseline"] = [called[one.baseline.name] if one and not one.is_sum else "" for _, one in rows]
    tested = [one for one in findings if one.is_tested]
    about = _caption(comparison, table)
    if tested:
        to = f"to {called[bases[0]]}" if len(bases) == 1 else "to the baseline beside it"
        pairs = [one.pairs for one in tested if one.pairs is not None]
        over = f" over {counted_between(min(pairs), max(pairs), 'paired seed')}" if pairs else ""
        each = f"each a t-interval at {levels_in_words(tested)}, so that all hold together"
        about = f"{about} Differences {to}{over}, in brackets their intervals, {each}; ~: undecided."
        marks = {MARKS.get(one.verdict) for one in tested}
        about += "".join(lines_if("†" in marks, " †: better or worse."))
        about += "".join(lines_if("‡" in marks, f" ‡: equivalent within ±{comparison.margin:g}."))
    return PaperTable(about, frame, 1)


def latex(table: PaperTable) -> str:
    """The table in LaTeX, as a float with booktabs rules."""
    cells = len(table.frame.columns) - table.stub
    rows = [[*map(escaped, row)] for row in table.frame.itertuples(index=False, name=None)]
    names, levels = [*table.frame.columns[: table.stub], table.over], table.frame.columns[table.stub :]
    *stubs, over = (escaped(name.replace("_", " ")) for name in names)
    headings, align = [*stubs, *map(escaped, levels), over], "l" * table.stub + "r" * cells
    text = tables.latex(headings[:-1], align, rows, over=headings[-1], caption=escaped(table.caption))
    return text.replace("\\centering\n", "\\centering\n\\small\n\\setlength{\\tabcolsep}{3pt}\n", 1)


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


def _difference(one: Finding) -> str:
    row = {name: getattr(one, name) for name in ("diff", "low", "high", "verdict")}
    return difference(row, ".3f") + MARKS.get(one.verdict, "") if one.verdict else one.why.partition(":")[0]


def _caption(comparison: Comparison, table: pd.DataFrame) -> str:
    low, high = int(table["n"].min()), int(table["n"].max())
    metric, where = column_named(comparison.metric).words, place(comparison.rows)
    interval = " ± half of its 95 % t-interval" if high > 1 else ""
    parts = [f"{metric}, mean over {counted_between(low, high, 'seed')}{interval}."]
    parts += lines_if(where, f"{where}.")
    findings = comparison.family(comparison.families[0])
    exploratory = "Exploratory: no contrast was named beforehand."
    is_exploratory = any(one.is_tested for one in findings) and not any(one.is_planned for one in findings)
    parts += lines_if(is_exploratory, exploratory)
    return " ".join(parts)
