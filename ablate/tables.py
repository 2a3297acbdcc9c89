"""Tables as text: for a terminal, a program or a paper. Prints nothing."""

import json
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ablate.phrases import one_line, visible
from ablate.store.columns import SEED_COLUMNS, is_empty

if TYPE_CHECKING:
    import pandas as pd

# Columns to leave out in a narrow terminal, the first one first.
LEAST = (
    *("question", "wall_s", "tokens_per_s", "error", "settings", "params", "corpus", "steps", "sd"),
    *("study", "null", "untrained", "smallest", "median", "mean"),
)
GAP = 2  # characters between columns
INTERVAL = re.compile(r"\[[^\]]*\]")
GLUE = "\ue000"  # a blank at which no cell breaks; readable() leaves no such character


def records(frame: "pd.DataFrame", settings: Iterable[str] = ()) -> list[dict[str, Any]]:
    """The rows as JSON takes them: with None for what is missing or not finite. settings: columns of
    text, in which numbers, true and false are told as such if all are of these."""
    import pandas as pd

    plain = frame.astype(object).where(frame.notna() & ~frame.isin([np.inf, -np.inf]), None)
    for column in plain.columns.intersection([*settings]):
        cells = plain[column].tolist()
        if all(_SCALAR.fullmatch(str(cell)) for cell in cells if cell):
            told = [json.loads(cell) if cell else cell for cell in cells]
            plain[column] = pd.Series(told, plain.index, object)
    return [{str(name): value for name, value in row.items()} for row in plain.to_dict("records")]


def lines_of(frame: "pd.DataFrame", width: int | None, *, bold: bool = False) -> tuple[str, list[str]]:
    """`frame` as text for a terminal of this width, and the names of the columns that were left out: of
    LEAST, until a row fits in a line. If none does, cells break between words.

    width: in characters; None for no limit. bold: print the names in bold.
    """
    from ablate.store.frames import is_numeric

    room = width or sys.maxsize
    cells = {str(name): [readable(name, value) for value in frame[name].tolist()] for name in frame.columns}
    columns = {name: [visible(name), *column] for name, column in cells.items()}
    widths = {name: max(map(cell_len, column)) for name, column in columns.items()}
    left_out = list[str]()
    for name in LEAST:
        if name in columns and len(columns) > 1 and sum(widths.values()) + GAP * (len(widths) - 1) > room:
            left_out.append(name)
            del columns[name], widths[name]
    right = {str(name) for name in frame.columns if is_numeric(frame[name])}
    if sum(widths.values()) + GAP * (len(widths) - 1) > room:
        return _wrapped(columns, right, room, bold=bold), left_out
    padded = [
        [" " * (widths[name] - cell_len(cell)) + cell for cell in column]
        if name in right
        else [cell + " " * (widths[name] - cell_len(cell)) for cell in column]
        for name, column in columns.items()
    ]
    names, *rows = ((" " * GAP).join(row).rstrip() for row in zip(*padded, strict=True))
    return "".join(f"{line}\n" for line in (f"\x1b[1m{names}\x1b[0m" if bold else names, *rows)), left_out


def _wrapped(columns: Mapping[str, Sequence[str]], right: Collection[str], width: int, *, bold: bool) -> str:
    """A table whose cells break between words, but in no interval; a line a value if its longest words are
    too wide. right: columns that are right-aligned."""
    glued = {
        name: [INTERVAL.sub(lambda found: found[0].replace(" ", GLUE), cell) for cell in cells]
        for name, cells in columns.items()
    }
    least = {name: max(map(cell_len, " ".join(cells).split(" "))) for name, cells in glued.items()}
    widths, room = (
        {name: max(map(cell_len, cells)) for name, cells in glued.items()},
        width - GAP * (len(least) - 1),
    )
    if sum(least.values()) > room:
        names, *rows = zip(*columns.values(), strict=True)
        return "\n".join("".join(f"{line}\n" for line in _card(names, row)) for row in rows)
    for name in sorted(least, key=lambda name: least[name] - widths[name]):  # where there is most to spare
        widths[name] -= min(max(0, sum(widths.values()) - room), widths[name] - least[name])
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold" if bold else "")
    for name, (heading, *_) in glued.items():
        side = "right" if name in right else "left"
        table.add_column(Text(heading), justify=side, width=widths[name])
    for row in [*zip(*glued.values(), strict=True)][1:]:
        table.add_row(*map(Text, row))
    screen = Console(width=width, force_terminal=bold, color_system="standard", highlight=False)
    with screen.capture() as captured:
        screen.print(table)
    return "".join(f"{line.rstrip()}\n" for line in captured.get().replace(GLUE, " ").splitlines())


def latex(
    names: Sequence[str],
    align: str,
    rows: Sequence[Sequence[str]],
    caption: str,
    *,
    label: str,
    over: str = "",
    groups: Collection[int] = (),
    float: str = "table",
) -> str:
    """A float with booktabs rules, as wide as the text around it: its first column takes what room is left,
    and breaks between words.

    names, over, rows, caption: LaTeX already. align: l or r for each column. label: by which text refers to
    it. over: a heading over the columns that are right-aligned. groups: the rows that begin below a rule.
    float: its environment.
    """
    left = align.count("l")
    cells = [_row(names), r"\midrule", *map(_row, rows)]
    for at in sorted(groups, reverse=True):
        cells.insert(2 + at, r"\midrule")
    if over:
        wide = rf"\multicolumn{{{len(align) - left}}}{{c}}{{{over}}}"
        rule = rf"\cmidrule(lr){{{left + 1}-{len(align)}}}"
        cells = [_row([*[""] * left, wide]), rule, *cells]
    lines = [
        r"% needs \usepackage{booktabs,tabularx}",
        rf"\begin{{{float}}}",
        r"\small\setlength{\tabcolsep}{3pt}",
        rf"\caption{{{caption}}}\label{{{label}}}\smallskip",
        rf"\begin{{tabularx}}{{\linewidth}}{{>{{\raggedright\arraybackslash}}X{align[1:]}}}",
        *(r"\toprule", *cells, r"\bottomrule"),
        r"\end{tabularx}",
        rf"\end{{{float}}}",
    ]
    return "".join(f"{line}\n" for line in lines)


def _row(cells: Sequence[str]) -> str:
    return rf"{' & '.join(cells)} \\"


def escaped(text: str) -> str:
    """Text for LaTeX: special characters escaped, a hyphen before a number, or alone, as a minus sign."""
    safe = "".join(_LATEX.get(character, character) for character in visible(text))
    return re.sub(r"(?<![\w.])-(?=\d)|(?<= )-(?= )", r"$-$", safe)


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


def render_row(row: Mapping[str, Any]) -> str:
    """One row, printed with one line per column."""
    cells = [readable(name, value) for name, value in row.items()]
    return "".join(f"{line}\n" for line in _card([*row], cells))


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


_SCALAR = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?|true|false")  # of JSON
_SHORT = ("wall_s", "tokens_per_s", "minutes")


def _card(names: Sequence[str], cells: Sequence[str]) -> list[str]:
    """A row with one line per value."""
    wide = max(map(cell_len, names))
    pairs = zip(names, cells, strict=True)
    return [f"{name}{' ' * (wide - cell_len(name))}  {cell}".rstrip() for name, cell in pairs]
