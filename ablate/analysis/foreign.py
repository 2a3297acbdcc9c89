"""A table from elsewhere, a CSV file or a DataFrame of any origin, brought into the shape of results, once.

What was taken and what was left out is said in a line; what can't be read is one line with the name of the
table, the row, and the way out. It loads no torch.
"""

import codecs
import csv
import gzip
import io
import re
import reprlib
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ablate.config.column import Column
from ablate.config.rules import ConfigError, as_text
from ablate.phrases import Note, counted, first_few, lines_if
from ablate.store.columns import COLUMNS, FORMULA, RESULTS, SEED_COLUMNS, TABLE, Status, of_role
from ablate.store.frames import LARGEST, as_kind, as_texts

# The encodings that a byte order mark names, as spreadsheets write one.
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark is a prefix of it
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
SEPARATORS = ",;\t"  # the ones that spreadsheets write
MOST_COLUMNS = 5_000  # of which each takes a millisecond or two
REQUIRED = ("fusion", "heads", "out_proj", "seed")  # in a row that has one, if the table has the column
# What other programs call the status of a run: W&B, MLflow, Optuna, Ray, SLURM, and people.
WORDS = {
    Status.DONE: "done finished finish complete completed terminated success successful succeeded ok passed"
    " keep kept true",
    Status.RUNNING: "running pending queued scheduled waiting starting started in_progress completing",
    Status.INTERRUPTED: "interrupted preempted preempting paused",
    Status.FAILED: "failed failure fail crashed crash killed error errored aborted cancelled canceled timeout"
    " timed_out oom out_of_memory node_fail discard discarded rejected pruned false",
    Status.DIVERGED: "diverged nan",
    Status.STALE: "stale",
}
STATUS = {word: status for status, words in WORDS.items() for word in words.split()}
_MARKED = re.compile(f"^'(?={FORMULA.pattern})")  # as tables of ours have them, where people open them
MISSING = ("", "NA", "N/A", "n/a", "nan", "NaN", "NAN", "null", "NULL", "None", "none", "<NA>", "#N/A", "-")
_WITH_COMMA = re.compile(r"[+-]?\d*(,\d+)?([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}([.,]\d{3})+")


def read_table(path: Path, metric: str | None = None) -> tuple[pd.DataFrame, list[Note]]:
    """The rows of a CSV file, which may be gzipped, and lines on them. metric: as for `as_results`. Raises
    ConfigError."""
    text = _decoded(path)
    header, rows, separator = _split(text, path)
    if not rows:
        raise ConfigError(f"{path}: {'only a header' if header else 'empty'}, so there is nothing to compare")
    table = pd.DataFrame([*rows.values()], pd.Index([*rows], name="line"), header, dtype=str)
    table = table.mask(table == "")
    results, lines = as_results(table, str(path), metric, commas=separator == ";")
    cut = f"{path}: its last line has no end; if it was cut off there, its last value is wrong"
    return results, [*lines, *lines_if(text[-1] not in "\r\n", Note(cut, "taken"))]


