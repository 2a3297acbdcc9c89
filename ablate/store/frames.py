"""Rows as a DataFrame, with the type of each column; rows selected by conditions, and with a column for each
option of a part. It loads no torch."""

import contextlib
import functools
import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ablate.config.conditions import Condition, Where, key_in, spelling
from ablate.config.rules import ConfigError, as_text, did_you_mean, line_on
from ablate.config.schema import Column
from ablate.phrases import first_few
from ablate.store.columns import OPTIONS_COLUMNS, RESULTS, TABLE, Row, csv_value, is_empty

MANY = 1 << 16  # values of a table that are read once


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Rows of the store as a DataFrame, with typed columns."""
    cells = {one: pd.Series([row.get(one.name) for row in rows], dtype=object) for one in TABLE}
    return pd.DataFrame({column.name: as_kind(values, column) for column, values in cells.items()})


def as_kind(cells: pd.Series, column: Column) -> pd.Series:
    """The cells of a column with the type of its kind: strings, boolean, Int64 or float64, with an empty cell
    as a missing value. 12345678e012 is a hash, not a number; a large seed keeps all its digits.

    What is not of its kind is left: a word in a column of numbers as text, a fraction in one of whole numbers
    as float64."""
    if pd.api.types.infer_dtype(cells) == "string":  # as from a file: few texts in many rows
        codes, texts = pd.factorize(cells)
        values = _typed(pd.Series(texts), column).array.take(codes, allow_fill=True)
        return pd.Series(values, cells.index, name=cells.name)
    return _typed(cells, column)


def _typed(cells: pd.Series, column: Column) -> pd.Series:
    *types, last = _TYPES[column.kind]
    for of_type in types:
        with contextlib.suppress(ValueError, TypeError, KeyError, OverflowError):
            return of_type(cells)
    return last(cells)


def is_numeric(cells: pd.Series) -> bool:
    """Whether a column holds numbers, and not truth values."""
    return pd.api.types.is_numeric_dtype(cells) and not pd.api.types.is_bool_dtype(cells)


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


@functools.lru_cache(MANY, typed=True)
def _truth(value: Any) -> bool:
    """Raises KeyError for anything but a truth value."""
    return value if isinstance(value, bool) else {"true": True, "false": False}[str(value).strip().lower()]


@functools.lru_cache(MANY, typed=True)
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
    **dict.fromkeys(("boolean", "choice"), (lambda cells: _converted(cells, _truth, "boolean"), _text)),
    **{"whole": (_whole, _number, _text), "number": (_number, _text)},
}


# --- whose rows they are, and whether these were trained ----------------------------------------------------


def is_ours(rows: pd.DataFrame) -> bool:
    """Whether rows are of ablate's own: by the ids of its runs or, without, by its names and its words."""
    if is_exempt(rows):
        return True
    if not {"fusion", "heads", "out_proj"} <= {*rows}:
        return False
    words = as_texts(rows["out_proj"]).str.lower()
    return bool(rows["fusion"].notna().any() and words.isin(["true", "false"]).sum() > len(words) / 2)


def is_foreign(rows: pd.DataFrame) -> bool:
    """Whether rows come from another program: they are not ablate's, and some have results."""
    return not is_ours(rows) and not {*RESULTS}.isdisjoint(rows["status"])


def is_exempt(rows: pd.DataFrame) -> bool:
    """Whether rows are known by their ids to be runs of ablate's own."""
    both = {"fusion", "run_id"} <= {*rows} and rows["fusion"].notna().any()
    return bool(both and rows["run_id"].astype(str).str.fullmatch("[0-9a-f]{16}").all())


SIMULATED = "simulated"  # their processor
REHEARSAL = "rehearsal: no model was trained"


def is_simulated(rows: pd.DataFrame) -> bool:
    """Whether no model was trained for these rows. Raises ConfigError if that is so of some of them."""
    kinds = rows["processor"].eq(SIMULATED) if "processor" in rows else pd.Series([False])
    if kinds.any() and not kinds.all():
        raise ConfigError(
            f"processor={SIMULATED}: no model was trained for {int(kinds.sum())} of {len(rows)} rows, and"
            f" these stand in no comparison with others; add --where processor={SIMULATED}, or"
            f" --where processor!={SIMULATED}"
        )
    return bool(kinds.any())


# --- rows that meet conditions, and the options of parts -----------------------------------------------


