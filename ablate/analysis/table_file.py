"""The files that people bring as tables, as a DataFrame of texts, each cell as it is spelt: CSV with commas,
semicolons or tabs, JSON lines, a JSON list, Parquet; also gzipped, from a pipe, or from standard input.

What can't be read is one line with the name of the file, the line in it, and the way out. Loads no torch.
"""

import codecs
import csv
import gzip
import io
import json
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ablate.config.rules import ConfigError
from ablate.phrases import counted
from ablate.store.columns import FORMULA

INPUT = "-"
# The encodings that a byte order mark names, as spreadsheets write one.
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark is a prefix of it
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
MOST_COLUMNS = 5_000  # of which each takes a millisecond or two
SEPARATORS = ",;\t"  # the ones that spreadsheets write
OTHERS = {
    b"PK\x03\x04": "a spreadsheet or an archive",
    b"%PDF": "a PDF",
    b"\x89HDF": "HDF5",
    b"\x80": "a pickle",
}
_MARKED = re.compile(f"^'(?={FORMULA.pattern})")  # as tables of ours have them, where people open them


def read_cells(path: Path) -> tuple[pd.DataFrame, bool]:
    """The cells of a table, None where one is blank, its index `line` if the file has lines; and whether
    its last line has an end. Raises ConfigError."""
    data = sys.stdin.buffer.read() if str(path) == INPUT else path.read_bytes()
    if data.startswith(b"\x1f\x8b"):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise ConfigError(f"{path}: its gzip can't be read ({error}); pack it again") from error
    if data.startswith(b"PAR1"):
        return _parquet(data, path), True
    if kind := next((kind for mark, kind in OTHERS.items() if data.startswith(mark)), ""):
        raise ConfigError(f"{path}: {kind}; save its table as CSV")
    text = _decoded(data, path)
    if text.lstrip()[:1] in ("{", "["):
        if not (rows := {line: _flat(row) for line, row in _objects(text, path)}):
            raise ConfigError(f"{path}: empty, so there is nothing to compare")
        table = pd.DataFrame([*rows.values()], pd.Index([*rows], name="line"), dtype=object)
        table = table.where(table.notna(), None)
    else:
        header, cells, separator = _split(text, path)
        if not cells:
            raise ConfigError(
                f"{path}: {'only a header' if header else 'empty'}, so there is nothing to compare"
            )
        table = pd.DataFrame([*cells.values()], pd.Index([*cells], name="line"), header, dtype=object)
        if separator == ";":
            table = _with_points(table)
    blank = table.map(lambda cell: isinstance(cell, str) and not cell.strip())
    return table.mask(blank, None), text[-1] in "\r\n}]"


def _with_points(table: pd.DataFrame) -> pd.DataFrame:
    """The table with points in columns of numbers some of which, as 1,234, might be thousands elsewhere: what
    stands between semicolons has its comma for a decimal one."""
    found = dict[str, pd.Series]()
    for key, cells in table.items():
        given = cells[cells != ""]
        if given.str.fullmatch(r"[+-]?\d+(,\d+)?").all() and given.str.fullmatch(r"[+-]?\d{1,3},\d{3}").any():
            found[str(key)] = cells.str.replace(",", ".")
    return table.assign(**found)


def _parquet(data: bytes, path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(io.BytesIO(data))
    except ImportError as error:
        raise ConfigError(f"{path}: pandas needs a package to read Parquet: pip install pyarrow") from error
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"{path}: its Parquet can't be read ({reason}); write it again, or as CSV"
        ) from error


def _objects(text: str, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON list, or of lines, with their place. Numbers stay as they are spelt."""

    def parsed(text: str) -> Any:
        return json.loads(text, parse_int=str, parse_float=str, parse_constant=str)

    try:
        whole = parsed(text)
        whole = whole.get("rows", [whole]) if isinstance(whole, dict) else whole
        objects = enumerate(whole, 1)
    except (ValueError, RecursionError):
        objects = ((at, line) for at, line in enumerate(text.splitlines(), 1) if line.strip())
    for at, one in objects:
        try:
            row = parsed(one) if isinstance(one, str) else one
        except (ValueError, RecursionError) as error:
            raise ConfigError(
                f"{path}: line {at} is no JSON: cut off? correct it, or leave it out"
            ) from error
        if not isinstance(row, dict):
            raise ConfigError(f"{path}: line {at} is no JSON object, as one row is; write a list of objects")
        yield at, row


def _flat(values: dict[str, Any], above: str = "") -> dict[str, Any]:
    """A row of plain values: those of an object within it by dotted names, a list as text."""
    row: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            row |= _flat(value, f"{above}{key}.")
        else:
            row[above + key] = json.dumps(value) if isinstance(value, list) else value
    return row


def _decoded(data: bytes, path: Path) -> str:
    encoding = next((named for mark, named in MARKS.items() if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}: line {line} is not {encoding.upper()} text; save it as UTF-8") from error
    before, null, _ = text.partition("\0")
    if null:
        line = before.count("\n") + 1
        raise ConfigError(f"{path}: line {line} holds a null character; no table does")
    return text.replace("\ufeff", "")  # byte order marks, also inside of concatenated files


def _split(text: str, path: Path) -> tuple[list[str], dict[int, Sequence[str]], str]:
    """The header, the rows by the line in which they begin, without blank lines and without repeated headers,
    as in concatenated files, and the separator."""
    separator = max(SEPARATORS, key=text.lstrip().partition("\n")[0].count)
    csv.field_size_limit(max(len(text), csv.field_size_limit()))
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True
    )
    cells_by_line: dict[int, Sequence[str]] = {}
    line, is_marked = 1, "'" in text
    try:
        for cells in reader:
            if any(map(str.strip, cells)):
                cells_by_line[line] = [_MARKED.sub("", cell) for cell in cells] if is_marked else cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise ConfigError(f"{path}: line {line}: {error}; correct its quotation marks") from error
    header = [*next(iter(cells_by_line.values()), [])]
    rows = {line: cells for line, cells in cells_by_line.items() if cells != header}
    for line, cells in rows.items():
        if len(cells) != len(header):
            raise ConfigError(
                f"{path}: line {line} has {counted(len(cells), 'cell')}, not {len(header)}: cut off, or of"
                " another separator or file; correct it, or leave it out"
            )
    header = [name.strip() for name in header]
    require_columns(header, str(path))
    return header, rows, separator


def require_columns(columns: Sequence[str], name: str) -> None:
    """Raises ConfigError for more than MOST_COLUMNS of them, and for two of one name."""
    if len(columns) > MOST_COLUMNS:
        most = f"{len(columns):,} columns, and at most {MOST_COLUMNS:,} are read"
        raise ConfigError(f"{name}: {most}; leave out those that no comparison needs")
    for column, count in Counter(columns).items():
        if column and count > 1:
            raise ConfigError(f"{name}: two columns are called {column}; leave one of them out")
