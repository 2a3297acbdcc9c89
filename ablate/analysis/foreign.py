"""A table from elsewhere, a CSV file or a DataFrame of any origin, brought into the shape of results, once.

What was taken and what was left out is said in a line; what can't be read is one line with the name of the
table, the row, and the way out. It loads no torch.
"""

import csv
import gzip
import io
import re
import reprlib
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ablate.analysis.frames import LARGEST, is_numeric, typed
from ablate.analysis.select import as_texts
from ablate.config.conditions import as_text
from ablate.config.rules import ConfigError
from ablate.files import marked_encoding
from ablate.phrases import Doubt, Taken, counted, lines_if, some
from ablate.store.columns import COLUMNS, RESULTS, SEED_COLUMNS, TABLE, Column, Status

SEPARATORS = ",;\t"  # the ones that spreadsheets write
REQUIRED = ("fusion", "heads", "out_proj", "seed")  # in a row that has one, if the table has the column
# What other programs call the status of a run: W&B, MLflow, Optuna, Ray, SLURM, and people.
WORDS = {
    Status.DONE: "done finished finish complete completed success successful succeeded ok passed keep kept"
    " true",
    Status.RUNNING: "running pending queued scheduled waiting starting started in_progress completing",
    Status.INTERRUPTED: "interrupted preempted preempting paused",
    Status.FAILED: "failed failure fail crashed crash killed error errored aborted cancelled canceled timeout"
    " timed_out oom out_of_memory node_fail discard discarded rejected pruned false",
    Status.DIVERGED: "diverged nan",
    Status.STALE: "stale",
}
STATUS = {word: status for status, words in WORDS.items() for word in words.split()}
MISSING = ("", "NA", "N/A", "n/a", "nan", "NaN", "NAN", "null", "NULL", "None", "none", "<NA>", "#N/A", "-")
OTHER_FILES = {
    b"PK\3\4": "a spreadsheet or an archive",
    b"PAR1": "a Parquet file",
    b"{": "JSON",
    b"[": "JSON",
}
_WITH_COMMA = re.compile(r"[+-]?\d*(,\d+)?([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}([.,]\d{3})+")


