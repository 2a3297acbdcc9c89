"""Tables for papers: means with intervals, as a pivot of the factors or one row per variant.

A cell is a mean ± half of its 95 % t-interval over seeds. The LaTeX needs no package but booktabs, and fits a
column of a paper in the size of type that its contents allow.
"""

import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import Comparison
from ablate.analysis.contrasts import EQUAL
from ablate.analysis.variant import Variant
from ablate.analysis.variants import mean_interval
from ablate.config.conditions import column_of
from ablate.config.rules import ConfigError
from ablate.phrases import counted_between, joined, lines_if, option
from ablate.reporting import tables
from ablate.reporting.answers import place
from ablate.reporting.cells import as_called
from ablate.reporting.tables import escaped
from ablate.reporting.words import confidence, interval
from ablate.store.columns import column_named

MARK, SAME = "†", "‡"
COLUMN = 3.3 * 72  # points: the width of a column of a paper
SIZES = {"small": 9, "footnotesize": 8, "scriptsize": 7}  # of type in LaTeX, in points, the largest first
SMALLEST = "scriptsize"
GAP = 3  # points on either side of a column


@dataclass(frozen=True)
class PaperTable:
    """frame: cells as text, the best means between ** where that is decided. stub: how many columns name the
    rows. over: the factor whose levels name the other columns; empty if these have names of their own."""

    caption: str
    frame: pd.DataFrame
    stub: int
    over: str = ""


def pivot(comparison: Comparison, keys: Sequence[str]) -> PaperTable:
    """A table with the levels of the last key as columns and those of the others as rows; of one key, with
    means and differences as columns. Raises ConfigError if two variants would share a cell."""
    table = _variants(comparison)
    where = f"--pivot {','.join(keys)}"
    columns = [column_of(key, table, where) for key in keys]
    if not columns or len({*columns}) < len(columns):
        raise ConfigError(f"{where}: give different keys, as fusion,heads: the last goes across")
    others = [c for c in comparison.varying if c not in columns]
    if table.duplicated(columns).any():
        one = " ".join(option("--where", f"{column}={table[column].iloc[0]}") for column in others)
        raise ConfigError(f"{where}: variants differ in {joined(others)} too; add that, or {one}")
    if len(columns) == 1:
        return _as_rows(comparison, table, columns)
    *down, across = columns
    table[columns] = as_called(comparison, table, columns)
    for column in columns:
        table[column] = pd.Categorical(table[column], _in_order(table[column]), ordered=True)
    frame = table.pivot(index=down, columns=across, values="cell").fillna("")
    frame.columns = [*map(str, frame.columns)]
    marked = table if _otherwise_equal(comparison) else table.iloc[:0]
    return PaperTable(_caption(comparison, table, marked), frame.reset_index(), len(down), across)


def by_variant(comparison: Comparison) -> PaperTable:
    """One row per variant, best first: its mean, and its difference to the baseline."""
    return _as_rows(comparison, _variants(comparison), comparison.varying or comparison.shown[:1])


def _as_rows(comparison: Comparison, table: pd.DataFrame, stub: Sequence[str]) -> PaperTable:
    """One row per variant, named by its arm or the columns of the stub: the number of seeds where it varies,
    mean, difference. If no words in the caption say what each is compared with, one row per contrast, with
    its baseline."""
    arms = [comparison.variants[name].arm for name in table["variant"]]
    named = pd.DataFrame({"arm": arms}, table.index) if all(arms) else as_called(comparison, table, stub)
    seeds = {"seeds": table["n"].astype(str)} if table["n"].nunique() > 1 else {}
    frame = named.assign(**seeds, mean=table["cell"])
    if _otherwise_equal(comparison):
        rows = table
        frame["difference"] = [*map(_difference, rows.to_dict("records"))]
    else:
        rows = _contrasts(comparison, table)
        frame = frame.loc[rows.index].mask(rows.duplicated("variant"), "").reset_index(drop=True)
        frame["difference"] = [_difference(row) + _mark(row) for row in rows.to_dict("records")]
        titles = {name: one.title(comparison.varying) for name, one in comparison.variants.items()}
        frame["baseline"] = rows["baseline"].map(titles).fillna("").to_list()
    about = _about_differences(comparison, rows) if frame["difference"].any() else ""
    caption = " ".join([_caption(comparison, table, rows), *lines_if(about, about)])
    return PaperTable(caption, frame, len(named.columns))


