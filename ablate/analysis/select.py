"""Choosing rows by conditions such as heads=4, fusion!=mean, lr<0.01. Parsed, never evaluated."""

import json
import operator
import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from ablate.config.rules import ConfigError, did_you_mean

_CONDITION = re.compile(r"([A-Za-z_][\w.]*)\s*(!=|<=|>=|=|<|>)\s*(.*)", re.DOTALL)
# An exponent has its sign, as every CSV writer gives it: 12345678e012 is a hash.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]\d+)?")
_LONGEST = 400  # digits: no float has more
_ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def select(rows: pd.DataFrame, conditions: Sequence[str]) -> pd.DataFrame:
    """The rows that meet every condition: K=V, K!=V (V may be several, by commas), K<V, K<=V, K>V, K>=V.

    K is a column, or a config key whose last part is one (train.lr). Raises ConfigError.
    """
    for condition in conditions:
        found = _CONDITION.fullmatch(condition.strip())
        if found is None:
            raise ConfigError(f"--where {condition}: not a condition; write K=V, K!=V, K<V or K>V")
        key, sign, value = found.groups()
        column = column_of(key, rows, f"--where {condition}")
        if sign in _ORDER:
            rows = rows[_ordered(rows[column], sign, value, condition)]
        else:
            wanted = {as_text(part) for part in (value, *value.split(","))}
            rows = rows[as_texts(rows[column]).isin(wanted) == (sign == "=")]
        if rows.empty:
            raise ConfigError(f"--where {condition}: no row meets it; ablate runs shows what there is")
    return rows


def column_of(key: str, rows: pd.DataFrame, where: str) -> str:
    """The column of a config key: train.lr stands in lr. Raises ConfigError."""
    for column in (key, key.rpartition(".")[2]):
        if column in rows.columns:
            return column
    raise ConfigError(f"{where}: no column {key}{did_you_mean(key, [str(name) for name in rows.columns])}")


def with_options(rows: pd.DataFrame) -> pd.DataFrame:
    """A column more for each option in fusion_options (weights, per, groups), so that one can ask for it."""
    names = [name for name in option_names(rows) if name not in rows.columns]
    if not names:
        return rows
    options = {text: _options(text) for text in rows["fusion_options"].unique()}
    columns = {name: [options[text].get(name) for text in rows["fusion_options"]] for name in names}
    return rows.join(pd.DataFrame(columns, index=rows.index, dtype=object))


def option_names(rows: pd.DataFrame) -> list[str]:
    """The options that some row's fusion has. fusion_options is JSON; other text stands for itself."""
    if "fusion_options" not in rows:
        return []
    return sorted({name for text in rows["fusion_options"].unique() for name in _options(text)})


def as_texts(column: pd.Series) -> pd.Series:
    """A column as text, the same for 1, 1.0 and "1", so that CSV files of any origin group alike."""
    codes, values = pd.factorize(column)  # few values, many rows
    texts = np.array([*(as_text(value) for value in values), ""], dtype=object)
    return pd.Series(texts[codes], index=column.index)


def as_text(value: object) -> str:
    if isinstance(value, bool | np.bool):
        return str(bool(value)).lower()
    if not isinstance(value, str) and (value is None or value != value):
        return ""
    text = str(value).strip()
    if text in ("True", "False"):
        return text.lower()
    if len(text) > _LONGEST or not _NUMBER.fullmatch(text):
        return text
    if "." not in text and "e" not in text:
        return str(int(text))  # a large seed keeps all its digits
    number = float(text)
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else f"{number:.12g}"


def _ordered(column: pd.Series, sign: str, value: str, condition: str) -> pd.Series:
    try:
        bound = float(value)
    except ValueError:
        raise ConfigError(f"--where {condition}: {value or 'nothing'} is no number to compare with") from None
    numbers = pd.to_numeric(column, errors="coerce")
    if numbers.isna().all():
        raise ConfigError(f"--where {condition}: {column.name} holds no numbers; use = or !=")
    return _ORDER[sign](numbers, bound)


def _options(text: object) -> dict[str, object]:
    if not isinstance(text, str):
        return {}
    try:
        options = json.loads(text)
    except (ValueError, RecursionError):
        options = None
    if not isinstance(options, dict):
        return {"fusion_options": text}
    nested = (list, dict)
    return {k: json.dumps(v) if isinstance(v, nested) else v for k, v in options.items()}