def as_results(
    table: pd.DataFrame, name: str, metric: str | None = None, *, commas: bool = False
) -> tuple[pd.DataFrame, list[Note]]:
    """A table completed to the columns of results, with types and an index of its own, and lines on what was
    made of it. name: its name in errors. metric: a column that has to hold numbers, whatever ablate means by
    its name. commas: whether any column may have decimal commas, not only such a one. Raises ConfigError."""
    if table.columns.nlevels > 1:
        raise ConfigError(f"{name}: its columns have {table.columns.nlevels} levels; give each one name")
    if any(key not in (None, "line") for key in table.index.names):  # as after a groupby
        table = table.reset_index()
    elif not table.index.is_unique:
        table = table.reset_index(drop=True)
    table = table.rename(columns=lambda key: str(key).strip())
    table = table.loc[:, [not re.fullmatch(r"(Unnamed: \d+)?", key) for key in table.columns]]
    _refuse_columns([*table.columns], name)
    table, lines = _with_status(table, name)
    seeds = [key for key in table if str(key).lower() in ("seed", "random_seed")]
    if len(seeds) == 1 and seeds != ["seed"]:
        table = table.rename(columns={seeds[0]: "seed"})
        lines = [*lines, Note(f"{name}: {seeds[0]} is the seed", "taken")]
    table, summed = _without_summaries(table, name)
    lines = [*lines, *summed]
    results = table[table["status"].isin(RESULTS)]  # the row of a damaged run may have only its id
    for column in REQUIRED:
        is_given = column in table and table[column].notna().any()
        if is_given and len(empty := results[results[column].isna()]):
            raise ConfigError(f"{name}: {_place(empty)} has no {column}; complete it, or leave the row out")
    # Others mean something else by the words for what only our studies have, such as phase or error.
    is_ours = "fusion" in table and table["fusion"].notna().any()
    words = {*of_role("identity")} | ({metric} & {*of_role("config", "provenance")})
    theirs = set[str]() if is_ours else words & {*table.columns} - {"status"}
    known = {one.name: one for one in TABLE if one.name not in theirs}
    numeric = [key for key, one in known.items() if one.kind in ("whole", "number")]
    table = table.reindex(columns=[*COLUMNS, *table.columns.difference([*COLUMNS], sort=False)])
    texts = [str(key) for key in table if str(table[key].dtype) in ("object", "str")]
    for key in (texts := [key for key in texts if table[key].notna().any()]):
        if {list, dict, set, np.ndarray} & {*map(type, table[key])}:
            try:
                table[key] = [as_text(sorted(one) if isinstance(one, set) else one) for one in table[key]]
            except TypeError as error:
                raise ConfigError(f"{name}: {key}: {error}; write its values as text") from error
        of_word = key in known and (known[key].role, known[key].kind) == ("config", "word")
        if key == metric or (key in known and not of_word):  # None is a word there
            table[key] = table[key].mask(table[key].isin(MISSING), None)
    points = [key for key in texts if key in numeric or (key not in known and (commas or key == metric))]
    lines += _with_points(table, points, name, commas=commas)
    lines += [line for key in texts if key not in {metric, *known} for line in _versions(table[key], name)]
    rows = {key: as_kind(table[key], known[key]) for key in known} | {
        str(key): _of_own_type(table[key]) for key in table if key not in known
    }
    for key in numeric:
        if key not in SEED_COLUMNS:
            _refuse_words(rows[key], known[key], name)
    if metric in rows and metric not in known and str(rows[metric].dtype) in ("object", "str"):
        cells = rows[metric][table["status"].isin(RESULTS)]
        if as_texts(cells).str.match(r"[+-]?\.?\d").any():  # else it is a column of words
            _refuse_words(cells, Column(metric, "metric", "number"), name)
            rows[metric] = pd.to_numeric(rows[metric], errors="coerce")
    return pd.DataFrame(rows).reset_index(drop=True), lines


def _with_status(table: pd.DataFrame, name: str) -> tuple[pd.DataFrame, list[Note]]:
    """The table with a status of ours in each row and, where other words stood, lines on what was taken and
    what was left out. Without a column `status` or `state`, every run is done."""
    names = [key for key in table.columns if key.lower() in ("status", "state")]
    if not names:
        return table.assign(status=str(Status.DONE)), []
    column = "status" if "status" in names else names[0]
    words = as_texts(table[column])
    known = {
        word: STATUS.get(re.sub(r"[\s-]+", "_", word.lower().split(" by ")[0].split(".")[-1]))
        for word in words.unique()
    }
    ours = words.map({word: str(status or word or "no status") for word, status in known.items()})
    table = table.drop(columns=column).assign(status=ours)
    if {*known} <= {*Status}:
        return table, []
    if not any(known.values()):
        raise ConfigError(
            f"{name}: {column}: none of its words is known ({first_few([*known])}); write finished, running"
            " or failed, or give the column another name if it is no status"
        )
    taken, out = counted(int(ours.isin(RESULTS).sum()), "row"), list[str]()
    for word, count in words.value_counts(sort=False).items():
        if known[word] not in RESULTS:
            out.append(f"{count} {word or 'empty'}{'' if known[word] else ' (a word not known)'}")
    line = "; left out: ".join([f"{name}: {column}: {taken} taken", *lines_if(out, ", ".join(out))])
    strange = lines_if(None in known.values(), Note("rows of an unknown status", "doubt"))
    return table, [Note(line, "taken"), *strange]


