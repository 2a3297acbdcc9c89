"""Tables as text: for a terminal, a program or a paper. Prints nothing."""

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ablate.reporting.terminal import Column, fitted

# Columns to leave out in a narrow terminal, the first one first.
LEAST = (
    *("wall_s", "tokens_per_s", "error", "match_error", "params", "corpus", "steps", "sd", "p_holm", "study"),
    *("null", "untrained", "smallest", "median", "best", "mean"),
)


def render(frame: pd.DataFrame, format: str) -> str:
    """`frame` as text. csv and json keep full precision; table and md round for reading.

    format: table, csv, json, md or latex.
    """
    if format == "csv":
        return frame.to_csv(index=False, lineterminator="\n")
    if format == "json":
        records = frame.astype(object).where(frame.notna(), None).to_dict("records")
        return json.dumps(records, indent=2, ensure_ascii=False) + "\n"
    cells = [[readable(name, value) for name, value in row.items()] for row in frame.to_dict("records")]
    names = [str(name) for name in frame.columns]
    if format == "md":
        lines = [names, ["---:" if _is_number(frame[name]) else "---" for name in frame.columns], *cells]
        return "".join(
            "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines
        )
    if format == "latex":
        return _latex(names, [_is_number(frame[name]) for name in frame.columns], cells)
    return lines_of(frame, None)[0]


def lines_of(
    frame: pd.DataFrame, width: int | None, *, bold: bool = False, spare: Sequence[str] = ()
) -> tuple[str, list[str]]:
    """`frame` as text for a terminal of this width, and the names of the columns that were left out.

    width: in characters; None for no limit. bold: print the names and the best row in bold. spare: columns
    that may be left out once those of LEAST are gone.
    """
    least = (*LEAST, *spare)
    columns = [
        Column(
            str(name),
            [readable(name, value) for value in frame[name].tolist()],
            right=_is_number(frame[name]),
            rank=least.index(str(name)) if name in least else None,
        )
        for name in frame.columns
    ]
    found = fitted(columns, width)
    strong = [True, *(mark is True or mark == "true" for mark in frame.get("best", [False] * len(frame)))]
    lines = [
        f"\x1b[1m{line}\x1b[0m\n" if bold and mark else f"{line}\n"
        for row, mark in zip(found.rows, strong, strict=True)
        for line in row
    ]
    return "".join(lines), found.left_out


def _latex(names: list[str], right: list[bool], cells: list[list[str]]) -> str:
    """A LaTeX tabular with booktabs rules, without a float around it."""
    lines = [[escaped(cell) for cell in line] for line in (names, *cells)]
    head, *body = (" & ".join(line) + r" \\" for line in lines)
    columns = "".join("r" if number else "l" for number in right)
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}",
            rf"\begin{{tabular}}{{{columns}}}",
            *(r"\toprule", head, r"\midrule", *body, r"\bottomrule"),
            r"\end{tabular}",
            "",
        ]
    )


def escaped(text: str) -> str:
    """Text for LaTeX: special characters escaped, a hyphen before a number as a minus sign."""
    safe = "".join(_LATEX.get(character, character) for character in text)
    return re.sub(r"(?<![\w.])-(?=\d)", r"$-$", safe)


_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"},
    # A bracket that begins a row would be read as an option of the line break before it.
    **{"[": "{[}", "]": "{]}", "−": "$-$", "±": r"$\pm$", "×": r"$\times$", "†": r"\textdagger{}"},
    **{"β": r"$\beta$", "ε": r"$\varepsilon$", "√": r"$\surd$", "·": r"$\cdot$", "…": r"\dots{}"},
}


def render_row(row: pd.Series) -> str:
    """One row, printed with one line per column."""
    width = max(len(str(name)) for name in row.index)
    return "".join(f"{name:<{width}}  {readable(name, value)}\n" for name, value in row.items())


def readable(name: object, value: Any) -> str:
    """One cell for readers: losses with 4 digits after the point, counts with thousands separators."""
    if value is None or value != value:
        return ""
    if name == "best":
        return "best" if value else ""
    if isinstance(value, bool | np.bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{1 if name in _SHORT else 4}f}"
    if isinstance(value, int | np.integer) and abs(value) >= 1000:
        return f"{value:,}"
    return str(value)


_SHORT = ("wall_s", "peak_memory_mb", "tokens_per_s", "step_ms", "minutes")


def _is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
