"""Select rows by conditions such as heads=4, fusion!=mean, lr<0.01, which are parsed, never evaluated."""

import json
import operator
import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from ablate.config.identity import LATER_OPTIONS
from ablate.config.read import introduced
from ablate.config.rules import ConfigError, did_you_mean
from ablate.config.schema import STANDARD_SCORES, ModelConfig, PartConfig, RunConfig, TrainConfig
from ablate.store.columns import CONFIG_COLUMNS

_CONDITION = re.compile(r"([A-Za-z_][\w.]*)\s*(!=|<=|>=|=|<|>)\s*(.*)", re.DOTALL)
# An exponent needs its sign, which every CSV writer gives: 12345678e012 is a hash.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]\d+)?")
_LONGEST = 400  # digits; no float has more
PARTS = ("fusion", "scores")  # the kinds of parts, each with a column for its options
# The value, in older rows, of a key that was introduced later.
LATER = {key: value for key, value in introduced(RunConfig).items() if not isinstance(value, PartConfig)}
LATER |= {
    key: value
    for config in (ModelConfig, TrainConfig)
    for key, value in introduced(config).items()
    if value is not None and key in CONFIG_COLUMNS
}
LATER |= {"scores": STANDARD_SCORES, "scores_options": "{}"}
_ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def select(rows: pd.DataFrame, conditions: Sequence[str]) -> pd.DataFrame:
    """The rows that meet every condition: K=V, K!=V (with several V separated by commas), K<V, K<=V, K>V,
    K>=V.

    K is a column, or a config key whose last part is a column (train.lr). Raises ConfigError.
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
    """The column of a config key: lr for train.lr. Raises ConfigError."""
    for column in (key, key.rpartition(".")[2]):
        if column in rows.columns:
            return column
    raise ConfigError(f"{where}: no column {key}{did_you_mean(key, [str(name) for name in rows.columns])}")


def with_options(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with a further column for each option of a fusion (weights, per, groups) and of scores. In
    older rows, keys and options introduced later get the value that stands for earlier behaviour."""
    lacking = [column for column in LATER if column in rows and rows[column].isna().any()]
    filled = {c: rows[c].astype(object).where(rows[c].notna(), LATER[c]) for c in lacking}
    rows = rows.assign(**filled) if filled else rows
    for kind in PARTS:
        names = [name for name in option_names(rows, kind) if name not in rows.columns]
        if names:
            texts, of_kind = rows[f"{kind}_options"], LATER_OPTIONS.get(kind, {})
            options = {text: _options(text, kind) for text in texts.unique()}
            each = [
                {**of_kind.get(part, {}), **options[text]}
                for part, text in zip(rows[kind], texts, strict=True)
            ]
            columns = {name: [given.get(name) for given in each] for name in names}
            rows = rows.join(pd.DataFrame(columns, index=rows.index, dtype=object))
    return rows


def option_names(rows: pd.DataFrame, kind: str) -> list[str]:
    """The names of all options of this kind of part in the rows. Options are JSON; other text is one
    option."""
    column = f"{kind}_options"
    if column not in rows:
        return []
    return sorted({name for text in rows[column].unique() for name in _options(text, kind)})


def as_texts(column: pd.Series) -> pd.Series:
    """A column as text, the same for 1, 1.0 and "1", so that rows from any CSV file group together."""
    codes, values = pd.factorize(column)  # there are few values in many rows
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


def _options(text: object, kind: str) -> dict[str, object]:
    if not isinstance(text, str):
        return {}
    try:
        options = json.loads(text)
    except (ValueError, RecursionError):
        options = None
    if not isinstance(options, dict):
        return {f"{kind}_options": text}
    nested = (list, dict)
    return {k: json.dumps(v) if isinstance(v, nested) else v for k, v in options.items()}
