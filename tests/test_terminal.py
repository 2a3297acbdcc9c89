"""Tables in terminals of any width: no word is broken, no line is too long, nothing is silently gone."""

import re

import numpy as np
import pandas as pd
import pytest

from ablate.tables import lines_of

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
        (40, ["params", "sd", "mean"]),  # values stand below each other
        (80, ["params", "sd", "mean"]),
        (100, ["params", "sd", "mean"]),
        (120, ["params"]),
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
    assert width < 100 or text.count("\n") == 4  # what fits is one line a row


def test_of_random_tables_every_word_of_what_is_shown_is_there():
    draws = np.random.default_rng(0)
    for _ in range(100):
        rows = int(draws.integers(1, 4))
        names = draws.permutation(["name", "sd", "mean", "note", "other"])[: draws.integers(1, 6)]
        frame = pd.DataFrame(
            {
                name: [
                    " ".join("x" * n for n in draws.integers(1, 12, draws.integers(0, 6)))
                    for _ in range(rows)
                ]
                for name in names
            }
        )
        width = int(draws.integers(14, 90))
        text, left_out = lines_of(frame, width)
        shown = frame.drop(columns=left_out)
        words = sorted(word for cells in shown.to_numpy() for cell in cells for word in cell.split())
        assert sorted(re.findall("x+", text)) == words
        assert {*left_out} <= {"sd", "mean"}
        least = sum(max(map(len, [str(one), *" ".join(shown[one]).split()])) + 2 for one in shown) - 2
        assert max(map(len, text.splitlines())) <= width or least > width
