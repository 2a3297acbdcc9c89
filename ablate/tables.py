"""Tables as text: for a terminal, a program or a paper. Prints nothing."""

import bisect
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from rich.cells import cell_len

from ablate.phrases import one_line, visible
from ablate.store.columns import FORMULA, SEED_COLUMNS
from ablate.store.frames import is_empty, is_numeric

# Columns to leave out in a narrow terminal, the first one first.
LEAST = (
    *("question", "wall_s", "tokens_per_s", "error", "match_error", "params", "corpus", "steps", "sd"),
    *("study", "null", "untrained", "smallest", "median", "mean"),
)


def render(frame: pd.DataFrame, format: str) -> str:
    """`frame` as text. csv keeps full precision; table and md round for reading.

    format: table, csv, md or latex.
    """
    if format == "csv":
        return _as_texts(frame).to_csv(index=False, lineterminator="\n")
    cells = [[readable(name, value) for name, value in row.items()] for row in frame.to_dict("records")]
    names = [visible(str(name)) for name in frame.columns]
    if format == "md":
        lines = [names, ["---:" if is_numeric(frame[name]) else "---" for name in frame.columns], *cells]
        marks = re.compile(r"[\\|]|<(?=[a-zA-Z/!?])")
        return "".join(
            "| " + " | ".join(marks.sub(r"\\\g<0>", cell) for cell in line) + " |\n" for line in lines
        )
    if format == "latex":
        align = "".join("r" if is_numeric(frame[name]) else "l" for name in frame.columns)
        return latex([*map(escaped, names)], align, [[*map(escaped, line)] for line in cells])
    return lines_of(frame, None)[0]


def records(frame: pd.DataFrame, settings: Iterable[str] = ()) -> list[dict[str, Any]]:
    """The rows as JSON takes them: with None for what is missing or not finite. settings: columns of
    text, in which numbers, true and false are told as such if all are of these."""
    plain = frame.astype(object).where(frame.notna() & ~frame.isin([np.inf, -np.inf]), None)
    for column in plain.columns.intersection([*settings]):
        cells = plain[column].tolist()
        if all(_SCALAR.fullmatch(str(cell)) for cell in cells if cell):
            plain[column] = pd.Series(
                [json.loads(cell) if cell else cell for cell in cells], plain.index, object
            )
    return [{str(name): value for name, value in row.items()} for row in plain.to_dict("records")]