def select(rows: pd.DataFrame, where: Sequence[str]) -> pd.DataFrame:
    """The rows that meet every condition (config/conditions.py). Raises ConfigError."""
    for condition in where:
        met = matching(rows, condition, "--where", rows.columns)
        if not met.any():
            keys = sorted(Condition(condition, "--where").keys_in([*map(str, rows.columns)]))
            has = [f"{key} is {first_few(sorted(as_texts(rows[key]).unique()))}" for key in keys]
            raise ConfigError("; ".join([f"--where {condition}: no row meets it", *has]))
        rows = rows[met]
    return rows


def column_of(
    name: str, columns: Iterable[object], source: str, choices: Iterable[object] | None = None
) -> str:
    """The column of a config key as people type it: lr for train.lr, weights for fusion.weights. source: what
    names the key, for the message. choices: what that shows, all columns by default. Raises ConfigError."""
    names = [*map(str, columns)]
    if column := key_in(name, names):
        return column
    shown = names if choices is None else [*map(str, choices)]
    raise ConfigError(line_on(name) or f"{source}: no column {name}{did_you_mean(name, shown)}")


def matching(rows: pd.DataFrame, where: Where, option: str, columns: Iterable[object]) -> np.ndarray:
    """(N,) whether each row meets the condition, which is on these columns; false where it can't be computed
    from the row. option: its name in errors. Raises ConfigError, also if it can be computed from none."""
    names = [*map(str, columns)]
    condition = Condition(where, option)
    for name in condition.names:
        there = [key for key in names if key not in rows or rows[key].notna().any()]
        column_of(name, names, f"{option} {condition.text}", there)
    keys = [*condition.keys_in(names)]
    spelt = {key: {*spellings(rows[key])} for key in keys}
    cells = [*zip(*(rows[key].tolist() for key in keys), strict=True)] if keys else [()] * len(rows)
    met: dict[tuple[Any, ...], bool | ConfigError] = {}
    for cell in {*cells}:  # a few, also of many rows
        try:
            values = [None if is_empty(value) else value for value in cell]
            met[cell] = condition.holds(dict(zip(keys, values, strict=True)), spelt)
        except ConfigError as error:
            met[cell] = error
    errors = [one for one in met.values() if isinstance(one, ConfigError)]
    if errors and len(errors) == len(met):
        raise errors[0]
    return np.array([met[cell] is True for cell in cells], bool)


def with_options(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with a further column for each option of a fusion (weights, per, groups) and of scores."""
    for column in OPTIONS_COLUMNS:
        kind = column.removesuffix("_options")
        if names := [name for name in option_names(rows, kind) if name not in rows.columns]:
            texts = rows[column]
            options = {text: _options(text, kind) for text in texts.unique()}
            columns = {name: [options[text].get(name) for text in texts] for name in names}
            rows = rows.join(pd.DataFrame(columns, index=rows.index, dtype=object))
    return rows


def option_names(rows: pd.DataFrame, kind: str) -> list[str]:
    """The names of all options of this kind of part in the rows. Options are JSON; other text is one
    option."""
    return sorted({name for text in rows[f"{kind}_options"].unique() for name in _options(text, kind)})


def at_own_value(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of a tuned study that are at the value that an arm has by now; those of any other study
    unchanged."""
    is_own = as_texts(rows["role"]).str.contains(r"\btuned\b")
    return rows[is_own | as_texts(rows["tuned"]).eq("")]


def row_in_words(row: Any, columns: Iterable[str]) -> str:
    """The values of a row in these columns, as far as there are any: fusion=sum heads=4."""
    texts = {column: spelling(row.get(column)) for column in columns}
    return " ".join(f"{column}={text}" for column, text in texts.items() if text)


def as_texts(column: pd.Series) -> pd.Series:
    """A column as text, the same for 1, 1.0 and "1", so that rows from any CSV file group together."""
    return _by_value(column, as_text)


def spellings(column: pd.Series) -> pd.Series:
    """A column as text, as it is spelt: 1e5 is not 100000, 2.10 not 2.1. A number has no spelling."""
    return _by_value(column, spelling)


def _by_value(column: pd.Series, text: Callable[[Any], str]) -> pd.Series:
    codes, values = pd.factorize(column)  # there are few values in many rows
    return pd.Series(np.array([*map(text, values), ""], dtype=object)[codes], index=column.index)


def _options(text: object, kind: str) -> dict[str, object]:
    if not isinstance(text, str):
        return {}
    with contextlib.suppress(ValueError, RecursionError):
        if isinstance(options := json.loads(text), dict):
            return {k: json.dumps(v) if isinstance(v, list | dict) else v for k, v in options.items()}
    return {f"{kind}_options": text}
