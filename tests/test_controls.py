"""What no verdict may rest on: crossed seeds; and how often seeds of two kinds mislead."""

import numpy as np
import pandas as pd
import pytest

from ablate.analysis import stats
from tests.helpers import compared
from tests.test_compare import of_cells, table

pytestmark = pytest.mark.usefixtures("two_seeds_decide")


def cells(*levels: tuple[dict, list[float]]) -> pd.DataFrame:
    """The rows of variants with these losses at seeds 0, 1, …"""
    return of_cells(({"scores": "softmax", **one}, losses) for one, losses in levels)


# --- crossed seeds ----------------------------------------------------------------------------------


def test_crossed_seeds_are_no_replicates():
    rows = table(
        *(
            {"fusion": fusion, "seed": 0, "seed_backbone": w, "seed_fusion": w, "seed_data": b,
             "val_loss": 2 + of_weights + of_batches + 0.01 * (fusion == "sum")}
            for fusion in ("concat", "sum")
            for w, of_weights in enumerate((0.1, -0.1))
            for b, of_batches in enumerate((0.2, 0.0, -0.2))
        )
    )  # fmt: skip
    result = compared(rows)
    assert result.table["p"].isna().all()
    assert any(str(why).startswith("its seeds are crossed") for why in result.table["why"])


# --- how often it misleads --------------------------------------------------------------------------


@pytest.mark.parametrize("n", [8, 24])
@pytest.mark.parametrize("kinds", [1, 2])
def test_one_function_under_two_names_is_seldom_called_different(n, kinds):
    """2,000 studies; with two kinds, every eighth run learns late, at 0.4 nats more."""
    rng = np.random.default_rng(n + kinds)
    shared = 0.005 * rng.standard_normal((2000, 1, n))
    losses = 2 + shared + 0.0087 * rng.standard_normal((2000, 2, n))
    if kinds == 2:
        losses += 0.4 * (rng.random((2000, 2, n)) < 1 / 8)
    alone = stats.judge(stats.paired(losses[:, 0] - losses[:, 1]), 0.95, 0.01).p < 0.05
    assert alone.mean() <= 0.06
    rows = cells(*(({"fusion": name}, list(losses[0, i])) for i, name in enumerate(("concat", "sum"))))
    (diff,) = compared(rows).table.query("fusion == 'sum'")["diff"].tolist()
    assert diff == pytest.approx(losses[0, 1].mean() - losses[0, 0].mean())
