"""Tables for papers: means with intervals, as a pivot of the factors or one row per variant.

A cell is a mean ± half of its 95 % t-interval over seeds. The LaTeX needs no package but booktabs, and fits a
column of a paper in the size of type that its contents allow.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from ablate import tables
from ablate.analysis import stats
from ablate.analysis.compare import Comparison
from ablate.analysis.finding import Finding
from ablate.analysis.variant import Variant
from ablate.config.conditions import column_of
from ablate.config.rules import ConfigError
from ablate.phrases import counted_between, joined, lines_if, option
from ablate.reporting.answers import place
from ablate.reporting.cells import as_called
from ablate.reporting.words import interval
from ablate.store.columns import column_named
from ablate.tables import escaped

MARKS = {stats.BETTER: "†", stats.WORSE: "†", stats.EQUIVALENT: "‡"}
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
    return PaperTable(_caption(comparison, table), frame.reset_index(), len(down), across)


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
    found = [_of(comparison, name) for name in table["variant"]]
    if _shared(comparison):
        frame["difference"] = [_difference(of[0]) if of else "" for of in found]
    else:
        rows = [(at, one) for at, of in zip(table.index, found, strict=True) for one in of or [None]]
        again = [at == before for (at, _), (before, _) in zip(rows, [(None, None), *rows], strict=False)]
        frame = frame.loc[[at for at, _ in rows]].reset_index(drop=True).mask(pd.Series(again), "")
        frame["difference"] = [_difference(one) + _mark(one) if one else "" for _, one in rows]
        titles = {name: one.title(comparison.varying) for name, one in comparison.variants.items()}
        frame["baseline"] = [titles[one.baseline.name] if one else "" for _, one in rows]
    about = _about_differences(comparison) if frame["difference"].any() else ""
    return PaperTable(
        " ".join([_caption(comparison, table), *lines_if(about, about)]), frame, len(named.columns)
    )


def _about_differences(comparison: Comparison) -> str:
    """What the differences are to, and what their intervals are."""
    tested = [one for one in _findings(comparison) if one.is_tested]
    shared = _shared(comparison)
    several = len({one.baseline.name for one in _findings(comparison)}) > 1
    to = f"to {shared}{', otherwise equal' if several else ''}" if shared else "to the baseline beside it"
    if not tested:
        return f"difference: {to}."
    levels = [f"{100 * level:.4g} %" for level in sorted({one.level for one in tested})]
    each = " to ".join([*dict.fromkeys([levels[0], levels[-1]])])
    pairs = [one.pairs for one in tested if one.pairs is not None]
    over = f" over {counted_between(min(pairs), max(pairs), 'paired seed')}" if pairs else ""
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


def _findings(comparison: Comparison) -> list[Finding]:
    """Those that were named beforehand or, without any, all."""
    return comparison.family(comparison.families[0])


def _of(comparison: Comparison, variant: str) -> list[Finding]:
    return [one for one in _findings(comparison) if one.variant.name == variant]


def _variants(comparison: Comparison) -> pd.DataFrame:
    """Each variant once, with half the width of the 95 % interval of its mean, its verdict where it has one
    contrast, whether it is the best by all comparisons with it, and its mean as a cell."""
    table = comparison.summary.reset_index(drop=True)
    apart, unsure = set[str](), set[str]()  # variants that a comparison tells apart, or leaves open
    for one in _findings(comparison):
        of = (
            unsure
            if one.is_undecided
            else apart
            if one.verdict in (stats.BETTER, stats.WORSE)
            else set[str]()
        )
        of |= {one.variant.name, one.baseline.name}
    first = {name: of[0] for name in table["variant"] if (of := _of(comparison, name))}
    is_told = bool(_shared(comparison))
    half = _half(table)
    best = (table["mean"] == table["mean"].iloc[0]) & table["variant"].isin(apart - unsure)
    best &= comparison.higher_is_better is not None
    marks = [_mark(first[name]) if is_told and name in first else "" for name in table["variant"]]
    cells = [
        f"{mean:.3f}{'' if h != h else f' ± {h:.3f}'}{mark}"
        for mean, h, mark in zip(table["mean"], half, marks, strict=True)
    ]
    return table.assign(
        half=half,
        best=best,
        verdict=[first[name].verdict if name in first else "" for name in table["variant"]],
        cell=[f"**{cell}**" if is_best else cell for cell, is_best in zip(cells, best, strict=True)],
    )


def _half(table: pd.DataFrame) -> pd.Series:
    """Half the width of the 95 % t-interval of each mean; NaN for one seed."""
    from scipy.special import stdtrit

    n = table["n"].astype(float).where(table["n"] > 1)
    return -stdtrit(n - 1, stats.ALPHA / 2) * table["sd"] / n**0.5


def _mark(one: Finding) -> str:
    return MARKS.get(one.verdict, "")


def _difference(one: Finding) -> str:
    if not one.verdict:
        return one.why.partition(":")[0]
    ends = interval(one.low, one.high, ".3f")
    return "" if one.diff != one.diff else f"~ {ends}" if one.is_undecided else f"{one.diff:+.3f} {ends}"


def _caption(comparison: Comparison, table: pd.DataFrame) -> str:
    low, high = int(table["n"].min()), int(table["n"].max())
    metric = column_named(comparison.metric).words
    parts = [
        f"{metric}, mean over {counted_between(low, high, 'seed')}"
        + (" ± half of its 95 % t-interval." if high > 1 else ".")
    ]
    where = place(comparison.rows)
    parts += lines_if(where, f"{where}.")
    which = "highest" if comparison.higher_is_better else "lowest"
    parts += lines_if(table["best"].any(), f"Bold: the {which} mean, if all comparisons with it are decided.")
    verdicts = {one.verdict for one in _findings(comparison)}
    shared = _shared(comparison)
    told = f", {shared}," if shared else ""
    parts += lines_if(
        verdicts & {stats.BETTER, stats.WORSE},
        f"{MARKS[stats.BETTER]}: differs from its baseline{told} by the simultaneous"
        f" {100 * (1 - stats.ALPHA):g} % interval.",
    )
    parts += lines_if(
        stats.EQUIVALENT in verdicts,
        f"{MARKS[stats.EQUIVALENT]}: equivalent to its baseline within ±{comparison.margin:g}.",
    )
    return " ".join(parts)


def _shared(comparison: Comparison) -> str:
    """What all baselines have in common, in English, if it says which is whose: each variant has one, which
    differs from it in that alone, or there is one baseline for all; else empty."""
    findings = _findings(comparison)
    baselines = [*{one.baseline.name: one.baseline for one in findings}.values()]
    if not baselines:
        return ""
    common = _common(baselines, comparison.varying)
    pairs = [(one.variant.levels, one.baseline.levels) for one in findings]
    is_told = bool(common) and all({**levels, **common} == base for levels, base in pairs)
    if len(baselines) > 1 and not is_told:
        return ""
    told, words = common or _common(baselines, comparison.shown), baselines[0].words
    return joined([words.get(key) or _in_english(key, level) for key, level in told.items() if level])


def _common(variants: Sequence[Variant], columns: Sequence[str]) -> Mapping[str, str]:
    """The levels of these columns that all variants share."""
    first, *rest = [one.levels for one in variants]
    return {key: first[key] for key in columns if all(other.get(key) == first[key] for other in rest)}


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
