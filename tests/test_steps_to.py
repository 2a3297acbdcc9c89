"""Steps to a loss: hand-worked crossings, the loss of a baseline, and runs that never come to it."""

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ablate.analysis.compare import Comparison, compare, effects_of
from ablate.analysis.speed import first_reached, with_steps_to
from ablate.config.rules import ConfigError
from ablate.reporting.words import caption, for_reading, sentences
from tests.helpers import make_record
from tests.synthetic import small_study
from tests.test_compare import CONCAT, MEAN, SUM, by_fusion, diverged, note, table, variant


@pytest.mark.parametrize(
    "loss, step",
    [(5.0, 0), (4.0, 0), (3.0, 5), (2.25, 8.75), (2.0, 10), (1.75, 55), (1.5, 60), (1.0, math.inf)],
)
def test_where_a_curve_first_is_so_low_by_hand(loss, step):
    """It is at 4, 2, 2.5, 1.5 after 0, 10, 40, 60 steps: at 2.25 three times, of which the first counts."""
    steps, losses = np.array([0.0, 10, 40, 60]), np.array([4.0, 2, 2.5, 1.5])
    assert first_reached(steps, losses, loss) == pytest.approx(step)


def test_a_curve_that_begins_below_is_there_at_its_first_step():
    assert first_reached(np.array([7.0, 14]), np.array([1.0, 0.5]), 2.0) == 7


def curves(rows: pd.DataFrame) -> pd.DataFrame:
    """Straight lines from 4 nats at step 0 to the final loss of each run at step 100."""
    ends = zip(rows["run_id"], rows["val_loss"], strict=True)
    found = [(run_id, step, 4 + step / 100 * (loss - 4)) for run_id, loss in ends for step in (0, 50, 100)]
    return pd.DataFrame(found, columns=["run_id", "step", "val_loss"])


def steps_by_hand(target: str, *rows: dict, **question) -> tuple[Comparison, str, str]:
    """The comparison, the line beside it, and the column's name."""
    given = table(*rows)
    new, column, line = with_steps_to(given, curves(given), target, **question)
    asked: Any = {**question, "metric": column}
    return compare(new, **asked), line, column


FIRST = variant((2.0, 2.2, 2.4, 2.0), **CONCAT)  # 2.5 after 75, 83.3, 93.75 and 75 steps
FASTER = variant((1.0, 1.5, 1.25, 1.6), **SUM)  # after 50, 60, 54.5 and 62.5


def test_steps_by_hand():
    result, line, column = steps_by_hand("2.5", *FIRST, *FASTER)
    assert (column, result.metric) == ("steps_to_2.5", "steps_to_2.5")
    assert line == "steps_to_2.5: the step at which val_loss of metrics.csv first is 2.5 or less"
    concat, faster = (by_fusion(result)[name] for name in ("concat", "sum"))
    by_hand = {"concat": (75, 250 / 3, 93.75, 75), "sum": (50, 60, 600 / 11, 62.5)}
    assert [concat["mean"], faster["mean"]] == pytest.approx([np.mean(steps) for steps in by_hand.values()])
    difference = np.subtract(by_hand["sum"], by_hand["concat"])
    assert faster["diff"] == pytest.approx(difference.mean()) and faster["verdict"] == "better"
    assert faster["sd_diff"] == pytest.approx(difference.std(ddof=1))
    assert np.isnan(faster["margin"]) and np.isnan(faster["ratio"]) and (faster["n"], concat["n"]) == (4, 4)
    assert "without --margin, so none is called equivalent" in caption(result, "exploratory")
    assert sentences(result)[0].startswith("sum is better than concat (heads=4, out_proj=true) by 25.0")
    assert " steps [" in sentences(result)[0]
    assert not any("lower, the better" in note or "never" in note for note in result.notes)


def test_a_margin_is_in_steps_and_a_studys_is_not():
    rows = table(*FIRST, *variant((2.01, 2.19, 2.41, 1.99), **MEAN))
    new, column, _ = with_steps_to(rows, curves(rows), "2.5")
    study = make_record(primary=[{"vary": "fusion", "baseline": "concat"}], metric="val_loss", margin=0.01)
    planned = compare(new, metric=column, records=[study])
    assert planned.families == ["exploratory"]  # nobody named steps beforehand
    assert by_fusion(planned)["mean"]["verdict"] == "undecided"
    given = compare(new, metric=column, margin=5)
    assert by_fusion(given)["mean"]["verdict"] == "equivalent"
    assert "margin 5 steps" in caption(given, "exploratory")


