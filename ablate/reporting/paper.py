"""Tables for papers: means with intervals, as a pivot of the factors or one row per variant.

A cell is a mean ± half of its 95 % t-interval over seeds. The LaTeX needs no package but booktabs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import Comparison
from ablate.analysis.select import column_of
from ablate.analysis.series import mean_interval
from ablate.analysis.variants import name_parts
from ablate.config.rules import ConfigError
from ablate.phrases import counted, some
from ablate.reporting.answers import place
from ablate.reporting.tables import escaped
from ablate.store.columns import HIGHER_IS_BETTER

METRICS = {
    "val_loss": "Validation loss (nats per token)",
    "test_loss": "Test loss (nats per token)",
    "val_bpb": "Validation bits per byte",
    "val_acc": "Validation accuracy",
    "test_acc": "Test accuracy",
    "val_exact": "Validation rows without an error",
    "test_exact": "Test rows without an error",
}
DIFFERS = (stats.BETTER, stats.BETTER_WITHIN, stats.WORSE, stats.WORSE_WITHIN)
MARK = "†"


@dataclass(frozen=True)
class Cell:
    """half: half the width of the mean's interval, NaN for one seed. differs: whether it differs from its
    baseline by the simultaneous interval."""

    mean: float
    half: float
    best: bool = False
    differs: bool = False

    def text(self, digits: int = 3) -> str:
        half = "" if self.half != self.half else f" ± {self.half:.{digits}f}"
        return f"{self.mean:.{digits}f}{half}{MARK if self.differs else ''}"


@dataclass(frozen=True)
class PaperTable:
    """stub: the names of the columns before the cells. over: the factor whose levels are the columns of
    cells; empty if these have names of their own. rows: each with its stub and its cells, "" without a
    variant."""

    caption: str
    stub: list[str]
    over: str
    columns: list[str]
    rows: list[tuple[list[str], list[Cell | str]]]


def pivot(comparison: Comparison, rows: pd.DataFrame, keys: Sequence[str]) -> PaperTable:
    """A table with the levels of the last key as columns and those of the others as rows. rows: those
    compared, for the caption. Raises ConfigError if two variants would share a cell."""
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
    levels = _ordered(table[across])
    cells = {tuple(row[columns]): _cell(row) for _, row in table.iterrows()}
    stubs = sorted(
        {tuple(row) for row in table[down].itertuples(index=False, name=None)}, key=_order_of(table, down)
    )
    body: list[tuple[list[str], list[Cell | str]]] = [
        ([*stub], [cells.get((*stub, level), "") for level in levels]) for stub in stubs
    ]
    return PaperTable(_caption(comparison, rows, table), down, across, levels, body)


def by_variant(comparison: Comparison, rows: pd.DataFrame) -> PaperTable:
    """One row per variant, best first: its mean, and its difference to the baseline."""
    table = _variants(comparison)
    shown = [c for c in comparison.shown if table[c].nunique() > 1] or comparison.shown[:1]
    body: list[tuple[list[str], list[Cell | str]]] = [
        ([str(row[c]) for c in shown], [str(row["n"]), _cell(row), _difference(row)])
        for _, row in table.iterrows()
    ]
    columns = ["seeds", "mean", "difference"]
    return PaperTable(_caption(comparison, rows, table), shown, "", columns, body)


def latex(table: PaperTable) -> str:
    """The table in LaTeX, as a float with booktabs rules."""
    width = len(table.stub)
    names = [*map(_name, table.stub), *map(_name, table.columns)]
    head = [" & ".join(names) + r" \\"]
    if table.over:
        head = [
            f"{'& ' * width}\\multicolumn{{{len(table.columns)}}}{{c}}{{{_name(table.over)}}} \\\\",
            rf"\cmidrule(lr){{{width + 1}-{width + len(table.columns)}}}",
            *head,
        ]
    body = [
        " & ".join([*map(escaped, stub), *map(_latex_cell, cells)]) + r" \\" for stub, cells in table.rows
    ]
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            *(r"\begin{table}", r"\centering", rf"\caption{{{escaped(table.caption)}}}"),
            rf"\begin{{tabular}}{{{'l' * width}{'r' * len(table.columns)}}}",
            *(r"\toprule", *head, r"\midrule", *body, r"\bottomrule"),
            *(r"\end{tabular}", r"\end{table}", ""),
        ]
    )


def plain(table: PaperTable) -> pd.DataFrame:
    """The table with cells as text, the best in **."""
    over = f"{table.over}=" if table.over else ""
    names = [*table.stub, *(f"{over}{column}" for column in table.columns)]
    return pd.DataFrame([[*stub, *map(_text_cell, cells)] for stub, cells in table.rows], columns=names)


def tidy(comparison: Comparison, keys: Sequence[str]) -> pd.DataFrame:
    """One row per variant, for programs: keys, n, mean, half, best, verdict."""
    table = _variants(comparison)
    columns = [column_of(key, table, f"--pivot {','.join(keys)}") for key in keys]
    return table[[*columns, "n", "mean", "half", "best", "verdict"]]


def _variants(comparison: Comparison) -> pd.DataFrame:
    """Each variant once, preferably from a row in which it was compared, with half the width of its
    interval."""
    table = comparison.table.sort_values("p", na_position="last", kind="stable")
    high = mean_interval(table[["n", "mean", "sd"]])["high"]
    table = table.assign(half=high - table["mean"])
    return table.drop_duplicates("variant").sort_values(
        ["mean", "variant"], ascending=[comparison.metric not in HIGHER_IS_BETTER, True], kind="stable"
    )


def _cell(row: pd.Series) -> Cell:
    return Cell(row["mean"], row["half"], bool(row["best"]), row["verdict"] in DIFFERS)


def _difference(row: pd.Series) -> str:
    if row["diff"] != row["diff"]:
        return ""
    interval = f" [{row['low']:.3f}, {row['high']:.3f}]" if row["low"] == row["low"] else ""
    return f"{row['diff']:+.3f}{interval}"


def _caption(comparison: Comparison, rows: pd.DataFrame, table: pd.DataFrame) -> str:
    low, high = int(table["n"].min()), int(table["n"].max())
    seeds = counted(high, "seed") if low == high else f"{low} to {high} seeds"
    metric = METRICS.get(comparison.metric, comparison.metric)
    parts = [f"{metric}, mean over {seeds}" + (" ± half of its 95 % t-interval." if high > 1 else ".")]
    where = place(rows)
    parts += [f"{where}."] if where else []
    if table["best"].any():
        parts.append(f"Bold: the {'highest' if comparison.metric in HIGHER_IS_BETTER else 'lowest'} mean.")
    if table["verdict"].isin(DIFFERS).any():
        level = f"{100 * (1 - comparison.alpha):g} %"
        base = _shared(sorted({*table["baseline"].dropna()}))
        parts.append(f"{MARK}: differs from its baseline ({base}; simultaneous {level} interval).")
    return " ".join(parts)


def _shared(names: Sequence[str]) -> str:
    """What all of these variants have in common; the first one's name if nothing."""
    rest = [{*name_parts(name)} for name in names[1:]]
    common = [part for part in name_parts(names[0]) if all(part in other for other in rest)]
    return " ".join(common) or some(names, 1)


