"""Rows as a DataFrame: from the store, from a CSV file, or from a foreign table, which may be damaged.

An error about a table is one line with its name, the row, and the way out. It loads no torch.
"""

import csv
import io
import reprlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ablate.config.rules import ConfigError
from ablate.files.byte_order import marked_encoding
from ablate.phrases import counted, only_if
from ablate.store.columns import COLUMNS, METRIC_COLUMNS, SEED_COLUMNS, Row, csv_text
from ablate.store.status import RESULTS, Status

# Columns that are text, whatever they look like: 12345678e012 is a hash, not a number.
TEXT = dict.fromkeys(
    ("run_id", "error", "corpus_sha256", "torch", "ablate", "code", "parts", "git", "study"), str
)
WORDS = (
    *TEXT,
    *("status", "phase", "role", "tuned", "fusion", "fusion_options", "normalize", "scores"),
    *("scores_options", "out_proj", "query_heads", "key_heads", "value_heads", "tie_qk", "scale"),
    *("value_proj", "value_scale", "match", "match_by", "bias", "tokenizer", "splits", "precision"),
    *("form", "function_class", "model", "corpus", "fusion_weights", "device", "engine", "linear"),
    *("attention", "compile", "architecture", "at", "long", "translate"),
)
NUMBERS = tuple(column for column in COLUMNS if column not in WORDS)
REQUIRED = ("fusion", "heads", "out_proj", "seed")
LARGEST = 1e100  # the largest number allowed, so that sums of squares do not overflow
SEPARATORS = ",;\t"  # the ones that spreadsheets write


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Rows of the store as a DataFrame, with the types that pandas would read from their CSV."""
    return _typed(csv_text(rows))


def read_table(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """The rows of a CSV file of results, and lines on doubtful ones. Raises ConfigError."""
    text = _decoded(path)
    header, rows = _split(text, path)
    if not rows:
        raise ConfigError(f"{path}: {'only a header' if header else 'empty'}, so there is nothing to compare")
    plain = io.StringIO()
    csv.writer(plain).writerows([header, *rows.values()])
    table = _typed(plain.getvalue())
    table.index = pd.Index([*rows], name="line")
    cut = f"{path}: its last line has no end; if it was cut off there, its last value is wrong"
    return as_results(table, str(path)), only_if(text[-1] not in "\r\n", cut)


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
    numbers = {column: _numbers(rows[column], name) for column in NUMBERS if column in rows}
    rows = rows.assign(**numbers)
    return rows.reindex(columns=[*COLUMNS, *rows.columns.difference([*COLUMNS])])


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
    found: dict[int, list[str]] = {}
    line = 1
    try:
        for cells in reader:
            if any(map(str.strip, cells)):
                found[line] = cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise ConfigError(f"{path}: line {line}: {error}; correct its quotation marks") from error
    header = next(iter(found.values()), [])
    rows = {line: cells for line, cells in found.items() if cells != header}
    for line, cells in rows.items():
        if len(cells) != len(header):
            raise ConfigError(
                f"{path}: line {line} has {counted(len(cells), 'cell')}, not {len(header)}: cut off, or of"
                " another separator or file; correct it, or leave it out"
            )
    header = [name.strip() for name in header]
    _refuse_twice(header, str(path))
    return header, rows


def _typed(text: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(text), dtype=TEXT, low_memory=False)


def _refuse_twice(columns: Sequence[str], name: str) -> None:
    twice = [column for column in columns if column and columns.count(column) > 1]
    if twice:
        raise ConfigError(f"{name}: two columns are called {twice[0]}; leave one of them out")


def _numbers(column: pd.Series, name: str) -> pd.Series:
    """The column as numbers. Raises ConfigError for a word, for a number that is too large, and for infinity,
    except in metrics: the loss of a diverged run may be infinite."""
    is_number = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    numbers = column if is_number else pd.to_numeric(column.astype(str), errors="coerce")
    wrong = (column.notna() & numbers.isna()) | (numbers.abs() > LARGEST)
    if column.name in METRIC_COLUMNS:
        wrong &= ~np.isinf(numbers)
    if len(words := column[wrong]):
        raise ConfigError(
            f"{name}: {_place(words)}: {column.name} {reprlib.repr(str(words.iloc[0]))} is no usable number;"
            " correct it, or leave the row out"
        )
    return column if column.name in SEED_COLUMNS else numbers  # a large seed keeps all its digits


def _place(rows: "pd.DataFrame | pd.Series") -> str:
    """The place of the first of these rows: its line in the file, or its label in a foreign table."""
    return f"{rows.index.name or 'row'} {rows.index[0]}"