def test_runs_that_never_get_there_are_told_and_flatter_nobody():
    result, *_ = steps_by_hand("2.5", *FIRST, *FASTER[:3], {**FASTER[3], "val_loss": 2.9})
    row = by_fusion(result)["sum"]
    assert (row["n"], row["diverged"], row["verdict"], row["best"]) == (3, 1, "undecided", False)
    assert row["high"] < 0 and np.isnan(row["mean"]) and np.isnan(row["sd"])
    assert row["why"] == "it missed that loss on 1 more seed than its baseline"
    assert result.table["fusion"].tolist() == ["concat", "sum"]  # no mean comes last
    assert "3 + 1 never reach it" in for_reading(result, "exploratory")["n"].tolist()
    told = "fusion=sum heads=4 out_proj=true: 1 of 4 runs never reach 2.5; it has no mean, and is compared"
    assert note(result, told)


def test_a_baseline_that_gets_there_less_often_is_not_flattered_either():
    """At one seed concat never is at 2.3; at the others sum takes 5 to 7.4 steps more."""
    slower = variant((2.15, 2.29, 2.0, 2.16), **SUM)
    result, *_ = steps_by_hand("2.3", *FIRST, *slower)
    row = by_fusion(result)["sum"]
    assert (row["pairs"], row["verdict"]) == (3, "undecided") and row["low"] > 0
    assert row["why"] == "its baseline missed that loss on 1 more seed than it"


def test_a_diverged_run_never_gets_there_even_if_it_did_before():
    stale = diverged(**CONCAT, seed=4) | {"status": "stale"}
    rows = table(*FIRST, *FASTER[:3], diverged(**SUM, seed=3), stale)
    metrics = curves(rows.assign(val_loss=rows["val_loss"].fillna(1.0).astype(float)))
    new, column, _ = with_steps_to(rows, metrics, "2.5")
    result = compare(new, metric=column)
    assert result.table.set_index("fusion")["diverged"].to_dict() == {"concat": 1, "sum": 1}
    assert sum("1 of" in note and "never reach 2.5" in note for note in result.notes) == 2


def test_how_often_a_run_is_looked_at_makes_a_variant():
    """It decides what lies between two evaluations."""
    rows = [{**row, "eval_every": every} for every in (50, 100) for row in (*FIRST, *FASTER)]
    result, *_ = steps_by_hand("2.5", *rows)
    assert len(result.table) == 4 and result.table["pairs"].dropna().tolist() == [4, 4]


def test_a_run_without_its_metrics_is_named():
    rows = table(*FIRST, *FASTER)
    new, column, _ = with_steps_to(rows, curves(rows.iloc[:-1]), "2.5")
    result = compare(new, metric=column)
    assert by_fusion(result)["sum"]["n"] == 3
    assert "seed=3" in note(result, "no steps_to_2.5")


# --- the loss of the baseline -----------------------------------------------------------------------


def test_the_loss_of_the_baseline_is_one_that_all_of_its_runs_reach():
    """2.4 after 80, 88.9, 100 and 80 steps; the mean of the final losses, 2.15, two of four never reach."""
    result, line, column = steps_by_hand("baseline", *FIRST, *FASTER)
    assert column == "steps_to_2.4" and by_fusion(result)["concat"]["n"] == 4
    assert by_fusion(result)["concat"]["mean"] == pytest.approx((80 + 800 / 9 + 100 + 80) / 4)
    assert line.endswith("2.4 or less, which every run of fusion=concat heads=4 out_proj=true reaches")
    turned, line, column = steps_by_hand("baseline", *FIRST, *FASTER, baseline={"fusion": "sum"})
    assert column == "steps_to_1.6" and by_fusion(turned)["concat"]["n"] == 0
    assert by_fusion(turned)["concat"]["why"] == "no paired seed"


def test_the_loss_of_the_baseline_is_rounded_so_that_all_still_reach_it():
    _, _, column = steps_by_hand("baseline", *variant((2.0, 2.34561), **CONCAT), *FASTER[:2])
    assert column == "steps_to_2.3457"


