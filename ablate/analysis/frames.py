"""Rows as a DataFrame: from the store, from a CSV file, or from a foreign table, which may be damaged.

An error about a table is one line with its name, the row, and the way out. It loads no torch.
"""

import contextlib
import csv
import io
import re
import reprlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ablate.config.rules import ConfigError
from ablate.files import marked_encoding
from ablate.phrases import counted, lines_if
from ablate.store.columns import COLUMNS, RESULTS, TABLE, Column, Row, Status, csv_value

REQUIRED = ("fusion", "heads", "out_proj", "seed")
LARGEST = 1e100  # the largest number allowed, so that sums of squares do not overflow
SEPARATORS = ",;\t"  # the ones that spreadsheets write


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Rows of the store as a DataFrame, with `typed` columns."""
    cells = {column: pd.Series([row.get(column.name) for row in rows], dtype=object) for column in TABLE}
    return pd.DataFrame({column.name: typed(values, column) for column, values in cells.items()})


def typed(cells: pd.Series, column: Column) -> pd.Series:
    """The cells of a column with the type of its kind: strings, boolean, Int64 or float64, with an empty cell
    as a missing value. 12345678e012 is a hash, not a number; a large seed keeps all its digits.

    What is not of its kind is left: a word in a column of numbers as text, a fraction in one of whole numbers
    as float64."""
    *types, last = _TYPES[column.kind]
    for of_type in types:
        with contextlib.suppress(ValueError, TypeError, KeyError, OverflowError):
            return of_type(cells)
    return last(cells)


def is_empty(value: Any) -> bool:
    """Whether a value of such a table, or of any other, is a missing one."""
    return value is None or value is pd.NA or bool(value != value)


def read_table(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """The rows of a CSV file of results, and lines on doubtful ones. Raises ConfigError."""
    text = _decoded(path)
    header, rows = _split(text, path)
    if not rows:
        raise ConfigError(f"{path}: {'only a header' if header else 'empty'}, so there is nothing to compare")
    plain = io.StringIO()
    csv.writer(plain).writerows([header, *rows.values()])
    plain.seek(0)
    table = pd.read_csv(plain, dtype=dict.fromkeys(COLUMNS, str), low_memory=False)
    table.index = pd.Index([*rows], name="line")
    cut = f"{path}: its last line has no end; if it was cut off there, its last value is wrong"
    return as_results(table, str(path)), lines_if(text[-1] not in "\r\n", cut)


def read_cells(path: Path) -> dict[int, dict[str, str]]:
    """The cells of a CSV file as they are written, by column, and by the line in which a row begins. Raises
    ConfigError."""
    header, rows = _split(_decoded(path), path)
    return {line: dict(zip(header, cells, strict=True)) for line, cells in rows.items()}


def as_results(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """A foreign table, completed to the columns of results. name: its name in errors. Raises ConfigError."""
    _refuse_twice([*table.columns], name)
    if lacking := {*REQUIRED} - {*table.columns}:
        raise ConfigError(f"{name}: not a table of results; it lacks {', '.join(sorted(lacking))}")
    rows = table if "status" in table else table.assign(status=Status.DONE)
    results = rows[rows["status"].isin(RESULTS)]  # the row of a damaged run may have only its id
    for column in REQUIRED:
        if len(empty := results[results[column].isna()]):
            raise ConfigError(f"{name}: {_place(empty)} has no {column}; complete it, or leave the row out")
    rows = rows.reindex(columns=[*COLUMNS, *rows.columns.difference([*COLUMNS])])
    rows = rows.assign(**{column.name: typed(rows[column.name], column) for column in TABLE})
    for column in TABLE:
        if column.kind in ("whole", "number"):
            _refuse_words(rows[column.name], column, name)
    return rows


def _decoded(path: Path) -> str:
    data = path.read_bytes()
    encoding = marked_encoding(data) or "utf-8"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}: line {line} is not {encoding.upper()} text; save it as UTF-8") from error
    before, null, _ = text.partition("\0")
    if null:
        line = before.count("\n") + 1
        raise ConfigError(f"{path}: line {line} holds a null character; no CSV file does")
    return text.replace("\ufeff", "")  # byte order marks, also inside of concatenated files


def _split(text: str, path: Path) -> tuple[list[str], dict[int, list[str]]]:
    """The header, and the rows by the line in which they begin, without blank lines and without repeated
    headers, as in concatenated files."""
    separator = max(SEPARATORS, key=text.partition("\n")[0].count)
    csv.field_size_limit(max(len(text), csv.field_size_limit()))
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True
    )
    cells_by_line: dict[int, list[str]] = {}
    line = 1
    try:
        for cells in reader:
            if any(map(str.strip, cells)):
                cells_by_line[line] = cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise ConfigError(f"{path}: line {line}: {error}; correct its quotation marks") from error
    header = next(iter(cells_by_line.values()), [])
    rows = {line: cells for line, cells in cells_by_line.items() if cells != header}
    for line, cells in rows.items():
        if len(cells) != len(header):
            raise ConfigError(
                f"{path}: line {line} has {counted(len(cells), 'cell')}, not {len(header)}: cut off, or of"
                " another separator or file; correct it, or leave it out"
            )
    header = [name.strip() for name in header]
    _refuse_twice(header, str(path))
    return header, rows


def _refuse_twice(columns: Sequence[str], name: str) -> None:
    twice = [column for column in columns if column and columns.count(column) > 1]
    if twice:
        raise ConfigError(f"{name}: two columns are called {twice[0]}; leave one of them out")


def _refuse_words(cells: pd.Series, column: Column, name: str) -> None:
    """Raises ConfigError for a word, for a number that is too large, and for infinity, except in metrics: the
    loss of a diverged run may be infinite."""
    numbers = pd.to_numeric(cells, errors="coerce").astype(float)
    wrong = (cells.notna() & numbers.isna()) | (numbers.abs() > LARGEST)
    if column.role == "metric":
        wrong &= ~np.isinf(numbers)
    if len(words := cells[wrong]):
        raise ConfigError(
            f"{name}: {_place(words)}: {column.name} {reprlib.repr(str(words.iloc[0]))} is no usable number;"
            " correct it, or leave the row out"
        )


def _place(rows: "pd.DataFrame | pd.Series") -> str:
    """The place of the first of these rows: its line in the file, or its label in a foreign table."""
    return f"{rows.index.name or 'row'} {rows.index[0]}"


# --- the type of each kind of column ------------------------------------------------------------------

TEXT = pd.Series(["text"]).dtype  # of the pandas that is installed: str, or object before pandas 3
_PLAIN = {str(TEXT): str, "boolean": bool, "Int64": int, "object": int}


def _converted(cells: pd.Series, convert: Callable[[Any], Any], dtype: Any) -> pd.Series:
    """The cells with `convert` applied to those that are not empty and not of the plain type already."""
    values = cells.tolist()
    if not {*map(type, values)} <= {_PLAIN[str(dtype)], type(None)}:
        empty = cells.isna().tolist()
        values = [None if gone else convert(value) for value, gone in zip(values, empty, strict=True)]
    return pd.Series(values, dtype=dtype, index=cells.index, name=cells.name)


def _truth(value: Any) -> bool:
    """Raises KeyError for anything but a truth value."""
    return value if isinstance(value, bool) else {"true": True, "false": False}[str(value).strip().lower()]


def _integer(value: Any) -> int:
    """Raises ValueError for anything but a whole number up to LARGEST."""
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,100}\s*", value):
        return int(value)
    if isinstance(value, bool) or "_" in str(value) or not (number := float(value)).is_integer():
        raise ValueError(value)
    return value if isinstance(value, int) else int(number)


def _text(cells: pd.Series) -> pd.Series:
    return cells if str(cells.dtype) == "str" else _converted(cells, csv_value, TEXT)


def _whole(cells: pd.Series) -> pd.Series:
    try:
        return _converted(cells, _integer, "Int64")
    except OverflowError:  # a seed may be larger
        return _converted(cells, _integer, "object")


def _number(cells: pd.Series) -> pd.Series:
    return pd.to_numeric(cells if cells.dtype != bool else cells.astype(str)).astype(float)


_TYPES = {  # what to read the cells of each kind as; the next, if they are no such
    **dict.fromkeys(("text", "word", "json"), (_text,)),
    "boolean": (lambda cells: _converted(cells, _truth, "boolean"), _text),
    **{"whole": (_whole, _number, _text), "number": (_number, _text)},
}