def _about_differences(comparison: Comparison, rows: pd.DataFrame) -> str:
    """What the differences are to, and what their intervals are."""
    tested = rows[rows["p"].notna()]
    several = rows["baseline"].nunique() > 1
    shared = f"{_shared(comparison, rows)}{', otherwise equal' if several else ''}"
    to = f"to {shared if _otherwise_equal(comparison) else 'the baseline beside it'}"
    if tested.empty:
        return f"difference: {to}."
    least, most = (f"{100 * level:.4g} %" for level in (tested["level"].min(), tested["level"].max()))
    each = least if least == most else f"{least} to {most}"
    pairs = tested["pairs"].dropna().astype(int)
    over = f" over {counted_between(pairs.min(), pairs.max(), 'paired seed')}" if len(pairs) else ""
    return f"difference: {to}{over}, with its simultaneous interval (each at {each})."


def latex(table: PaperTable) -> str:
    """The table in LaTeX, as a float with booktabs rules: in the largest type in which it fits a column of a
    paper, by an estimate of its width, or over both columns if none is small enough."""
    cells = len(table.frame.columns) - table.stub
    rows = [
        [re.sub(r"^\*\*(.*)\*\*$", r"\\textbf{\1}", escaped(text)) for text in row]
        for row in table.frame.itertuples(index=False, name=None)
    ]
    names = [escaped(name.replace("_", " ")) for name in (*table.frame.columns, table.over)]
    align = "l" * table.stub + "r" * cells
    text = tables.latex(names[:-1], align, rows, over=names[-1], caption=escaped(table.caption))
    size = next((size for size in SIZES if _width(table.frame, size) <= COLUMN), None)
    smaller = f"\\centering\n\\{size or SMALLEST}\n\\setlength{{\\tabcolsep}}{{{GAP}pt}}\n"
    text = text.replace("\\centering\n", smaller, 1)
    return text if size else text.replace("{table}", "{table*}")


def _width(frame: pd.DataFrame, size: str) -> float:
    """About the width of the table in points, in a size of type."""
    columns = [[str(name), *frame[name]] for name in frame.columns]
    return SIZES[size] * sum(max(map(_ems, each)) for each in columns) + 2 * GAP * len(columns)


def _ems(text: str) -> float:
    """About the width of a text, relative to the size of type: as in Computer Modern."""
    widths = [0.3 if letter in " .,:;[]()'il" else 0.78 if letter in "±+−-" else 0.53 for letter in text]
    bold = text.startswith("**")
    return (sum(widths) - 4 * 0.53) * 7 / 6 if bold else sum(widths)


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
    apart, unsure = set[str](), set[str]()  # variants that a comparison tells apart, or leaves open
    for one in comparison.findings:
        of = unsure if one.is_undecided else apart if one.verdict in stats.CLAIMS else set[str]()
        of |= {one.variant.name, one.baseline.name}
    table["best"] &= table["variant"].isin(apart - unsure)
    is_told = _otherwise_equal(comparison)
    table["cell"] = [_cell(row, _mark(row) if is_told else "") for row in table.to_dict("records")]
    return table.drop_duplicates("variant").sort_values(
        ["mean", "variant"],
        ascending=[not comparison.higher_is_better, True],
        kind="stable",
    )


def _otherwise_equal(comparison: Comparison) -> bool:
    """Whether what all baselines have in common says which is whose: each variant has one, which differs from
    it in that alone; or there is one baseline for all."""
    rows = comparison.table[comparison.table["baseline"].notna()]
    if rows["baseline"].nunique() < 2:
        return True
    common = _common([comparison.variants[name] for name in rows["baseline"].unique()], comparison.varying)
    pairs = [(one.variant.levels, one.baseline.levels) for one in comparison.findings]
    return bool(common) and all({**levels, **common} == base for levels, base in pairs)


