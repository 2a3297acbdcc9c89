"""Advice: one command that helps, by what is known of the rows; nothing where nothing would."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import pytest

from ablate.analysis.compare import compare
from ablate.reporting.answers import answer, lines
from tests.helpers import call_cli, make_record
from tests.test_compare import table

PRIMARY = {"primary": [{"vary": "fusion", "baseline": "concat"}], "metric": "val_loss", "margin": 0.02}
TYPED = ["-m", "fusion=concat,sum", "train.steps=1000", "name=s"]
SIZE = {"steps": 1000, "wall_s": 30.0, "threads": 1, "lr": 0.01, "match": "none"}
NOISE = (0.05, -0.08, 0.06, -0.02, 0.0, 0.07, -0.04, -0.04)


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch):
    monkeypatch.setattr("ablate.reporting.follow_ups.available_cores", lambda: 2)


def concat_and_sum(seeds: int, apart: float, noise: Sequence[float] = NOISE, **columns: Any) -> pd.DataFrame:
    """Losses at these seeds, of which those of sum are so much higher, on average and but for noise."""
    return table(
        *({"seed": seed, "val_loss": 3 + seed / 10, **SIZE, **columns} for seed in range(seeds)),
        *(
            {
                "fusion": "sum",
                "seed": seed,
                "val_loss": 3 + seed / 10 + apart + noise[seed],
                **SIZE,
                **columns,
            }
            for seed in range(seeds)
        ),
    )


def advised(rows: pd.DataFrame, **of: Any) -> str:
    record = make_record(**{"seeds": [*range(rows["seed"].nunique())], "typed": TYPED, **of})
    return " ".join(answer(compare(rows, records=[record]), record).more)


@pytest.mark.slow
def test_what_a_study_named_waits_for_all_of_its_seeds():
    rows = concat_and_sum(4, 0.5)
    planned = [*rows["run_id"], "f" * 16]
    found = compare(rows, records=[make_record(seeds=[0, 1, 2, 3, 4], runs=planned, **PRIMARY)])
    (one,) = found.tested
    assert one.is_undecided and one.why == "the study is not finished: 4 of 5 seeds" and one.more_seeds == 1
    again = advised(rows, seeds=[0, 1, 2, 3, 4], runs=planned, **PRIMARY)
    assert again == "`ablate run -m fusion=concat,sum train.steps=1000 name=s` finishes the study first."
    whole = make_record(seeds=[0, 1, 2, 3], runs=[*rows["run_id"]], **PRIMARY)
    assert compare(rows, records=[whole]).tested[0].verdict == "worse"
    failed = rows.assign(status=["failed", *rows["status"][1:]])  # which has ended
    assert compare(failed, records=[whole]).tested[0].verdict == "worse"


@pytest.mark.slow
def test_too_few_seeds_come_to_no_verdict_but_for_what_was_named_beforehand():
    rows = concat_and_sum(3, 0.5)
    found = compare(rows)
    (one,) = found.tested
    assert one.low > found.margin and one.is_undecided and one.more_seeds == 3
    assert one.why == "too few seeds for a verdict, 3 of at least 6"
    assert "3 paired seeds, too few for a verdict (at least 6)" in " ".join(lines(found, []))
    assert advised(rows) == (
        "Too few seeds for a verdict, 3 of at least 6: `ablate run -m fusion=concat,sum train.steps=1000"
        " name=s 'seed=range(0,6)'`, about 2 min here."  # 6 runs of 30 s, two at a time
    )
    assert compare(rows, records=[make_record(**PRIMARY)]).tested[0].verdict == "worse"
    assert compare(concat_and_sum(6, 0.5)).tested[0].verdict == "worse"


@pytest.mark.slow
def test_what_is_decided_or_has_no_effect_asks_for_nothing():
    assert advised(concat_and_sum(8, 0.5)) == ""
    assert advised(concat_and_sum(8, 0.0, [0.0] * 8)) == ""


@pytest.mark.slow
def test_models_worse_than_counting_are_trained_for_longer_first():
    """Whether there are too few seeds or enough of them, and only if something is undecided."""
    behind = {"ngram_val_loss": 2.0, "ngram_order": 4}
    command = "`ablate run -m fusion=concat,sum train.steps=4000{} name=s-longer`, about {} min here"
    for seeds, more, minutes in (
        (3, " 'seed=range(6)'", 32),
        (8, "", 16),
    ):  # from the start with enough seeds
        found = advised(concat_and_sum(seeds, 0.03, **behind), runs=["a"] * 16)
        longer = command.format(more, minutes)
        assert (
            found == f"Train for longer before more seeds, as these models are worse than counting: {longer}."
        )
    often = advised(concat_and_sum(8, 0.03, **behind, epochs=2.0))
    assert "more seeds would decide it" in often and "longer" not in often  # as --why says: a longer text
    assert advised(concat_and_sum(8, 0.3, **behind)) == ""
    assert "longer" not in advised(concat_and_sum(8, 0.03, ngram_val_loss=5.0, ngram_order=4))


@pytest.mark.slow
def test_runs_that_are_elsewhere_or_of_another_version_are_made_anew():
    """To add seeds to them would take all of their seeds, and their times are of another machine."""
    rows, anew = (
        concat_and_sum(8, 0.03),
        "`ablate run -m fusion=concat,sum train.steps=1000 name=s` makes all",
    )
    for more in (advised(rows, is_copy=True), advised(rows.assign(status="stale"))):
        assert anew in more and " here" not in more
    assert advised(rows, is_copy=True, typed=[]) == ""


def test_nobody_is_advised_to_train_more_seeds_than_one_can():
    more = advised(concat_and_sum(8, 0.0005), margin=1e-9)
    assert more.startswith("It would take about ") and "more than one trains" in more and "`" not in more


def test_runs_that_share_no_seed_do_not_pair():
    rows = table({"val_loss": 3.0, "seed": 0}, {"fusion": "sum", "val_loss": 3.1, "seed": 1})
    assert "no two share a seed" in " ".join(lines(compare(rows), []))


def test_a_demonstration_leads_to_its_study():
    assert "`ablate run study=fusion heads=8` asks it properly" in advised(
        concat_and_sum(3, 0.3),
        demonstration=True,
        study="fusion",
        typed=["study=fusion", "size=demo", "study.looks=[]", "train.steps=9", "heads=8", "seed=0,1"],
        **PRIMARY,
    )


@pytest.mark.slow
def test_a_table_of_another_program_gets_a_number_of_seeds(tmp_path):
    rows = [
        f"{how},{seed},{3 + seed / 10 + (0.1 + seed / 500) * (how == 'ours')}"
        for how in ("base", "ours")
        for seed in range(4)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["method,seed,loss", *rows]))
    asked = ("--by", "method", "--metric", "loss", "--baseline", "method=base", "--lower-is-better")
    done = call_cli("compare", "t.csv", *asked, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "4 paired seeds, too few for a verdict (at least 6)" in " ".join(done.stdout.split())
    assert (
        "Too few seeds for a verdict, 4 of at least 6: add 2." in done.stdout and "worse" not in done.stdout
    )
