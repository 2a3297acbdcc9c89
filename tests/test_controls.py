"""What puts a difference in proportion: parametrization, how often it misleads."""

import numpy as np
import pandas as pd
import pytest

from ablate.analysis import stats
from ablate.analysis.compare import compare
from ablate.reporting import answers
from ablate.store.record import StudyRecord
from tests.helpers import make_record
from tests.test_compare import note, of_cells, table

pytestmark = pytest.mark.usefixtures("two_seeds_decide")


def cells(*levels: tuple[dict, list[float]]) -> pd.DataFrame:
    """The rows of variants with these losses at seeds 0, 1, …"""
    return of_cells(({"scores": "softmax", **one}, losses) for one, losses in levels)


def of_projection(interaction: float, rng: np.random.Generator, n: int, sd: float = 0.01) -> pd.DataFrame:
    """Heads 1 and 8, projection on and off, which costs 0.3 with one head, for nothing."""
    losses = {(1, True): 2.0, (1, False): 2.3, (8, True): 1.8, (8, False): 2.1 + interaction}
    variants = [
        {"heads": heads, "out_proj": on, "function_class": "one" if heads == 1 else ""}
        for heads, on in losses
    ]
    each = [list(loss + sd * rng.standard_normal(n)) for loss in losses.values()]
    return cells(*zip(variants, each, strict=True))


def of_study(**given) -> StudyRecord:
    primary = [{"vary": "out_proj", "baseline": True, "where": {"heads": heads}} for heads in (1, 8)]
    return make_record(**{"metric": "val_loss", "margin": 0.01, "primary": primary, **given})


# --- parametrization --------------------------------------------------------------------------------


def test_different_functions_start_apart():
    line = "In 1 of 2 comparisons the two start as different functions; part of the difference may come from"
    result = compare(of_projection(0.0, np.random.default_rng(0), 8), records=[of_study()])
    assert note(result, "start as different functions").startswith(line)


def test_several_undecided_contrasts_say_each_what_is_parametrization():
    noise = np.random.default_rng(0).standard_normal((3, 6))
    variants = [{"scale": scale, "function_class": "one"} for scale in ("inside", "outside", "both")]
    rows = cells(*((one, list(2 + values)) for one, values in zip(variants, noise, strict=True)))
    told = " ".join(answers.findings(compare(rows, baseline={"scale": "inside"})))
    assert "othing is decided yet" in told and told.count("all of it is parametrization") == 2


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
    result = compare(rows)
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
    alone = stats.paired(losses[:, 0], losses[:, 1], margin=0.01)["p"] < 0.05  # each study has one comparison
    assert alone.mean() <= 0.06
    rows = cells(*(({"fusion": name}, list(losses[0, i])) for i, name in enumerate(("concat", "sum"))))
    (diff,) = compare(rows).table.query("fusion == 'sum'")["diff"].tolist()
    assert diff == pytest.approx(losses[0, 1].mean() - losses[0, 0].mean())
