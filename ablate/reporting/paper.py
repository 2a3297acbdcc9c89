"""Tables for papers: means with intervals, as a pivot of the factors or one row per variant.

A cell is a mean ± half of its 95 % t-interval over seeds. The LaTeX needs no package but booktabs.
"""

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import Comparison
from ablate.analysis.variants import levels_of, mean_interval
from ablate.config.conditions import column_of
from ablate.config.rules import ConfigError
from ablate.phrases import counted_between, some
from ablate.reporting import tables
from ablate.reporting.answers import place
from ablate.reporting.tables import escaped
from ablate.reporting.words import confidence
from ablate.store.columns import column_named

DIFFERS = (stats.BETTER, stats.BETTER_WITHIN, stats.WORSE, stats.WORSE_WITHIN)
MARK = "†"


@dataclass(frozen=True)
class PaperTable:
    """frame: cells as text, the best means between **. stub: how many columns name the rows. over: the factor
    whose levels name the other columns; empty if these have names of their own."""

    caption: str
    frame: pd.DataFrame
    stub: int
    over: str = ""


def pivot(comparison: Comparison, keys: Sequence[str]) -> PaperTable:
    """A table with the levels of the last key as columns and those of the others as rows. Raises ConfigError
    if two variants would share a cell."""
    table = _variants(comparison)
    where = f"--pivot {','.join(keys)}"
    columns = [column_of(key, table, where) for key in keys]
    if len(columns) < 2 or len({*columns}) < len(columns):
        raise ConfigError(f"{where}: give two keys or more, as fusion,heads: the last goes across")
    others = [c for c in comparison.shown if c not in columns and table[c].nunique() > 1]
    if table.duplicated(columns).any():
        first = f"{others[0]}={table[others[0]].iloc[0]}"
        raise ConfigError(f"{where}: variants differ in {', '.join(others)} too; add it, or --where {first}")
    *down, across = columns
    for column in columns:
        table[column] = pd.Categorical(table[column], _in_order(table[column]), ordered=True)
    frame = table.pivot(index=down, columns=across, values="cell").fillna("")
    frame.columns = [*map(str, frame.columns)]
    return PaperTable(_caption(comparison, table), frame.reset_index(), len(down), across)


def by_variant(comparison: Comparison) -> PaperTable:
    """One row per variant, best first: its mean, and its difference to the baseline."""
    table = _variants(comparison)
    shown = [c for c in comparison.shown if table[c].nunique() > 1] or comparison.shown[:1]
    frame = table[shown].assign(
        seeds=table["n"].astype(str),
        mean=table["cell"],
        difference=[_difference(row) for row in table.to_dict("records")],
    )
    return PaperTable(_caption(comparison, table), frame, len(shown))


def latex(table: PaperTable) -> str:
    """The table in LaTeX, as a float with booktabs rules."""
    cells = len(table.frame.columns) - table.stub
    rows = [
        [re.sub(r"^\*\*(.*)\*\*$", r"\\textbf{\1}", escaped(text)) for text in row]
        for row in table.frame.itertuples(index=False, name=None)
    ]
    names = [escaped(name.replace("_", " ")) for name in (*table.frame.columns, table.over)]
    align = "l" * table.stub + "r" * cells
    return tables.latex(names[:-1], align, rows, over=names[-1], caption=escaped(table.caption))


def plain(table: PaperTable) -> pd.DataFrame:
    """The table with its levels named in full, as heads=4."""
    names = [*table.frame.columns]
    named = [f"{table.over}={name}" if table.over else name for name in names[table.stub :]]
    return table.frame.set_axis([*names[: table.stub], *named], axis=1)


def tidy(comparison: Comparison, keys: Sequence[str]) -> pd.DataFrame:
    """One row per variant, for programs: keys, n, mean, half, best, verdict."""
    table = _variants(comparison)
    columns = [column_of(key, table, f"--pivot {','.join(keys)}") for key in keys]
    return table[[*columns, "n", "mean", "half", "best", "verdict"]]


def _variants(comparison: Comparison) -> pd.DataFrame:
    """Each variant once, preferably from a row in which it was compared, with half the width of its
    interval, and with its mean as a cell."""
    table = comparison.table.sort_values("p", na_position="last", kind="stable")
    high = mean_interval(table[["n", "mean", "sd"]])["high"]
    table = table.assign(half=high - table["mean"])
    table["cell"] = [_cell(row) for row in table.to_dict("records")]
    return table.drop_duplicates("variant").sort_values(
        ["mean", "variant"],
        ascending=[not column_named(comparison.metric).higher_is_better, True],
        kind="stable",
    )


def _cell(row: Mapping[Hashable, Any]) -> str:
    half = "" if row["half"] != row["half"] else f" ± {row['half']:.3f}"
    text = f"{row['mean']:.3f}{half}{MARK if row['verdict'] in DIFFERS else ''}"
    return f"**{text}**" if row["best"] else text


def _difference(row: Mapping[Hashable, Any]) -> str:
    interval = f" [{row['low']:.3f}, {row['high']:.3f}]" if row["low"] == row["low"] else ""
    return "" if row["diff"] != row["diff"] else f"{row['diff']:+.3f}{interval}"


def _caption(comparison: Comparison, table: pd.DataFrame) -> str:
    low, high = int(table["n"].min()), int(table["n"].max())
    metric = column_named(comparison.metric).words
    parts = [
        f"{metric}, mean over {counted_between(low, high, 'seed')}"
        + (" ± half of its 95 % t-interval." if high > 1 else ".")
    ]
    where = place(comparison.rows)
    parts += [f"{where}."] if where else []
    if table["best"].any():
        parts.append(
            f"Bold: the {'highest' if column_named(comparison.metric).higher_is_better else 'lowest'} mean."
        )
    if table["verdict"].isin(DIFFERS).any():
        base = f"{_shared(sorted({*table['baseline'].dropna()}))}; simultaneous {confidence(comparison)}"
        parts.append(f"{MARK}: differs from its baseline ({base} interval).")
    return " ".join(parts)


def _shared(names: Sequence[str]) -> str:
    """What all of these variants have in common; the first one's name if nothing."""
    first, *rest = map(levels_of, names)
    common = [
        f"{key}={level}" for key, level in first.items() if all(other.get(key) == level for other in rest)
    ]
    return " ".join(common) or some(names, 1)


def _in_order(column: pd.Series) -> list[str]:
    """The levels of a column: numbers by size, words in the order of the table."""
    levels = list(dict.fromkeys(column))
    are_numbers = pd.to_numeric(pd.Series(levels), errors="coerce").notna().all()
    return sorted(levels, key=float) if are_numbers else levels