def _contrasts(comparison: Comparison, table: pd.DataFrame) -> pd.DataFrame:
    """The contrasts of the first family that has any, variants as in the table, with their places there; a
    variant without one has a row of its own."""
    rows = comparison.table[comparison.table["baseline"].notna()]
    rows = rows[rows["family"] == rows["family"].iloc[0]]
    places = pd.DataFrame({"variant": table["variant"], "place": table.index})
    return places.merge(rows, "left", "variant").set_index("place").rename_axis(None)


def _mark(row: Mapping[Hashable, Any]) -> str:
    return MARK if row["verdict"] in stats.CLAIMS else SAME if row["verdict"] == stats.EQUIVALENT else ""


def _cell(row: Mapping[Hashable, Any], mark: str) -> str:
    half = "" if row["half"] != row["half"] else f" ± {row['half']:.3f}"
    text = f"{row['mean']:.3f}{half}{mark}"
    return f"**{text}**" if row["best"] else text


def _difference(row: Mapping[Hashable, Any]) -> str:
    if row["verdict"] in (stats.IDENTICAL, EQUAL):
        return row["verdict"]
    return (
        ""
        if row["diff"] != row["diff"]
        else f"{row['diff']:+.3f} {interval(row['low'], row['high'], '.3f')}".rstrip()
    )


def _caption(comparison: Comparison, table: pd.DataFrame, rows: pd.DataFrame) -> str:
    """rows: the contrasts that are marked."""
    low, high = int(table["n"].min()), int(table["n"].max())
    metric = column_named(comparison.metric).words
    parts = [
        f"{metric}, mean over {counted_between(low, high, 'seed')}"
        + (" ± half of its 95 % t-interval." if high > 1 else ".")
    ]
    where = place(comparison.rows)
    parts += [f"{where}."] if where else []
    if table["best"].any():
        which = "highest" if comparison.higher_is_better else "lowest"
        parts.append(f"Bold: the {which} mean, if all comparisons with it are decided.")
    is_told = _otherwise_equal(comparison)
    if rows["verdict"].isin(stats.CLAIMS).any():
        which = f", {_shared(comparison, rows)}," if is_told else ""
        by = f"by the simultaneous {confidence(comparison)} interval"
        parts.append(f"{MARK}: differs from its baseline{which} {by}.")
    if rows["verdict"].eq(stats.EQUIVALENT).any():
        parts.append(f"{SAME}: equivalent to its baseline within ±{comparison.margin:g}.")
    if same := comparison.identical:
        names = "; ".join(one.variant.name for one in same)
        parts.append(f"Identical to its baseline in every run: {names}.")
    return " ".join(parts)


def _common(variants: Sequence[Variant], columns: Collection[str]) -> dict[str, str]:
    """The levels of these columns that all variants share."""
    first, *rest = [one.levels for one in variants]
    return {key: first[key] for key in columns if all(other.get(key) == first[key] for other in rest)}


def _shared(comparison: Comparison, rows: pd.DataFrame) -> str:
    """What all baselines have in common, in English, of what varies; if that is nothing, of all."""
    baselines = [comparison.variants[name] for name in sorted({*rows["baseline"].dropna()})]
    told = _common(baselines, comparison.varying) or _common(baselines, comparison.shown)
    words = baselines[0].words
    return joined([words.get(key) or _in_english(key, level) for key, level in told.items() if level])


def _in_english(column: str, level: str) -> str:
    """A level of a factor: `concat`, `4 heads`, `without output projection`."""
    words = column_named(column).words
    if level in ("true", "false"):
        return f"{'with' if level == 'true' else 'without'} {words}"
    if column in ("heads", "layers"):
        return f"{level} {words if level != '1' else words.removesuffix('s')}"
    return level if column in ("fusion", "scores") else f"{words} {level}"


def _in_order(column: pd.Series) -> list[str]:
    """The levels of a column: numbers by size, words in the order of the table."""
    levels = list(dict.fromkeys(column))
    are_numbers = pd.to_numeric(pd.Series(levels), errors="coerce").notna().all()
    return sorted(levels, key=float) if are_numbers else levels
