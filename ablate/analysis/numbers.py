"""Numbers as people and programs write them, from the text of a table's cells: 3.21, −0.5, 1 234.5, 93.5 %.
Loads no torch."""

import re
from collections.abc import Callable

import numpy as np
import pandas as pd

from ablate.config.rules import ConfigError
from ablate.store.frames import is_numeric, spellings

MISSING = {"", "na", "n/a", "nan", "null", "none", "<na>", "#n/a", "-", "--", "—", "–", "?"}
TRUTH = {"true": 1.0, "false": 0.0}
SOME = 100  # cells that are looked at before all are
_SIGNS = str.maketrans({"\u2212": "-", "\u2013": "-", "\u202f": " ", "\u2009": " ", "\xa0": " "})
_NUMBER = r"[+-]?[\d.,]*\d\s*%?"
_MEAN = re.compile(rf"{_NUMBER}\s*((±|\+/-|\+-|\\pm)\s*{_NUMBER}|\(\s*±?\s*{_NUMBER}\s*\)).*")
_COMMA = r"[+-]?[\d.]*,[\d.,]*"


def as_numbers(rows: pd.DataFrame, column: str, place: Callable[[int], str]) -> pd.Series:
    """A column as float64, NaN for what is missing. place: the words for a row, by its place. Raises
    ConfigError for anything else in it, and for a comma, which may mean two things."""
    cells = rows[column]
    if is_numeric(cells) or pd.api.types.is_bool_dtype(cells):
        return cells.astype("Float64").astype(float)
    texts = spellings(cells)
    numbers = pd.to_numeric(texts, errors="coerce").astype(float)
    others = texts[numbers.isna() & ~texts.str.lower().isin(MISSING)]
    if others.empty:
        return numbers
    found, reason = _shown(texts[~texts.str.lower().isin(MISSING)])
    if reason is None:
        return found.reindex(cells.index)
    wrong = found.index[0]
    at = int(np.flatnonzero(cells.index == wrong)[0])
    raise ConfigError(f"{column}: {texts[wrong]!r} {reason} ({place(at)})")


def as_floats(cells: pd.Series) -> np.ndarray:
    """(N,) what of a column is a plain number; NaN for what is not."""
    return pd.to_numeric(cells, errors="coerce").astype("Float64").to_numpy(float, na_value=np.nan)


def can_be_numbers(cells: pd.Series) -> bool:
    """Whether a column holds at least one number, and otherwise nothing else."""
    if is_numeric(cells) or pd.api.types.is_bool_dtype(cells):
        return bool(cells.notna().any())
    if {*map(type, cells[cells.notna()].iloc[:1])} - {str, int, float, bool, np.float64, np.int64}:
        return False
    texts = spellings(cells)
    given = texts[~texts.str.lower().isin(MISSING)]
    if _shown(given.iloc[:SOME])[1] is not None:
        return False
    plain = pd.to_numeric(given, errors="coerce").notna().all()
    return len(given) > 0 and bool(plain or _shown(given)[1] is None)


def _shown(texts: pd.Series) -> tuple[pd.Series, str | None]:
    """The numbers of cells that are not missing, and no reason; or the first cell that is none, and why."""
    lower = texts.str.lower()
    if lower.isin(TRUTH).all():
        return lower.map(TRUTH), None
    plain = texts.str.translate(_SIGNS).str.strip()
    percent = plain.str.endswith("%")
    plain = plain.str.removesuffix("%").str.strip()
    plain = plain.str.replace(r"(?<=\d)( (?=\d{3}(\D|$))|_(?=\d))", "", regex=True)
    numbers = pd.to_numeric(plain, errors="coerce").astype(float)
    for wrong, reason in (
        (plain.str.fullmatch(_MEAN), "is a mean over runs, and a comparison needs the runs: a row for each"),
        (~percent & bool(percent.any()), "has no %, and others have; write all alike"),
        (
            plain.str.fullmatch(_COMMA),
            "may mean a decimal or thousands; write decimal points and no thousands",
        ),
        (numbers.isna(), "is no usable number; correct the row or leave it out"),
    ):
        if wrong.any():
            return texts[wrong].iloc[:1], reason
    return numbers, None