def _without_summaries(table: pd.DataFrame, name: str) -> tuple[pd.DataFrame, list[Note]]:
    """The table without rows whose seed is a word among numbers, such as mean, and a line on them."""
    is_ours = "fusion" in table and table["fusion"].notna().any()
    seeds = as_texts(table["seed"]) if "seed" in table and not is_ours else pd.Series("", table.index)
    given, numbers = seeds != "", pd.to_numeric(seeds, errors="coerce").notna()
    words = given & ~numbers
    if not words.any() or words.sum() >= numbers.sum():
        return table, []
    line = (
        f"{name}: {counted(int(words.sum()), 'row')} of seed={first_few([*seeds[words].unique()])} left out"
    )
    return table[~words], [Note(f"{line}: they are of several runs", "taken")]


def _with_points(table: pd.DataFrame, keys: Iterable[str], name: str, *, commas: bool) -> list[Note]:
    """Put a point for each decimal comma in these columns of the table; returns a line, if there are any.
    commas: whether 1,234 has one, too. Raises ConfigError if points beside them may mean thousands."""
    found, doubtful = dict[str, str](), dict[str, str]()
    for key in keys:
        texts = [str(cell).strip() for cell in table[key].dropna().unique() if cell not in MISSING]
        with_comma = [text for text in texts if "," in text]
        if with_comma and all(map(_WITH_COMMA.fullmatch, texts)):
            if commas or not all(map(_THOUSANDS.fullmatch, with_comma)):
                found[key] = with_comma[0]
                table[key] = table[key].str.replace(",", ".")
        elif texts and all(map(_THOUSANDS.fullmatch, texts)):
            doubtful[key] = texts[0]
    first = next(iter(found.items()), ("", ""))
    for key, cell in doubtful.items() if found else ():
        raise ConfigError(
            f"{name}: {first[0]} {first[1]} has a decimal comma, and {key} {cell} a point that may mean"
            " thousands; write decimal points alone"
        )
    read = f"{first[1]} is read as {first[1].replace(',', '.')}"
    return lines_if(found, Note(f"{name}: decimal commas in {first_few([*found])}: {read}", "taken"))


def _versions(cells: pd.Series, name: str) -> list[Note]:
    """A line if 2.1 and 2.10 are both in a column, which are one number, but two versions."""
    spelt: dict[float, str] = {}
    for cell in filter(re.compile(r"\d+\.\d+").fullmatch, map(str, cells.dropna().unique())):
        other = spelt.setdefault(float(cell), cell)
        if other != cell:
            one = f"{cells.name}: {other} and {cell} are one number"
            return [Note(f"{name}: {one}; write v{other} and v{cell} if they are versions", "taken")]
    return []


def _of_own_type(cells: pd.Series) -> pd.Series:
    """A column that ablate does not know: as truth values or numbers if all of it is that, else as text."""
    if cells.dtype != object and str(cells.dtype) not in ("str", "category"):
        return cells
    texts = as_texts(cells)
    given = texts[~texts.isin(MISSING)]
    if len(given) and given.isin(("true", "false")).all():
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
    encoding = next((named for mark, named in MARKS.items() if data.startswith(mark)), "utf-8")
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
    line, is_marked = 1, "'" in text
    try:
        for cells in reader:
            if any(map(str.strip, cells)):
                cells_by_line[line] = [_MARKED.sub("", cell) for cell in cells] if is_marked else cells
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
    _refuse_columns(header, str(path))
    return header, rows, separator


def _refuse_columns(columns: Sequence[str], name: str) -> None:
    """Raises ConfigError for more than MOST_COLUMNS of them, and for two of one name."""
    if len(columns) > MOST_COLUMNS:
        most = f"{len(columns):,} columns, and at most {MOST_COLUMNS:,} are read"
        raise ConfigError(f"{name}: {most}; leave out those that no comparison needs")
    for column, count in Counter(columns).items():
        if column and count > 1:
            raise ConfigError(f"{name}: two columns are called {column}; leave one of them out")


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
