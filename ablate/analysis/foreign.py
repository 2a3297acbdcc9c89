"""A table of any origin, a file or a DataFrame, brought into the shape of results, once.

Cells of another program keep their spelling; what is compared is read as numbers later (measures.py). Of rows
of ablate's own each column has its type. What was taken for what is said. It loads no torch.
"""

import re
import reprlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ablate.analysis.table_file import read_cells, require_columns
from ablate.config.rules import ConfigError
from ablate.config.schema import Column
from ablate.phrases import Note, first_few, lines_if, option
from ablate.store.columns import RESULTS, SEED_COLUMNS, TABLE, Status
from ablate.store.frames import as_kind, as_texts, is_numeric, is_ours, spellings

FILE = "file"  # the column that says from which of several tables a row is
# What columns of other programs are called: what a training is known by, what is a part of one.
SEEDS = re.compile(r"(.*[./ _])?(seed|random_seed|rng_seed|random_state|seed_id)", re.IGNORECASE)
REPLICATE = re.compile(
    r".*seed.*|(.*[./ _])?((model|net|job)[_ ]id|run|rep|repeat|repetition|replicate|replica|trial|restart"
    r"|init|random_state)s?([_ ]?(id|idx|index|name|no|nr|number))?",
    re.IGNORECASE,
)
FOLDS = re.compile(r"(.*[./ _])?(k?folds?|cv|split)([_ ]?(id|idx|index|no|nr))?", re.IGNORECASE)
STEPS = re.compile(r"(.*[./ _])?(steps?|epochs?|iter|iterations?|checkpoint|ckpt)", re.IGNORECASE)
LARGEST = 1e100  # the largest number allowed, so that sums of squares do not overflow
# What other programs call the status of a run: W&B, MLflow, Optuna, Ray, SLURM, and people.
WORDS = {
    Status.DONE: "done finished finish complete completed terminated success successful succeeded ok okay"
    " passed pass true",
    Status.RUNNING: "running pending queued scheduled waiting starting started in_progress completing active",
    Status.INTERRUPTED: "interrupted preempted preempting paused suspended stopped",
    Status.FAILED: "failed failure fail crashed crash killed error errored aborted cancelled canceled timeout"
    " timed_out oom out_of_memory node_fail rejected pruned false",
    Status.DIVERGED: "diverged nan inf",
    Status.STALE: "stale",
}
STATUS_KEY = re.compile(r"(.*\.)?(status|state)", re.IGNORECASE)
STATUS = {word: status for status, words in WORDS.items() for word in words.split()}


def read_table(path: Path, finished: Sequence[str] = ()) -> tuple[pd.DataFrame, list[Note]]:
    """The rows of a file, and lines on them. finished: as of `as_results`. Raises ConfigError."""
    table, has_end = read_cells(path)
    results, lines = as_results(table, str(path), finished)
    cut = f"{path}: its last line has no end; if it was cut off there, its last value is wrong"
    return results, [*lines, *lines_if(not has_end, Note(cut, "taken"))]


def as_results(
    table: pd.DataFrame, name: str, finished: Sequence[str] = ()
) -> tuple[pd.DataFrame, list[Note]]:
    """A table completed to the columns of results, with an index of its own, and lines on what was made of
    it. name: its name in errors. finished: words for the status of runs that count. Raises ConfigError."""
    if table.columns.nlevels > 1:
        raise ConfigError(f"{name}: its columns have {table.columns.nlevels} levels; give each one name")
    if any(key not in (None, "line") for key in table.index.names):  # as after a groupby
        table = table.reset_index()
    elif not table.index.is_unique:
        table = table.reset_index(drop=True)
    table = table.rename(columns=lambda key: str(key).strip())
    table = table.loc[:, [not re.fullmatch(r"(Unnamed: \d+)?", key) for key in table.columns]]
    require_columns([*table.columns], name)
    rows, lines = (of_ours(table, name), []) if is_ours(table) else _of_others(table, name, finished)
    nothing = pd.Series([None] * len(rows), rows.index, dtype=object)
    empty = {kind: as_kind(nothing, one) for kind, one in {one.kind: one for one in TABLE}.items()}
    filled = {one.name: rows[one.name] if one.name in rows else empty[one.kind] for one in TABLE}
    return pd.DataFrame(filled | {str(key): rows[key] for key in rows}).reset_index(drop=True), lines


def _of_others(table: pd.DataFrame, name: str, finished: Sequence[str]) -> tuple[pd.DataFrame, list[Note]]:
    """Each cell as it is spelt, but for a status of ours, and seeds, of which 1.0 and 1 are one."""
    rows, lines = {str(key): _plain(table[key]) for key in table}, list[Note]()
    seeds = [key for key in rows if SEEDS.fullmatch(key)]
    if "seed" not in rows and len(seeds) == 1:
        rows = {**rows, "seed": rows[seeds[0]]}
        lines.append(Note(f"{seeds[0]} is the seed", "taken"))
    for key in {"seed", *SEED_COLUMNS} & rows.keys():
        texts = as_texts(rows[key])
        rows[key] = texts.where(texts != "", None).astype(object)
    status = next((key for key in ("status", *rows) if key in rows and STATUS_KEY.fullmatch(key)), "")
    if not status:
        return pd.DataFrame(rows).assign(status=str(Status.DONE)), lines
    words = spellings(rows[status])
    own = {word.lower() for word in finished}
    known = {word: Status.DONE if word.lower() in own else STATUS.get(_bare(word)) for word in words.unique()}
    if strange := [word for word, of in known.items() if of is None]:
        named = first_few([word or "a blank" for word in strange])
        told = f"; if such runs count, say so: {option('--finished', *filter(None, strange))}" * any(strange)
        blanks = ", or fill blanks in" * (not all(strange))
        raise ConfigError(
            f"{name}: {status}: {named}: no status that is known{told}; if not, leave the rows out{blanks}"
        )
    ours = words.map({word: str(of) for word, of in known.items()})
    gone = {"error": words.where(~ours.isin(RESULTS), None)} if "error" not in rows else {}
    return pd.DataFrame({**rows, **gone, "status": ours}).drop(columns={status} - {"status"}), lines


def _bare(word: str) -> str:
    """RunStatus.FINISHED, CANCELLED by 0 and In progress in the words of STATUS."""
    return re.sub(r"[\s-]+", "_", word.lower().split(" by ")[0].rpartition(".")[2])


def _plain(cells: pd.Series) -> pd.Series:
    """A column without lists and objects, which stand as text, and with None for what is missing."""
    if str(cells.dtype) not in ("object", "str", "category"):
        return cells
    cells = cells.astype(object).where(cells.notna(), None)
    is_text = {list, dict, np.ndarray}.isdisjoint(map(type, cells))
    return cells if is_text else cells.map(str, "ignore")


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
            cells, is_number = as_kind(table[one.name], one), one.kind in ("whole", "number")
            if is_number and not is_numeric(cells):  # for a decimal comma, perhaps
                cells = as_kind(cells.astype(str).str.replace(",", ".").where(cells.notna(), None), one)
            if is_number and one.name not in SEED_COLUMNS:
                _refuse_words(cells, one, name)
            rows[one.name] = cells
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
