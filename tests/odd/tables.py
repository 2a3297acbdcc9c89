"""A table of results as anybody may have one: whole, and spoilt in one way or another."""

import csv
import io
import random
from collections.abc import Callable

from ablate.store.columns import COLUMNS, csv_text
from tests.odd.words import ODD

Table = list[list[str]]  # of cells, the names of the columns first

_ROWS = [
    {
        **{"run_id": f"{fusion}{heads}{seed}".ljust(16, "0"), "study": "mine", "status": "done"},
        **{"fusion": fusion, "normalize": "none", "heads": heads, "out_proj": True, "match": "none"},
        **{"value_width": 64 // heads, "key_width": 64 // heads, "d_model": 64, "layers": 2, "context": 64},
        **{"corpus_sha256": "0abc", "tokenizer": "char", "vocab": 97, "splits": "[0.8, 0.1, 0.1]"},
        **{"steps": 500, "batch": 32, "lr": 0.003, "seed": seed, "params": 109312 - 97 * heads},
        **{"train_loss": 1.9, "val_loss": 2.0 + 0.1 * number + 0.01 * seed * (1 + number), "val_acc": 0.4},
        **{
            "test_loss": 2.1,
            "tokens_per_s": 5e4,
            "wall_s": 9.5,
            "code": "c0de",
            "parts": "0123",
            "torch": "2.9",
        },
    }
    for number, (fusion, heads) in enumerate((("concat", 2), ("concat", 4), ("sum", 2), ("sum", 4)))
    for seed in range(3)
]
RESULTS = csv_text(_ROWS)


def spoilt_table(draw: random.Random) -> str:
    """RESULTS as CSV, with one to four things wrong with it."""
    table: Table = [*csv.reader(io.StringIO(RESULTS))]
    for _ in range(draw.choice((0, 1, 1, 2, 3))):
        table = draw.choice(OF_COLUMNS)(draw, table)
    if draw.random() < 0.5:
        table = draw.choice(OF_ROWS)(draw, table)
    text = io.StringIO(newline="")
    separator = draw.choice((",", ",", ",", ",", ";", "\t", "|", " "))
    ends = draw.choice(("\n", "\n", "\n", "\r\n", "\r"))
    quoting = draw.choice((csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    csv.writer(text, delimiter=separator, lineterminator=ends, quoting=quoting).writerows(table)
    return text.getvalue()


# --- the table stays a rectangle ----------------------------------------------------------------


def _without_a_column(draw: random.Random, table: Table) -> Table:
    at = _column(draw, table)
    return [row[:at] + row[at + 1 :] for row in table]


def _with_a_column_twice(draw: random.Random, table: Table) -> Table:
    at = _column(draw, table)
    return [[*row, row[at]] for row in table]


def _with_a_column_renamed(draw: random.Random, table: Table) -> Table:
    at = _column(draw, table)
    names, *rows = table
    name = draw.choice((*COLUMNS, *ODD, names[at].upper(), f" {names[at]}"))
    return [[*names[:at], name, *names[at + 1 :]], *rows]


def _with_a_column_of_one_value(draw: random.Random, table: Table) -> Table:
    at, value = _column(draw, table), draw.choice(ODD)
    return [table[0], *([*row[:at], value, *row[at + 1 :]] for row in table[1:])]


def _with_cells_replaced(draw: random.Random, table: Table) -> Table:
    table = [[*row] for row in table]
    for _ in range(draw.choice((1, 1, 3, 9))):
        draw.choice(table)[_column(draw, table)] = draw.choice(ODD)
    return table


def _turned(draw: random.Random, table: Table) -> Table:
    return [[*column] for column in zip(*table, strict=True)]


def _column(draw: random.Random, table: Table) -> int:
    """Any, but often one that every command looks at."""
    looked_at = [at for at, name in enumerate(table[0]) if name in LOOKED_AT]
    return draw.choice(looked_at) if looked_at and draw.random() < 0.6 else draw.randrange(len(table[0]))


LOOKED_AT = {"run_id", "study", "status", "fusion", "heads", "out_proj", "seed", "val_loss"}
OF_COLUMNS: tuple[Callable[[random.Random, Table], Table], ...] = (
    _without_a_column,
    _with_a_column_twice,
    _with_a_column_renamed,
    _with_a_column_of_one_value,
    _with_cells_replaced,
    _with_cells_replaced,
    _turned,
)

# --- and then it need not -----------------------------------------------------------------------


def _with_a_row_of_another_width(draw: random.Random, table: Table) -> Table:
    place = draw.randrange(len(table))
    row = table[place]
    other = draw.choice((row[:1], row[:-3], [*row, "x"], [*row, *row], [], [""], ["# a comment"]))
    return [*table[:place], other, *table[place + 1 :]]


def _with_rows_twice(draw: random.Random, table: Table) -> Table:
    return [*table, *table[draw.randrange(len(table)) :]]


def _pasted_together(draw: random.Random, table: Table) -> Table:
    """Two files, the second with its header, and perhaps its columns in another order."""
    order = [*range(len(table[0]))]
    if draw.random() < 0.5:
        draw.shuffle(order)
    return table + [[row[at] for at in order] for row in table]


def _with_few_rows(draw: random.Random, table: Table) -> Table:
    return table[draw.choice((0, 1)) : draw.choice((0, 1, 2, 3))]


OF_ROWS: tuple[Callable[[random.Random, Table], Table], ...] = (
    _with_a_row_of_another_width,
    _with_rows_twice,
    _pasted_together,
    _with_few_rows,
)
