"""What a comparison may not say, one test for each wrong statement that readers once found."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ablate.reporting.answers import answer, lines
from ablate.store.record import StudyRecord
from ablate.study.growth import grown
from tests.helpers import ROOT, compared, make_record, with_contrasts
from tests.test_compare import of_cells

PRIMARY = [{"vary": "fusion", "baseline": "concat"}]


def drawn(*heads: int, seeds: int = 8, effect: float = 0.02) -> pd.DataFrame:
    """Concat, sum and mean with so many heads, whose losses scatter by 0.02; sum is worse by `effect`."""
    rng = np.random.default_rng(0)
    return of_cells(
        (
            {"fusion": fusion, "heads": h, "key_width": 64 // h, "lr": 0.01},
            3 + effect * (fusion == "sum") + rng.normal(0, 0.02, seeds),
        )
        for h in heads
        for fusion in ("concat", "sum", "mean")
    )


def study(rows: pd.DataFrame, **given) -> StudyRecord:
    """The record of a study that declared its fusions against concat and made these rows."""
    given = {"primary": PRIMARY, "metric": "val_loss", "margin": 0.01, "runs": [*rows["run_id"]], **given}
    return with_contrasts(make_record(**given), rows)


@pytest.mark.slow
def test_choosing_rows_changes_no_level_and_no_family():
    rows = drawn(2, 4, 8)
    record = study(rows)
    whole = {one.name: one for one in compared(rows, records=[record]).tested}
    part = compared(rows, records=[record], where=["heads=4", "fusion=concat,sum"]).tested
    assert [(one.is_planned, one.level) for one in part] == [(True, 1 - 0.05 / 6)]
    assert (part[0].low, part[0].verdict) == (whole[part[0].name].low, whole[part[0].name].verdict)
    fewer = compared(rows, records=[record], where=["seed<7"]).tested
    assert {one.is_planned for one in fewer} == {False}
    assert all(one.level >= whole[one.name].level for one in fewer)
    chosen = compared(rows, where=["heads=4"])  # of a sweep that named nothing
    assert "95 % confidence for these and 4 more together" in answer(chosen, []).trust
    assert {one.level for one in [*chosen.tested, *compared(rows).tested]} == {1 - 0.05 / 6}


@pytest.mark.slow
def test_contrasts_of_one_study_make_no_rows_of_another_named_beforehand():
    own, others = drawn(4), drawn(1).assign(run_id=lambda rows: rows["run_id"] + "-1")
    both = pd.concat([own, others], ignore_index=True)
    records = [study(own), make_record(name="other", metric="val_loss", runs=[*others["run_id"]])]
    found = compared(both, records=records)
    heads = {
        family: {one.variant.levels["heads"] for one in found.family(family)} for family in found.families
    }
    assert heads == {"planned": {"4"}, "exploratory": {"1"}}
    assert {one.level for one in found.family("exploratory")} == {1 - 0.05 / 4}  # as planned ones
    late = grown(None, study(own), ended=lambda: {*own["run_id"]})  # declared after a sweep had made all
    assert compared(own, records=[late]).families == ["exploratory"]


def test_of_two_studies_nobody_says_that_all_hold_together():
    two = [drawn(4, effect=1), drawn(8, effect=1).assign(corpus="b")]
    records = [study(rows, name=name) for rows, name in zip(two, "ab", strict=True)]
    found = compared(pd.concat(two, ignore_index=True), records=records)
    assert "95 % confidence for those of each study together" in answer(found, records).trust


@pytest.mark.slow
def test_whether_a_study_is_finished_does_not_depend_on_the_rows_that_are_shown():
    rows = drawn(4, 8, effect=1)
    half = study(rows, runs=[*rows["run_id"], "f" * 16], seeds=[*range(9)])
    for where in ([], ["heads=4"]):
        shown = compared(rows, records=[half], where=where)
        assert {(one.verdict, one.why) for one in shown.tested} == {
            ("undecided", "the study is not finished: 48 of 49 runs")
        }
    finished = compared(rows, records=[study(rows)], where=["seed<7"])
    assert not any("not finished" in line for line in lines(finished, [study(rows)]))


@pytest.mark.parametrize("metric", ["test_bleu", "val_loss", "params"])
def test_a_metric_without_a_twin_for_development_is_refused_before_anything_trains(metric, command):
    code, _, err = command("run", "study=tuned", f"study.metric={metric}")
    assert (code, err.count("\n")) == (2, 1) and f"study.metric={metric}: " in err


def test_what_the_program_and_its_studies_name_is_here():
    texts = [
        path.read_text("utf-8")
        for room in ("ablate", "configs")
        for path in (ROOT / room).rglob("*.[py]*")
        if path.suffix != ".pyc"
    ]
    pages = {name for text in texts for name in re.findall(r"docs/[\w/]+\.(?:md|csv)", text)}
    assert len(pages) > 10 and not [name for name in pages if not (Path(ROOT) / name).exists()]
