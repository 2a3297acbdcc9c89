"""What rows are called: the level that is asked about, then what else differs."""

import pandas as pd

from ablate.reporting import cells
from tests.helpers import compared
from tests.test_compare import of_cells

SEEDS = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]


def crossed() -> pd.DataFrame:
    """Two fusions × heads × projections × rates: 24 variants, of which twelve are compared with others."""
    return of_cells(
        (
            {"fusion": fusion, "heads": heads, "key_width": 64 // heads, "out_proj": projection, "lr": rate},
            [3 + seed + (fusion == "sum") * (0.1 + seed / 50) for seed in SEEDS],
        )
        for fusion in ("concat", "sum")
        for heads in (1, 2, 4)
        for projection in (True, False)
        for rate in (0.01, 0.02)
    )


def test_each_row_says_what_is_asked_about_and_each_baseline_is_a_row():
    short = cells.contrast_table(compared(crossed(), baseline={"fusion": "concat"}))
    names, verdicts = short["variant"].tolist(), short["verdict"].tolist()
    assert len({*names}) == len(names) == 24
    assert all(name.startswith(("sum heads=", "concat heads=")) for name in names)
    assert [name.startswith("concat") for name in names] == [verdict == "baseline" for verdict in verdicts]
