"""Tables as text: for a terminal, a program or a paper. Prints nothing."""

import json
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

FORMATS = ("table", "csv", "json", "md")


def render(frame: pd.DataFrame, format: str, *, terminal: bool = False) -> str:
    """`frame` as text. csv and json keep full precision; table and md round for reading.

    format: one of FORMATS. terminal: print the best row in bold.
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
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in frame.columns:
        right = _is_number(frame[name])
        table.add_column(str(name), justify="right" if right else "left", no_wrap=True)
    for row, marked in zip(cells, frame.get("best", [False] * len(frame)), strict=True):
        table.add_row(*row, style="bold" if marked is True or marked == "true" else None)
    # As wide as it needs to be: a narrow terminal wraps a line, where rich would cut numbers off.
    console = Console(width=10_000, force_terminal=terminal, highlight=False)
    with console.capture() as capture:
        console.print(table)
    return "".join(line.rstrip() + "\n" for line in capture.get().splitlines())


def render_row(row: pd.Series) -> str:
    """One row, a line a column."""
    width = max(len(str(name)) for name in row.index)
    return "".join(f"{name:<{width}}  {readable(name, value)}\n" for name, value in row.items())


def readable(name: object, value: Any) -> str:
    """One cell for a reader: 4 digits after the point of a loss, thousands of a count set apart."""
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


_SHORT = ("wall_s", "peak_memory_mb", "tokens_per_s")


def _is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