def read_table(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """The rows of a CSV file, which may be gzipped, and lines on them. Raises ConfigError."""
    text = _decoded(path)
    header, rows, separator = _split(text, path)
    if not rows:
        raise ConfigError(f"{path}: {'only a header' if header else 'empty'}, so there is nothing to compare")
    plain = io.StringIO()
    csv.writer(plain).writerows([header, *rows.values()])
    plain.seek(0)
    table = pd.read_csv(plain, dtype=str, keep_default_na=False, na_values=[""], low_memory=False)
    table.index = pd.Index([*rows], name="line")
    results, lines = as_results(table, str(path), commas=separator == ";")
    cut = f"{path}: its last line has no end; if it was cut off there, its last value is wrong"
    return results, [*lines, *lines_if(text[-1] not in "\r\n", Taken(cut))]


def read_cells(path: Path) -> dict[int, dict[str, str]]:
    """The cells of a CSV file as they are written, by column, and by the line in which a row begins. Raises
    ConfigError."""
    header, rows, _ = _split(_decoded(path), path)
    return {line: dict(zip(header, cells, strict=True)) for line, cells in rows.items()}


def as_results(table: pd.DataFrame, name: str, *, commas: bool = False) -> tuple[pd.DataFrame, list[str]]:
    """A table completed to the columns of results, with types and an index of its own, and lines on what was
    made of it. name: its name in errors. commas: whether any column may have decimal commas, not only one
    that has to hold numbers. Raises ConfigError."""
    if any(key not in (None, "line") for key in table.index.names):  # as after a groupby
        table = table.reset_index()
    elif not table.index.is_unique:
        table = table.reset_index(drop=True)
    table = table.rename(columns=lambda key: str(key).strip())
    table = table.loc[:, [not re.fullmatch(r"(Unnamed: \d+)?", key) for key in table.columns]]
    _refuse_twice([*table.columns], name)
    table, lines = _with_status(table, name)
    results = table[table["status"].isin(RESULTS)]  # the row of a damaged run may have only its id
    for column in REQUIRED:
        is_given = column in table and (column == "fusion" or table[column].notna().any())
        if is_given and len(empty := results[results[column].isna()]):
            raise ConfigError(f"{name}: {_place(empty)} has no {column}; complete it, or leave the row out")
    # Others mean something else by the words for what only our studies have, such as phase or error.
    known = {
        one.name: one
        for one in TABLE
        if "fusion" in table or one.role != "identity" or one.name == "status" or one.name not in table
    }
    results, commas_in, points_in = dict[str, pd.Series](), dict[str, str](), dict[str, str]()
    for key in (*COLUMNS, *table.columns.difference([*COLUMNS])):
        column, cells = known.get(key), table.get(key, pd.Series(None, index=table.index, dtype=object))
        is_number = column is not None and column.kind in ("whole", "number")
        if cells.dtype == object or str(cells.dtype) == "str":
            try:
                hash(tuple(cells))
            except TypeError:  # lists, arrays
                cells = cells.map(as_text)
            if column and (column.role != "config" or column.kind != "word"):  # None is a word there
                cells = cells.mask(cells.isin(MISSING), None)
            if commas or is_number:
                cells, commas_in[key], points_in[key] = _with_points(cells, commas)
        results[key] = typed(cells, column) if column else _of_own_type(cells)
        if column and is_number and key not in SEED_COLUMNS:
            _refuse_words(results[key], column, name)
    lines += _on_commas(
        commas_in, {key: one for key, one in points_in.items() if is_numeric(results[key])}, name
    )
    return pd.DataFrame(results).reset_index(drop=True), lines


def _with_status(table: pd.DataFrame, name: str) -> tuple[pd.DataFrame, list[str]]:
    """The table with a status of ours in each row and, where other words stood, lines on what was taken and
    what was left out. Without a column `status` or `state`, every run is done."""
    names = [key for key in table.columns if key.lower() in ("status", "state")]
    if not names:
        return table.assign(status=str(Status.DONE)), []
    column = "status" if "status" in names else names[0]
    words = as_texts(table[column])
    known = {
        word: STATUS.get(re.sub(r"[\s-]+", "_", word.lower().split(" by ")[0])) for word in words.unique()
    }
    ours = words.map(lambda word: str(known[word] or word or "no status"))
    table = table.drop(columns=column).assign(status=ours)
    if {*known} <= {*Status}:
        return table, []
    if not any(known.values()):
        raise ConfigError(
            f"{name}: {column}: none of its words is known ({some([*known])}); write finished, running or"
            " failed, or give the column another name if it is no status"
        )
    out = [
        f"{(words == word).sum()} {word or 'without a word'}" for word in known if known[word] not in RESULTS
    ]
    taken = counted(int(ours.isin(RESULTS).sum()), "row")
    lines = [Taken(f"{name}: {column}: {taken} taken" + (f"; left out: {', '.join(out)}" if out else ""))]
    if strange := [word for word in known if not known[word]]:
        at = [*table.index[words.isin(strange)]]
        line = (
            f"{name}: it is not known what the {column} {some(strange)} means, so {counted(len(at), 'row')}"
        )
        kind = table.index.name or "row"
        lines.append(Doubt(f"{line} left out: {kind} {some(at, 5)}", "rows of an unknown status"))
    return table, lines


def _with_points(cells: pd.Series, commas: bool) -> tuple[pd.Series, str, str]:
    """The cells of a column with a point for each decimal comma; a cell that had one, and one in which a
    point may mean thousands, both empty if there is none. commas: whether 1,234 has a decimal comma, too."""
    texts = [str(cell).strip() for cell in cells[~cells.isin(MISSING)].dropna().unique()]
    pointed, with_comma = ([text for text in texts if sign in text] for sign in ".,")
    doubtful = pointed[0] if pointed and all(map(_THOUSANDS.fullmatch, pointed)) else ""
    is_number = with_comma and all(map(_WITH_COMMA.fullmatch, texts))
    if not is_number or not (commas or any(not _THOUSANDS.fullmatch(text) for text in with_comma)):
        return cells, "", doubtful
    points = cells.map(lambda cell: cell.replace(",", ".") if isinstance(cell, str) else cell)
    return points, with_comma[0], ""


def _on_commas(commas: Mapping[str, str], points: Mapping[str, str], name: str) -> list[str]:
    """A line on decimal commas that were read. Raises ConfigError if points beside them may mean thousands.
    commas, points: by column, a cell with one, or an empty text."""
    found = [key for key, cell in commas.items() if cell]
    if found and (doubtful := [key for key, cell in points.items() if cell]):
        raise ConfigError(
            f"{name}: {found[0]} {commas[found[0]]} has a decimal comma, and {doubtful[0]}"
            f" {points[doubtful[0]]} a point that may mean thousands; write decimal points alone"
        )
    line = f"{name}: decimal commas in {some(found)}"
    return [Taken(f"{line}: {commas[key]} is read as {commas[key].replace(',', '.')}") for key in found[:1]]


def _of_own_type(cells: pd.Series) -> pd.Series:
    """A column that ablate does not know: as truth values or numbers if all of it is that, else as text."""
    if not (cells.dtype == object or str(cells.dtype) in ("str", "category")):
        return cells
    texts = as_texts(cells)
    given = texts[~texts.isin(MISSING)]
    if given.isin(("true", "false")).all() and len(given):
        return texts.map({"true": True, "false": False}).astype("boolean")
    numbers = pd.to_numeric(texts, errors="coerce")
    return numbers if len(given) and numbers[given.index].notna().all() else texts.where(texts != "", None)


def _decoded(path: Path) -> str:
    data = path.read_bytes()
    if data.startswith(b"\x1f\x8b"):
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise ConfigError(f"{path}: its gzip can't be read ({error}); pack it again") from error
    if what := next((what for start, what in OTHER_FILES.items() if data.lstrip().startswith(start)), ""):
        raise ConfigError(
            f"{path}: {what}, and this reads CSV; save it as that, or ablate.compare(pandas.read_…(…))"
        )
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


def _split(text: str, path: Path) -> tuple[list[str], dict[int, list[str]], str]:
    """The header, the rows by the line in which they begin, without blank lines and without repeated headers,
    as in concatenated files, and the separator."""
    separator = max(SEPARATORS, key=text.partition("\n")[0].count)
    csv.field_size_limit(max(len(text), csv.field_size_limit()))
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True
    )
    cells_by_line: dict[int, list[str]] = {}
    line = 1
    try:
        for cells in reader:
            if any(map(str.strip, cells)):
                cells_by_line[line] = cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise ConfigError(f"{path}: line {line}: {error}; correct its quotation marks") from error
    header = next(iter(cells_by_line.values()), [])
    rows = {line: cells for line, cells in cells_by_line.items() if cells != header}
    for line, cells in rows.items():
        if len(cells) != len(header):
            raise ConfigError(
                f"{path}: line {line} has {counted(len(cells), 'cell')}, not {len(header)}: cut off, or of"
                " another separator or file; correct it, or leave it out"
            )
    header = [name.strip() for name in header]
    _refuse_twice(header, str(path))
    return header, rows, separator


def _refuse_twice(columns: Sequence[str], name: str) -> None:
    twice = [column for column in columns if column and columns.count(column) > 1]
    if twice:
        raise ConfigError(f"{name}: two columns are called {twice[0]}; leave one of them out")


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
    """The place of the first of these rows: its line in the file, or its label in a foreign table."""
    return f"{rows.index.name or 'row'} {rows.index[0]}"