def _as_texts(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with an apostrophe before each text, and name, that a spreadsheet would run as a formula."""

    def marked(text: Any) -> Any:
        is_run = isinstance(text, str) and FORMULA.match(text) and not _NUMBER.fullmatch(text)
        return f"'{text}" if is_run else text

    columns = ((marked(name), cells) for name, cells in frame.items())
    return pd.DataFrame({n: c if is_numeric(c) else c.astype(object).map(marked) for n, c in columns})


def lines_of(
    frame: pd.DataFrame, width: int | None, *, bold: bool = False, spare: Sequence[str] = ()
) -> tuple[str, list[str]]:
    """`frame` as text for a terminal of this width, and the names of the columns that were left out.

    width: in characters; None for no limit. bold: print the names and the best row in bold. spare: columns
    that may be left out once those of LEAST are gone.
    """
    least = (*LEAST, *spare)
    columns = [
        TextColumn(
            visible(str(name)),
            [readable(name, value) for value in frame[name].tolist()],
            right=is_numeric(frame[name]),
            rank=least.index(str(name)) if name in least else None,
        )
        for name in frame.columns
    ]
    rows, left_out = fitted(columns, width)
    strong = [True, *[False] * len(frame)]
    lines = [
        f"\x1b[1m{line}\x1b[0m\n" if bold and mark else f"{line}\n"
        for row, mark in zip(rows, strong, strict=True)
        for line in row
    ]
    return "".join(lines), left_out


def latex(names: list[str], align: str, rows: list[list[str]], *, over: str = "", caption: str = "") -> str:
    """A tabular with booktabs rules, by pandas' Styler; with a caption, in a float.

    names, over, rows: LaTeX already. align: l or r for each column. over: a heading over the columns that are
    right-aligned.
    """
    left = align.count("l")
    heading = [("" if at < left else over, name) for at, name in enumerate(names)]
    table = pd.DataFrame(rows, columns=pd.MultiIndex.from_tuples(heading) if over else names, dtype=object)
    text = table.style.hide(axis="index").to_latex(
        column_format=align,
        hrules=True,
        multicol_align="c",
        caption=caption or None,
        position_float="centering" if caption else None,
    )
    if over:  # a rule under the heading, which Styler does not draw
        text = text.replace("\\\\\n", f"\\\\\n\\cmidrule(lr){{{left + 1}-{len(align)}}}\n", 1)
    return f"% needs \\usepackage{{booktabs}}\n{text}"


def escaped(text: str) -> str:
    """Text for LaTeX: special characters escaped, a hyphen before a number as a minus sign."""
    safe = "".join(_LATEX.get(character, character) for character in visible(text))
    return re.sub(r"(?<![\w.])-(?=\d)", r"$-$", safe)


_SIGNS = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ√·≤≥≠≈∞→∈"
_NAMES = (
    "alpha beta gamma delta varepsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon"
    " varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega surd cdot leq geq neq"
    " approx infty to in"
)
_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"},
    # A bracket that begins a row would be read as an option of the line break before it.
    **{
        "[": "{[}",
        "]": "{]}",
        "−": "$-$",
        "±": r"$\pm$",
        "×": r"$\times$",
        "†": r"\textdagger{}",
        "‡": r"\textdaggerdbl{}",
    },
    "…": r"\dots{}",
    **{sign: f"$\\{name}$" for sign, name in zip(_SIGNS, _NAMES.split(), strict=True)},
}


def render_row(row: pd.Series) -> str:
    """One row, printed with one line per column."""
    cells = [readable(name, value) for name, value in row.items()]
    return "".join(f"{line}\n" for line in _card([str(name) for name in row.index], cells))


def readable(name: object, value: Any) -> str:
    """One cell for readers: losses with 4 digits after the point, counts with thousands separators,
    seeds, which are labels, without."""
    if is_empty(value):
        return ""
    if isinstance(value, bool | np.bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{1 if name in _SHORT else 4}f}"
    if isinstance(value, int | np.integer) and abs(value) >= 1000 and name not in SEED_COLUMNS:
        return f"{value:,}"
    return visible(one_line(str(value)) if name == "error" else str(value))


_NUMBER = re.compile(r"[+-]?[\d.,]+([eE][+-]?\d+)?")
_SCALAR = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?|true|false")  # of JSON
_SHORT = ("wall_s", "tokens_per_s", "step_ms", "minutes")


# --- columns that fit into a terminal -------------------------------------------------------------

GAP = 2  # characters between columns
TALL = 2  # lines per cell; rather than use more, columns are left out
WORD = re.compile(r"[^\s\[]*\[[^\]]*\]\S*|\S+")  # an interval, [0.1, 0.2], counts as one word


@dataclass(frozen=True)
class TextColumn:
    """A column with one cell per row. right: whether it is right-aligned, as numbers are. rank: the order in
    which columns are left out, lowest first; None for a column that stays."""

    name: str
    cells: Sequence[str]
    right: bool = False
    rank: int | None = None

    @cached_property
    def natural(self) -> int:
        return max(map(cell_len, (self.name, *self.cells)))

    @cached_property
    def narrowest(self) -> int:
        """The width of its longest word."""
        return max(cell_len(word) for cell in (self.name, *self.cells) for word in WORD.findall(cell) or [""])

    @cached_property
    def narrow(self) -> int:
        """The smallest width in which no cell needs more than TALL lines."""
        possible = range(self.narrowest, self.natural)
        cells = [cell for cell in self.cells if cell_len(cell) > self.narrowest]
        at = bisect.bisect_left(
            possible, True, key=lambda width: all(len(_broken(cell, width)) <= TALL for cell in cells)
        )
        return self.narrowest + at


def fitted(columns: Sequence[TextColumn], width: int | None) -> tuple[list[list[str]], list[str]]:
    """The lines of each row, beginning with the names, in `width` characters (None for no limit), and the
    names of the columns left out.

    Cells break between words, never within one. If a cell would need more than TALL lines, columns are left
    out by their rank, if that helps. A table that is still too wide gets one line per value.
    """
    expendable = sorted((c for c in columns if c.rank is not None), key=lambda c: c.rank or 0)
    for least in (TextColumn.narrow.func, TextColumn.narrowest.func):
        for count in range(len(expendable) + 1):
            gone = [column.name for column in columns if column in expendable[:count]]
            kept = [column for column in columns if column.name not in gone]
            if (widths := _widths(kept, width, [*map(least, kept)])) is not None:
                cells = [[c.name for c in kept], *zip(*(c.cells for c in kept), strict=True)]
                return [_lines(row, kept, widths) for row in cells], gone
    names = [column.name for column in columns]
    rows = zip(*(column.cells for column in columns), strict=True)
    return [[], *([*_card(names, row), ""] for row in rows)], []


def _widths(columns: Sequence[TextColumn], width: int | None, least: Sequence[int]) -> list[int] | None:
    """The width of each column, shrunk first where there is most to spare; None if `least` does not fit."""
    widths = [column.natural for column in columns]
    if width is None:
        return widths
    room = width - GAP * (len(columns) - 1)
    for at in sorted(range(len(columns)), key=lambda at: least[at] - widths[at]):
        widths[at] -= min(max(0, sum(widths) - room), widths[at] - least[at])
    return widths if sum(widths) <= room else None


def _lines(cells: Sequence[str], columns: Sequence[TextColumn], widths: Sequence[int]) -> list[str]:
    """The lines of one row."""
    parts = [_broken(cell, width) for cell, width in zip(cells, widths, strict=True)]
    lines = []
    for line in itertools.zip_longest(*parts, fillvalue=""):
        padded = [
            " " * (width - cell_len(part)) + part if column.right else part + " " * (width - cell_len(part))
            for part, column, width in zip(line, columns, widths, strict=True)
        ]
        lines.append((" " * GAP).join(padded).rstrip())
    return lines


def _broken(cell: str, width: int) -> list[str]:
    """The cell broken into lines of at most `width` characters."""
    if cell_len(cell) <= width:
        return [cell]
    lines = [""]
    for word in WORD.findall(cell):
        longer = f"{lines[-1]} {word}".lstrip()
        if cell_len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return [line for line in lines if line]


def _card(names: Sequence[str], cells: Sequence[str]) -> list[str]:
    """A row with one line per value."""
    wide = max(map(cell_len, names))
    pairs = zip(names, cells, strict=True)
    return [f"{name}{' ' * (wide - cell_len(name))}  {cell}".rstrip() for name, cell in pairs]
