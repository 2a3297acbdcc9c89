"""Tables in terminals of any width: no word is broken, no line is too long, nothing is silently gone."""

import re

import numpy as np
import pandas as pd
import pytest

from ablate.tables import TextColumn, fitted, lines_of

COMPARED = pd.DataFrame(
    {
        "fusion": ["concat", "weighted_sum", "sum"],
        "heads": ["4", "4", "16"],
        "out_proj": ["true", "true", "false"],
        "n": ["24", "24", "23 + 1 diverged"],
        "params": [109_312, 103_176, 1_103_168],
        "mean": [1.4977, 1.5449, 1.5325],
        "sd": [0.0081, 0.0122, 0.0108],
        "diff": ["", "+0.0472", "+0.0348"],
        "[low, high]": ["", "[0.0412, 0.0531]", "[0.0301, 0.0395]"],
        "verdict": ["baseline", "worse", "undecided: 12 more seeds"],
    }
)


@pytest.mark.parametrize(
    "width, gone",
    [
        (60, []),  # values stand below each other
        (80, ["params", "mean", "sd"]),
        (100, ["params"]),
        (120, []),
        (200, []),
    ],
)
def test_a_comparison_fits_and_no_word_is_broken(width: int, gone: list[str]):
    text, left_out = lines_of(COMPARED, width)
    assert max(map(len, text.splitlines())) <= width
    whole, nothing = lines_of(COMPARED, None)
    assert nothing == [] and {*text.split()} <= {*whole.split()}
    assert left_out == gone
    assert "[0.0412, 0.0531]" in text  # an interval stays in one piece
    assert width < 200 or text.count("\n") == 4  # what fits is one line a row


def test_of_random_tables_every_word_of_what_is_shown_is_there():
    draws = np.random.default_rng(0)
    for _ in range(300):
        count, rows = draws.integers(1, 8), draws.integers(0, 4)
        columns = [
            TextColumn(
                f"name{i}",
                [" ".join("x" * n for n in draws.integers(1, 12, draws.integers(0, 6))) for _ in range(rows)],
                right=bool(draws.integers(2)),
                rank=int(draws.integers(5)) if draws.integers(2) else None,
            )
            for i in range(count)
        ]
        width = int(draws.integers(14, 90))
        fitted_rows, left_out = fitted(columns, width)
        lines = [line for row in fitted_rows for line in row]
        shown = [column for column in columns if column.name not in left_out]
        words = sorted(word for column in shown for cell in column.cells for word in cell.split())
        assert sorted(re.findall("x+", " ".join(lines))) == words
        assert all(column.rank is not None for column in columns if column.name in left_out)
        assert max(map(len, lines), default=0) <= max(width, 7 + 2 + 72)
        assert len(fitted_rows) == rows + 1


# --- pictures of a terminal -----------------------------------------------------------------------
