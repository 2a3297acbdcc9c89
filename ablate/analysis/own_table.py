"""A table of ablate's own rows, perhaps through a spreadsheet: each column has its type. Loads no torch."""

import reprlib

import numpy as np
import pandas as pd

from ablate.config.column import Column
from ablate.config.rules import ConfigError
from ablate.store.columns import RESULTS, SEED_COLUMNS, TABLE, Status
from ablate.store.frames import LARGEST, as_kind

REQUIRED = ("fusion", "heads", "out_proj", "seed")  # in a row that has one, if the table has the column


def of_ours(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """The columns with their types. Raises ConfigError."""
    table = table.assign(status=table.get("status", pd.Series(str(Status.DONE), table.index)))
    results = table[table["status"].isin(RESULTS)]  # the row of a damaged run may have only its id
    for column in REQUIRED:
        is_given = column in table and table[column].notna().any()
        if is_given and len(empty := results[results[column].isna()]):
            raise ConfigError(f"{name}: {_place(empty)} has no {column}; complete it, or leave the row out")
    rows = dict[str, pd.Series]()
    for one in TABLE:
        if one.name in table:
            cells = table[one.name]
            is_number = one.kind in ("whole", "number")
            if is_number and cells.astype(str).str.contains(",").any():
                cells = cells.astype(str).str.replace(",", ".").where(cells.notna(), None)
            rows[one.name] = as_kind(cells, one)
            if is_number and one.name not in SEED_COLUMNS:
                _refuse_words(rows[one.name], one, name)
    return pd.DataFrame(rows | {str(key): table[key] for key in table if key not in rows})


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
    """The place of the first of these rows: its line in the file, or its label in a frame."""
    return f"{rows.index.name or 'row'} {rows.index[0]}"
