"""The files that people bring as tables, as a DataFrame of texts, each cell as it is spelt: CSV with commas,
semicolons or tabs, JSON lines, a JSON list, Parquet; also gzipped, from a pipe, or from standard input.

What can't be read is one line with the name of the file, the line in it, and the way out. Loads no torch.
"""

import codecs
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
from ablate.phrases import counted

INPUT = "-"
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # marks with which spreadsheets begin text
MOST_COLUMNS = 5_000  # of which each takes a millisecond or two
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
    blank = table.map(lambda cell: isinstance(cell, str) and not cell.strip())
    return table.mask(blank | table.isna(), None), text[-1] in "\r\n}]"


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
    table = pd.json_normalize([*rows.values()]).set_index(pd.Index([*rows], name="line"))
    return table.astype(object)


def _decoded(data: bytes, path: Path) -> str:
    encoding = "utf-16" if data.startswith(UTF_16) else "utf-8"
    try:
        text = data.decode(encoding)
        wrong = data.find(b"\0") if "\0" in text else -1
    except UnicodeDecodeError as error:
        text, wrong = "", error.start
    if wrong >= 0:
        what = "holds a null character" if text else f"is not {encoding.upper()} text"
        line = data.count(b"\n", 0, wrong) + 1
        raise ConfigError(f"{path}: line {line} {what}; save its table as CSV in UTF-8")
    return text.replace("\ufeff", "")  # byte order marks, also inside of concatenated files


def _of_csv(text: str, path: Path) -> pd.DataFrame:
    """The rows by the line in which they begin, without blank lines and without repeated headers, as in
    concatenated files."""
    separator = max(SEPARATORS, key=text.lstrip().partition("\n")[0].count)
    csv.field_size_limit(max(len(text), csv.field_size_limit()))
    lines = io.StringIO(text, newline="")
    reader = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
    rows = dict[int, Sequence[str]]()
    line = 1
    try:
        for cells in reader:
            if any(map(str.strip, cells)):
                rows[line] = cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise ConfigError(f"{path}: line {line}: {error}; correct its quotation marks") from error
    header = [*next(iter(rows.values()), [])]
    rows = {line: cells for line, cells in rows.items() if cells != header}
    if line := next((line for line, cells in rows.items() if len(cells) != len(header)), 0):
        raise ConfigError(
            f"{path}: line {line} has {counted(len(rows[line]), 'cell')}, not {len(header)}: cut off, or of"
            " another separator or file; correct it, or leave it out"
        )
    header = [name.strip() for name in header]
    require_columns(header, str(path))
    table = pd.DataFrame([*rows.values()], pd.Index([*rows], name="line"), header, dtype=object)
    return table.apply(_with_points) if separator == ";" else table


def _with_points(cells: pd.Series) -> pd.Series:
    """Numbers some of which, as 1,234, might be thousands elsewhere: what stands between semicolons has its
    comma for a decimal one."""
    given = cells[cells != ""].str
    is_one = given.fullmatch(r"[+-]?\d+(,\d+)?").all() and given.fullmatch(r"[+-]?\d{1,3},\d{3}").any()
    return cells.str.replace(",", ".") if is_one else cells


def require_columns(columns: Sequence[str], name: str) -> None:
    """Raises ConfigError for more than MOST_COLUMNS of them, and for two of one name."""
    if len(columns) > MOST_COLUMNS:
        most = f"{len(columns):,} columns, and at most {MOST_COLUMNS:,} are read"
        raise ConfigError(f"{name}: {most}; leave out those that no comparison needs")
    if column := next((column for column, count in Counter(columns).items() if column and count > 1), ""):
        raise ConfigError(f"{name}: two columns are called {column}; leave one of them out")