def test_several_baselines_have_no_one_loss():
    rows = [{**row, "heads": heads} for heads in (4, 8) for row in (*FIRST, *FASTER)]
    with pytest.raises(ConfigError, match=r"baseline: there are 2 \(fusion=concat heads=4 .*; choose with"):
        steps_by_hand("baseline", *rows)
    _, line, _ = steps_by_hand("baseline", *rows, where=["heads=8"])
    assert "heads=8" in line
    with pytest.raises(ConfigError, match="baseline: there is none"):
        steps_by_hand("baseline", *FIRST)


def test_a_baseline_without_its_metrics_has_no_loss():
    rows = table(*FIRST, *FASTER)
    with pytest.raises(ConfigError, match="none of the runs of fusion=concat heads=4 out_proj=true has its"):
        with_steps_to(rows, curves(rows[rows["fusion"] == "sum"]), "baseline")


def test_the_primary_contrasts_say_which_is_the_baseline():
    rows = table(*({**row, "heads": heads} for heads in (4, 8) for row in (*FIRST, *FASTER)))
    entry = {"vary": "fusion", "baseline": "concat", "where": {"heads": 8}}
    *_, line = with_steps_to(rows, curves(rows), "baseline", [make_record(primary=[entry])])
    assert line.endswith("which every run of fusion=concat heads=8 out_proj=true reaches")


@pytest.mark.parametrize(
    "target, message",
    [
        ("fast", "--steps-to fast: give a validation loss in nats, such as 1.5, or baseline"),
        ("-1", "--steps-to -1: give a validation loss"),
        ("nan", "--steps-to nan: give a validation loss"),
        ("0.5", "--steps-to 0.5: no run reaches it; the lowest val_loss is 1.0000; give more"),
    ],
)
def test_a_loss_that_will_not_do(target, message):
    with pytest.raises(ConfigError, match=message):
        steps_by_hand(target, *FIRST, *FASTER)


def test_effects_count_steps_too():
    rows = table(*FIRST, *FASTER[:3], {**FASTER[3], "val_loss": 3.0})
    new, column, _ = with_steps_to(rows, curves(rows), "2.5")
    effects, notes = effects_of(new, metric=column)
    assert (effects["n"].tolist(), effects["metric"].tolist()) == ([3], [column])
    assert any("1 of 4 runs never reach 2.5" in note for note in notes)


# --- the command ------------------------------------------------------------------------------------


def test_the_command_finds_the_curves_where_the_runs_lie(command, tmp_path):
    """A curve of synthetic.py is its final loss + 1.2·(1 − step/500)², seen every 100 steps from 100 on."""
    store = small_study(tmp_path / "runs", seeds=5, diverging=[9])
    code, out, err = command("compare", "synthetic", "--steps-to", "2.1", "--format", "json")
    concat, summed = (next(r for r in json.loads(out) if r["fusion"] == name) for name in ("concat", "sum"))
    final = [row["val_loss"] for row in store.study_rows("synthetic") if row["fusion"] == "concat"]
    grid = np.array([100.0, 200, 300, 400, 500])
    above = [np.interp(-2.1, -(loss + 1.2 * (1 - grid / 500) ** 2), grid) for loss in final]
    assert code == 0 and concat["mean"] == pytest.approx(np.mean(above))
    assert (summed["n"], summed["diverged"], summed["metric"]) == (4, 1, "steps_to_2.1")
    assert "steps_to_2.1: the step at which val_loss" in err and "1 of 5 runs never reach 2.1" in err
    assert command("compare", "synthetic", "--steps-to", "baseline", "--by", "fusion", "--effects")[0] == 0
    (tmp_path / "elsewhere.csv").write_text(store.write_results("synthetic").read_text(encoding="utf-8"))
    assert command("compare", "elsewhere.csv", "--steps-to", "2.1")[0] == 0  # the runs are those below
    (tmp_path / "runs").rename(tmp_path / "gone")
    code, out, err = command("compare", "elsewhere.csv", "--steps-to", "2.1")
    assert (code, out) == (2, "") and err.startswith("ablate: --steps-to 2.1: none of these runs has its")
    code, _, err = command("compare", "elsewhere.csv", "--steps-to", "2.1", "--metric", "val_loss")
    assert code == 2 and "is a metric itself; leave --metric out" in err and err.count("\n") == 1
