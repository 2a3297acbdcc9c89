"""Select rows by conditions, and give each option of a part its column."""

import contextlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ablate.analysis.frames import is_empty
from ablate.config.conditions import Condition, Where, as_text, column_of
from ablate.config.rules import ConfigError
from ablate.config.schema import PARTS
from ablate.store.columns import COLUMNS


def select(rows: pd.DataFrame, where: Sequence[str]) -> pd.DataFrame:
    """The rows that meet every condition (config/conditions.py). Raises ConfigError."""
    for condition in where:
        rows = rows[meeting(rows, condition, "--where", rows.columns)]
        if rows.empty:
            raise ConfigError(f"--where {condition}: no row meets it; ablate runs lists the runs")
    return rows


def meeting(rows: pd.DataFrame, where: Where, option: str, columns: Iterable[object]) -> np.ndarray:
    """(N,) whether each row meets the condition, which is on these columns; false where it can't be computed
    from the row. option: its name in errors. Raises ConfigError, also if it can be computed from none."""
    names = [*map(str, columns)]
    texts = [name for name in names if name in COLUMNS and not pd.api.types.is_numeric_dtype(rows[name])]
    condition = Condition(where, names, option, texts=texts)
    for name in condition.unknown:
        column_of(name, names, f"{option} {condition.text}")
    keys = [*condition.keys]
    cells = [*zip(*(rows[key].tolist() for key in keys), strict=True)] if keys else [()] * len(rows)
    met: dict[tuple[Any, ...], bool | ConfigError] = {}
    for cell in {*cells}:  # a few, also of many rows
        try:
            values = [None if is_empty(value) else value for value in cell]
            met[cell] = condition.holds(dict(zip(keys, values, strict=True)))
        except ConfigError as error:
            met[cell] = error
    errors = [one for one in met.values() if isinstance(one, ConfigError)]
    if errors and len(errors) == len(met):
        raise errors[0]
    return np.array([met[cell] is True for cell in cells], bool)


def with_options(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with a further column for each option of a fusion (weights, per, groups) and of scores."""
    for kind in PARTS:
        if names := [name for name in option_names(rows, kind) if name not in rows.columns]:
            texts = rows[f"{kind}_options"]
            options = {text: _options(text, kind) for text in texts.unique()}
            columns = {name: [options[text].get(name) for text in texts] for name in names}
            rows = rows.join(pd.DataFrame(columns, index=rows.index, dtype=object))
    return rows


def option_names(rows: pd.DataFrame, kind: str) -> list[str]:
    """The names of all options of this kind of part in the rows. Options are JSON; other text is one
    option."""
    column = f"{kind}_options"
    if column not in rows:
        return []
    return sorted({name for text in rows[column].unique() for name in _options(text, kind)})


def is_own_value(role: str) -> bool:
    """Whether a run of this role is a result: in a tuned study, only at its own arm's value."""
    return not role or "tuned" in role.split()


def at_own_value(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of a tuned study that are at their own arm's value; rows of any other study unchanged."""
    if "role" not in rows or rows["role"].isna().all():
        return rows
    return rows[[is_own_value(role) for role in as_texts(rows["role"])]]


def as_texts(column: pd.Series) -> pd.Series:
    """A column as text, the same for 1, 1.0 and "1", so that rows from any CSV file group together."""
    codes, values = pd.factorize(column)  # there are few values in many rows
    texts = np.array([*(as_text(value) for value in values), ""], dtype=object)
    return pd.Series(texts[codes], index=column.index)


def _options(text: object, kind: str) -> dict[str, object]:
    if not isinstance(text, str):
        return {}
    with contextlib.suppress(ValueError, RecursionError):
        if isinstance(options := json.loads(text), dict):
            return {k: json.dumps(v) if isinstance(v, list | dict) else v for k, v in options.items()}
    return {f"{kind}_options": text}