def _ordered(column: pd.Series) -> list[str]:
    """The levels of a column in reading order: numbers by size, words in the order of the table."""
    return sorted(dict.fromkeys(column), key=_order_of(column.to_frame(), [str(column.name)], one=True))


def _order_of(table: pd.DataFrame, columns: Sequence[str], *, one: bool = False) -> Any:
    ranks: list[Mapping[str, float]] = []
    for column in columns:
        levels = list(dict.fromkeys(table[column]))
        numbers = pd.to_numeric(pd.Series(levels), errors="coerce")
        ranks.append(dict(zip(levels, numbers if numbers.notna().all() else range(len(levels)), strict=True)))
    if one:
        return lambda level: ranks[0][level]
    return lambda stub: [rank[level] for rank, level in zip(ranks, stub, strict=True)]


def _text_cell(cell: Cell | str) -> str:
    if isinstance(cell, Cell):
        return f"**{cell.text()}**" if cell.best else cell.text()
    return cell


def _latex_cell(cell: Cell | str) -> str:
    if not isinstance(cell, Cell):
        return escaped(cell)
    half = "" if cell.half != cell.half else rf" $\pm$ {cell.half:.3f}"
    number = f"{cell.mean:.3f}{half}"
    return (rf"\textbf{{{number}}}" if cell.best else number) + (r"\textdagger" if cell.differs else "")


def _name(name: str) -> str:
    return escaped(name.replace("_", " "))
