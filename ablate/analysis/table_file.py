"""The files that people bring as tables, as a DataFrame of texts, each cell as it is spelt: CSV with commas,
semicolons or tabs, JSON lines, a JSON list, Parquet; also gzipped, from a pipe, or from standard input.

What can't be read is one line with the name of the file, the line in it, and the way out. Loads no torch.
"""

import csv
import functools
import gzip
import io
import json
import sys
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ablate.config.rules import ConfigError

INPUT = "-"
SEPARATORS = ",;\t"  # the ones that spreadsheets write


def read_cells(path: Path) -> tuple[pd.DataFrame, bool]:
    """The cells of a table, None where one is blank, its index `line` if the file has lines; and whether
    its last line has an end. Raises ConfigError."""
    data = sys.stdin.buffer.read() if str(path) == INPUT else path.read_bytes()
    try:
        data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path}: its gzip can't be read ({error}); pack it again") from error
    if data.startswith(b"PAR1"):
        return _parquet(data, path), True
    text = _decoded(data, path)
    table = _of_json(text, path) if text.lstrip()[:1] in ("{", "[") else _of_csv(text, path)
    if table.empty:
        what = "only a header" if len(table.columns) else "empty"
        raise ConfigError(f"{path}: {what}, so there is nothing to compare")
    return table, text[-1] in "\r\n}]"


def _parquet(data: bytes, path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(io.BytesIO(data))
    except Exception as error:
        way_out = "pip install pyarrow" if isinstance(error, ImportError) else "write it again, or as CSV"
        why = str(error).splitlines()[0]
        raise ConfigError(f"{path}: its Parquet can't be read ({why}); {way_out}") from error


def _of_json(text: str, path: Path) -> pd.DataFrame:
    """The objects of a list, or of lines, with dotted names for those within them. Numbers stay as they are
    spelt."""
    parsed = functools.partial(json.loads, parse_int=str, parse_float=str, parse_constant=str)
    at, rows = 0, dict[int, Any]()
    try:
        whole = parsed(text)
        named = whole.get("rows") if isinstance(whole, dict) else whole
        rows = dict(enumerate(named if isinstance(named, list) else [whole], 1))
    except (ValueError, RecursionError):
        try:
            for at, line in enumerate(text.splitlines(), 1):
                rows |= {at: parsed(line)} if line.strip() else {}
        except (ValueError, RecursionError) as error:
            cut = f"{path}: line {at} is no JSON: cut off? correct it, or leave it out"
            raise ConfigError(cut) from error
    if at := next((at for at, row in rows.items() if not isinstance(row, dict)), 0):
        raise ConfigError(f"{path}: line {at} is no JSON object, as one row is; write a list of objects")
    table = pd.json_normalize([*rows.values()]).set_index(pd.Index([*rows], name="line")).astype(object)
    return table.mask(table.isna() | table.map(lambda cell: isinstance(cell, str) and not cell.strip()), None)


def _decoded(data: bytes, path: Path) -> str:
    try:
        text = data.decode("utf-8")
        wrong = data.find(b"\0")
    except UnicodeDecodeError as error:
        text, wrong = "", error.start
    if wrong >= 0:
        what = "holds a null character" if text else "is not UTF-8 text"
        line = data.count(b"\n", 0, wrong) + 1
        raise ConfigError(f"{path}: line {line} {what}; save its table as CSV in UTF-8")
    return text.replace("\ufeff", "")  # byte order marks, also inside of concatenated files


def _of_csv(text: str, path: Path) -> pd.DataFrame:
    """The rows by their line, without blank lines and without repeated headers, as in concatenated files."""
    separator = max(SEPARATORS, key=text.lstrip().partition("\n")[0].count)
    csv.field_size_limit(max(len(text), csv.field_size_limit()))
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True)
    rows, header = dict[int, list[str | None]](), list[str]()
    try:
        for cells in lines:
            names = [*map(str.strip, cells)]
            header = header or names * any(names)
            if not any(names) or names == header:
                continue
            if len(cells) != len(header):
                why = f"{len(cells)} cells, and the header {len(header)}: cut off, or of another separator?"
                raise ConfigError(f"{path}: line {lines.line_num} has {why} correct it, or leave it out")
            rows[lines.line_num] = [cell if name else None for cell, name in zip(cells, names, strict=True)]
    except csv.Error as error:
        raise ConfigError(f"{path}: line {lines.line_num}: {error}; correct it there") from error
    require_columns(header, str(path))
    table = pd.DataFrame([*rows.values()], pd.Index([*rows], name="line"), header, dtype=object)
    return _with_points(table, path) if separator == ";" else table


def _with_points(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """The table with its decimal commas as points, as they are between semicolons. Raises ConfigError for
    points besides that may stand between thousands."""
    is_number = table.apply(lambda of: of.str.fullmatch(r"[+-]?[\d.]*\d(,\d+)?", na=True).all())
    numbers = table.loc[:, is_number]
    grouped = numbers.apply(lambda of: of.str.fullmatch(r"[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?", na=False))
    if grouped.any(axis=None) and numbers.apply(lambda of: of.str.contains(",", na=False)).any(axis=None):
        cell = numbers.where(grouped).stack().iloc[0]
        raise ConfigError(f"{path}: {cell!r} may mean a decimal or thousands; write decimal points alone")
    return table.assign(**{str(key): of.str.replace(",", ".") for key, of in numbers.items()})


def require_columns(columns: Sequence[str], name: str) -> None:
    """Raises ConfigError for two of one name."""
    if column := next((column for column, count in Counter(columns).items() if column and count > 1), ""):
        raise ConfigError(f"{name}: two columns are called {column}; leave one of them out")
