"""What puts a difference in proportion: parametrization, how often it misleads."""

import re

import numpy as np
import pandas as pd
import pytest

from ablate.analysis import stats
from ablate.analysis.compare import compare
from ablate.analysis.power import seeds_needed
from ablate.reporting import answers, words
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


def test_the_interaction_is_said_beside_what_is_parametrization():
    rows = of_projection(-0.2, np.random.default_rng(0), 8, sd=0.001)
    result = compare(rows, records=[of_study()])
    one, eight, told = words.sentences(result)
    if "heads=8" in one:
        one, eight = eight, one
    assert "both can learn the same functions, so all of it is parametrization" in one
    assert "parametrization" not in eight
    assert told.startswith("heads=8 − heads=1, without the projection less the same with it: −0.")
    assert re.search(r"; off − on with heads=1 is \+0\.(30|29)\d* \[0\.\d+, 0\.\d+\], which is param", told)
    assert "is parametrization, and is taken to be as large with more heads" in told
    assert " ".join(answers.findings(result)).count("all of it is parametrization") == 1
    (found,) = result.interaction.to_dict("records")
    assert (found["diff"], found["at_few"]) == pytest.approx((-0.2, 0.3), abs=0.003)
    assert found["at_few_low"] < found["at_few"] < found["at_few_high"]


def test_different_functions_start_apart():
    line = "In 1 of 2 comparisons the two start as different functions; part of the difference may come from"
    result = compare(of_projection(0.0, np.random.default_rng(0), 8), records=[of_study()])
    assert note(result, "start as different functions").startswith(line)


@pytest.mark.slow
@pytest.mark.parametrize("heads", [1, 8])
def test_what_diverged_leaves_an_interaction_undecided(heads: int):
    rows = of_projection(0.5, np.random.default_rng(0), 8)
    (lost,) = rows.query(f"heads == {heads} and not out_proj and seed == 3").index
    rows.loc[lost, "status"] = "diverged"
    result = compare(rows, records=[of_study()])
    assert "undecided, since one variant diverged on 1 more seed" in words.interactions(result)[0]
    assert ("off − on" in words.interactions(result)[0]) == (heads == 8)
    assert result.interaction["at_few"].notna().all() == (heads == 8)


def test_the_interaction_of_a_tuned_study_is_that_at_the_own_rates():
    """Each cell has its own rate; runs at former rates, far off, play no part."""
    rows = of_projection(-0.2, np.random.default_rng(0), 8, sd=0.001)
    rows = rows.assign(phase="report", role="tuned", tuned="train.lr")
    cells_of = rows.groupby(["heads", "out_proj"], sort=False).ngroup()
    rows["lr"] = 0.01 + 0.001 * cells_of
    away = rows.assign(role="", lr=0.02, val_loss=rows["val_loss"] + 5 * cells_of)
    both = pd.concat([rows, away.assign(run_id="f" + away["run_id"].str[1:])])
    (found,) = compare(both, records=[of_study()]).interaction.to_dict("records")
    assert (found["diff"], found["at_few"]) == pytest.approx((-0.2, 0.3), abs=0.003)


def test_each_setting_of_all_else_has_its_interaction():
    rows = cells(
        *(
            ({"heads": heads, "out_proj": on, "steps": steps}, [2 + more, 2.2 + more, 2.1 + more])
            for steps in (100, 500)
            for heads in (1, 4)
            for on in (True, False)
            for more in [0.05 * (steps == 500 and heads == 4 and not on)]
        )
    )
    primary = [{"vary": "heads", "baseline": 1, "where": {"out_proj": on}} for on in (True, False)]
    found = compare(rows, records=[of_study(primary=primary)]).interaction.set_index("effect")["diff"]
    assert found.to_dict() == pytest.approx(
        {"heads=4 − heads=1 at steps=100": 0, "heads=4 − heads=1 at steps=500": 0.05}
    )


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


@pytest.mark.slow
def test_a_planted_interaction_is_seen_as_often_as_plan_promises():
    rng = np.random.default_rng(3)
    record = of_study()
    pilot = of_projection(0.0, rng, 200)
    planned, _ = seeds_needed(pilot, difference=0.02, records=[record], cores=2)
    noise, sd, seeds = planned[["noise", "sd", "seeds"]].to_numpy().tolist()[-1]
    assert noise == "of the interaction" and sd == pytest.approx(0.02, rel=0.15)  # of four runs with sd 0.01
    n = int(seeds)
    cells_SN = 0.01 * rng.standard_normal((2000, 4, n))
    values = 0.02 + cells_SN[:, 0] - cells_SN[:, 1] - cells_SN[:, 2] + cells_SN[:, 3]
    alone = stats.paired(values, np.zeros_like(values), margin=np.inf)["p"] < 0.05
    assert 0.76 <= alone.mean() <= 0.88
    (seen,) = compare(of_projection(0.02, rng, n), records=[record]).interaction.to_dict("records")
    assert seen["n"] == n and abs(seen["diff"] - 0.02) < 0.02
    assert seen["low"] < seen["diff"] < seen["high"]
