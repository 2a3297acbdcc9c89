"""Rows as a DataFrame, with the type of each column. It loads no torch."""

import contextlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from ablate.store.columns import RESULTS, TABLE, Column, Row, csv_value

LARGEST = 1e100  # the largest number allowed, so that sums of squares do not overflow


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


def of_others(rows: pd.DataFrame) -> bool:
    """Whether rows with results are of a table in which nothing says how heads are fused."""
    return bool(rows["fusion"].isna().all() and rows["status"].isin(RESULTS).any())


def is_numeric(cells: pd.Series) -> bool:
    """Whether a column holds numbers, and not truth values."""
    return pd.api.types.is_numeric_dtype(cells) and not pd.api.types.is_bool_dtype(cells)


def is_empty(value: Any) -> bool:
    """Whether a value of such a table, or of any other, is a missing one."""
    return value is None or value is pd.NA or bool(value != value)


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
