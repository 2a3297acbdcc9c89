"""Looks: where contrasts stand, which seeds follow, and that nothing on the way changes what is decided."""

import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from ablate import live
from ablate.analysis import looks, stats
from ablate.analysis.load import load
from ablate.analysis.looks import Case, stand
from ablate.analysis.stats import Judged
from ablate.compose.sweep import compose
from ablate.config.contrast import Contrast
from ablate.config.rules import ConfigError
from ablate.phrases import texts
from ablate.reporting.answers import lines as answer_lines
from ablate.store.record import PlannedLooks, StudyRecord
from ablate.store.store import Store, StoreError
from ablate.study import run as running
from ablate.study.config import Design, Overrides, seed_of
from ablate.study.growth import grown
from ablate.study.plan import ArmContrast, Plan
from ablate.study.run import Outcome
from tests.helpers import SIMULATED, call_cli, compared, make_record
from tests.test_compare import note, of_cells

AT = [4, 6, 8, 12]
ARMS = ("concat", "sum", "mean")
pytestmark = pytest.mark.usefixtures("two_seeds_decide")
RNG = np.random.default_rng(0)
SIDES = np.array([1.0, -1.0])


def decided(
    one: np.ndarray, base: np.ndarray, at: list[int] = AT, lost: Any = None, equal: Any = None, **given: Any
) -> Judged:
    lost = np.zeros(one.shape, bool) if lost is None else lost
    equal = [False] * len(one) if equal is None else equal
    each = zip(np.where(lost, np.nan, one), base, lost, equal, strict=True)
    cases = [Case(SIDES, np.array([v, b]), np.array([gone, ~gone & gone]), same) for v, b, gone, same in each]
    return stand(cases, **{"at": at, "k": len(one), "margin": 0.5, **given})


# --- where contrasts stand --------------------------------------------------------------------------


def test_the_level_is_spent_in_proportion_to_the_seeds():
    assert looks.spending([8, 12, 16, 24]) == pytest.approx([8 / 24, 4 / 24, 4 / 24, 8 / 24])
    assert looks.usual(24) == [8, 12, 16, 24] and looks.usual(48) == [8, 12, 16, 48] and not looks.usual(16)


def test_a_look_takes_all_results_of_its_seeds():
    one, base = RNG.normal(size=(1, 12)) + 9, RNG.normal(size=(1, 12))
    assert decided(one, base).seeds == [4]
    one[0, 3] = np.nan  # no result yet
    assert (decided(one, base).seeds, decided(one, base).decided) == ([0], [False])
    lost = np.zeros((1, 12), bool)
    lost[0, 3] = True  # it diverged, so it is not called better, worse remains
    assert decided(one, base, lost=lost).verdict == ["worse"]
    better = decided(-one, base, lost=lost)
    assert (better.verdict, better.seeds) == ([stats.UNDECIDED], [12])


def test_a_look_with_too_few_pairs_decides_nothing(monkeypatch):
    """One seed of six diverged on both sides: five clear differences wait for the look at eight."""
    monkeypatch.setattr("ablate.analysis.looks.FEWEST", 6)
    differences_KS = np.random.default_rng(0).normal(1, 0.1, (1, 8))
    differences_KS[0, 2] = np.nan
    values_PS = np.concatenate([differences_KS, 0 * differences_KS])
    for S, decided in ((6, False), (8, True)):
        case = Case(SIDES, values_PS[:, :S], np.isnan(values_PS[:, :S]))
        judged = stand([case], at=[6, 8], k=1, margin=0.02)
        assert (judged.seeds[0], judged.decided[0]) == (S, decided)


def test_differences_that_never_scatter_are_in_no_median():
    """Three contrasts are constant or equal by construction, two scatter by 1 and 3: the median is 2."""
    unit = np.tile([-1.0, 1.0], 4) / np.std([-1, 1] * 4, ddof=1)
    one = np.stack([np.zeros(8), np.full(8, 0.25), 9 * unit, unit, 3 * unit])
    equal = [False, False, True, False, False]
    now = decided(one, np.zeros((5, 8)), at=[8, 16], equal=equal, k=4)
    assert now.sd[3:].tolist() == pytest.approx([2, 3]) and np.isnan(now.low[:2]).all()
    assert now.decided.tolist() == [True, True, True, False, False]
    none = decided(np.zeros((2, 8)), np.zeros((2, 8)), at=[8, 16])
    assert none.decided.all() and none.verdict.tolist() == [stats.UNDECIDED] * 2


def test_what_is_equal_by_construction_or_never_differs_asks_for_no_seeds():
    one, base = RNG.normal(size=(2, 12)), RNG.normal(size=(2, 12))
    base[1] = one[1] - 0.25
    now = decided(one, base, equal=[True, False], k=1)
    assert now.decided.tolist() == [True, True] and now.seeds.tolist() == [4, 4]
    assert now.verdict.tolist() == [stats.UNDECIDED] * 2


def plan(*contrasts: str, arms: Sequence[str] = ARMS, equal: Sequence[str] = (), **given: Any) -> Plan:
    """Of arms by their fusion. contrasts: as `sum - concat`."""
    planned = [
        ArmContrast(one, [(1.0, (f"fusion={a}",)), (-1.0, (f"fusion={b}",))], one, one in equal)
        for one in contrasts
        for a, b in (one.split(" - "),)
    ]
    of = {"arms": {(f"fusion={arm}",): arm for arm in arms}, "metric": "val_loss", "margin": 0.5, "at": AT}
    return Plan(contrasts=planned, **{**of, "seeds": [*map(str, range(12))], **given})


def test_the_seeds_that_follow_by_hand():
    one = np.concatenate([RNG.normal(size=(1, 12)) + 19, RNG.normal(size=(1, 12)) * 3])
    one[1, 4:] = np.nan
    arms = [*ARMS, "gated"]  # which is in no contrast
    planned = plan("sum - concat", "mean - concat", arms=arms)
    values = np.concatenate([np.zeros((1, 12)), one, np.zeros((1, 12))])
    now = planned.stand(values, np.zeros((4, 12), bool))
    assert now.seeds.tolist() == [4, 4] and now.decided.tolist() == [True, False]
    assert [*planned.seeds_wanted(now, "now").values()] == [6, 4, 6, 4]
    assert [*planned.seeds_wanted(now, "most").values()] == [12, 4, 12, 4]


# --- which runs follow ------------------------------------------------------------------------------


def design() -> Design:
    levels = {"fusion": [*ARMS], "seed": [str(seed) for seed in range(12)]}
    return Design(levels, plan=plan("sum - concat", "mean - concat"))


def row_of(run: Overrides, losses: np.ndarray) -> dict[str, Any]:
    arm, seed = run[0].partition("=")[2], int(seed_of(run))
    return {"fusion": arm, "seed": seed, "status": "done", "val_loss": losses[ARMS.index(arm), seed]}


def recorded(at: Sequence[int] = AT, *, margin: float = 0.5, **given: Any) -> StudyRecord:
    """The record of a study of fusions with these looks."""
    seeds = [*range(at[-1])]
    return dataclasses.replace(
        make_record(metric="val_loss", margin=margin, seeds=seeds),
        primary=[Contrast(baseline={"fusion": "concat"})],
        looks=PlannedLooks(at=[*at], seeds=seeds, **given),
    )


def table_of(rows: list[dict[str, Any]]) -> pd.DataFrame:
    frame = pd.concat([of_cells([({**row}, [row["val_loss"]])]).assign(**row) for row in rows])
    frame["run_id"] = [f"{i:016x}" for i in range(len(frame))]
    return frame.reset_index(drop=True)


@pytest.mark.slow
@pytest.mark.parametrize("case", range(3))
def test_no_order_in_which_runs_end_changes_what_is_decided(case):
    """The same contrasts are decided at the same looks, by the proposals as by the comparison of their
    rows."""
    draws = random.Random(case)
    losses = np.random.default_rng(case).normal(size=(3, 12)) + np.array(
        [[0], [draws.choice([0, 2, 9])], [draws.choice([0, 1, 4])]]
    )
    study, calm = design(), dict[Overrides, dict]()
    while runs := study.propose(calm):
        calm |= {run: row_of(run, losses) for run in runs}
    busy = dict[Overrides, dict]()
    while runs := study.propose(busy) or [run for run, row in busy.items() if row["status"] == "running"]:
        begun = draws.sample(runs, draws.randint(1, len(runs)))
        busy |= {run: {"status": "running"} for run in begun}
        ended = draws.sample(begun, draws.randint(1, len(begun)))
        busy |= {run: row_of(run, losses) for run in ended}
    assert calm.keys() <= busy.keys()
    undisturbed, other = (study.standing(rows) for rows in (calm, busy))
    assert undisturbed and other
    for field in dataclasses.fields(Judged):
        np.testing.assert_array_equal(getattr(undisturbed, field.name), getattr(other, field.name))
    ended = [row for row in busy.values() if row["status"] == "done"]
    tables = []
    for rows in ([*calm.values()], ended):
        table = compared(table_of(rows), records=[recorded()]).table_of("planned").drop(columns="variant")
        tables.append(table.set_index("fusion").sort_index())
    pd.testing.assert_frame_equal(*tables)
    assert tables[0].loc[["sum", "mean"], "look"].tolist() == undisturbed.seeds.tolist()
    assert tables[0].loc[["sum", "mean"], "verdict"].tolist() == undisturbed.verdict.tolist()


def test_an_arm_that_is_decided_gets_no_more_seeds_and_the_baseline_goes_on():
    losses = np.random.default_rng(3).normal(size=(3, 12)) + np.array([[0], [9], [0.5]])
    study, rows, sizes = design(), dict[Overrides, dict](), list[int]()
    while runs := study.propose(rows):
        sizes.append(len(runs))
        assert (planned := study.planned(rows)) and len(runs) + planned.may_follow <= 36 - len(rows)
        rows |= {run: row_of(run, losses) for run in runs}
    assert sizes == [12, 4, 4, 8]  # three arms, then two: the other difference is at the margin
    assert (planned := study.planned(rows)) and planned.may_follow == 0


# --- what users type and read -----------------------------------------------------------------------


@pytest.fixture
def typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def dry_run(*words: str) -> Outcome:
        return running.run(compose([*words, *SIMULATED]), dry_run=True)

    return dry_run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("study=fusion", "study.looks=[8,4]"),
            r"study.looks=\[8,4\]: looks are numbers of seeds, each above",
        ),
        (
            ("study=fusion", "study.looks=[6,8]"),
            r"give study.looks=\[\] for a fixed design, or end it with 32",
        ),
        (
            ("study=fusion", "seeds.data=0,1"),
            "looks take seeds one after the other, and seeds.data crosses them",
        ),
    ],
)
def test_looks_that_cannot_be_are_refused(typed, words, message):
    with pytest.raises(ConfigError, match=message):
        typed(*words)


@pytest.mark.slow
def test_other_seeds_on_the_command_line_have_the_usual_looks(typed):
    assert typed("study=fusion").estimate.record.looks.at == [8, 12, 16, 32]
    assert typed("study=fusion", "seed=0,1,2").estimate.record.looks is None
    assert typed("study=fusion", "seed=range(0,40)").estimate.record.looks.at == [8, 12, 16, 40]
    assert typed("study=fusion", "study.looks=[]").estimate.runs == 128
    first = typed("study=fusion", "seed=range(0,12)", "study.looks=[6,12]").estimate
    assert (first.runs, first.how, first.in_all) == (24, "at most ", 48)


@pytest.mark.slow
def test_a_comparison_gives_the_repeated_interval_of_the_look_that_decided():
    losses = {"concat": [2.0, 2.1, 2.2, 2.05, 2.3], "sum": [3.1, 3.15, 3.25, 3.12, 9.9]}
    frame = of_cells(({"fusion": fusion}, values) for fusion, values in losses.items())
    record = recorded()
    result = compared(frame, records=[record])
    row: Any = result.table_of("planned").set_index("fusion").loc["sum"]
    test = scipy_stats.ttest_rel(losses["sum"][:4], losses["concat"][:4])
    low, high = test.confidence_interval(1 - 0.05 * (4 / 12))
    assert (row["low"], row["high"]) == pytest.approx((low, high))
    assert (row["verdict"], row["pairs"], row["look"], row["last_look"], row["n"]) == ("worse", 4, 4, 12, 5)
    assert row["p"] == pytest.approx(test.pvalue) and row["p_adjusted"] == pytest.approx(test.pvalue * 3)
    (_, sentence, *_) = answer_lines(result, [record])
    assert sentence.endswith("; decided at 4 of at most 12 seeds.")
    (_, words, *_) = answer_lines(compared(frame[frame["seed"] < 3], records=[record]), [record])
    assert words == "Nothing was tested: the first interim analysis is at 4 seeds."
    by_itself: Any = compared(frame).table.set_index("fusion").loc["sum"]
    assert by_itself["pairs"] == 5 and pd.isna(by_itself["look"])
    other = dataclasses.replace(record, name="other")
    both = compared(frame, records=[record, other])
    assert [one.look for one in both.findings] == [4, 4]  # each study by itself


def test_a_study_with_looks_keeps_its_levels_once_there_are_results():
    """Its three contrasts were judged at the level of three."""
    begun = dataclasses.replace(
        make_record(name="s", metric="val_loss", factors={"fusion": ["concat", "sum", "mean", "gated"]}),
        looks=PlannedLooks(at=AT, seeds=[*range(12)]),
    )
    for levels in (["concat", "sum", "mean", "gated", "grouped"], ["concat", "grouped"]):
        other = dataclasses.replace(
            begun, factors={"fusion": levels}, looks=PlannedLooks(at=AT, seeds=[*range(12)])
        )
        with pytest.raises(StoreError, match=r"name=s: fusion was \['concat', 'gated', 'mean', 'sum'\] when"):
            grown(begun, other)
        early = grown(begun, other, has_results=lambda study: False)
        assert (early.factors, early.looks) == (other.factors, other.looks)
        assert grown(early, other) == early  # which goes on
    turned = dataclasses.replace(begun, factors={"fusion": ["mean", "gated", "sum", "concat"]})
    assert grown(begun, turned).looks == begun.looks


def test_a_fixed_design_that_grew_after_results_says_so():
    """Fewer seeds than a verdict takes tell nobody whether more are wanted."""
    frame = of_cells(({"fusion": fusion}, RNG.normal(size=8)) for fusion in ("concat", "sum"))
    first = dataclasses.replace(make_record(name="s", metric="val_loss", seeds=[*range(6)]), runs=["a"])
    second = grown(first, dataclasses.replace(first, seeds=[*range(8)]))
    assert second.grew == [6, 8] and grown(second, second).grew == [6, 8]
    assert grown(first, dataclasses.replace(first, seeds=[*range(8)]), lambda study: False).grew == []
    assert "grew from 6 to 8 seeds" in note(compared(frame, records=[second]), "no longer hold together")
    assert not any("grew" in line for line in texts(compared(frame, records=[first]).notes))
    few = dataclasses.replace(first, seeds=[*range(5)])
    assert grown(few, dataclasses.replace(few, seeds=[*range(8)])).grew == []
    sweep = dataclasses.replace(first, metric=None)  # which nobody declared
    assert grown(sweep, dataclasses.replace(sweep, seeds=[*range(8)])).grew == [6, 8]
    develops = dataclasses.replace(first, seeds=[8, 9], declared={"develop": ["8", "9"]})
    assert grown(develops, dataclasses.replace(develops, seeds=[*range(10)])).grew == []


# --- studies through the command -----------------------------------------------------------------------

STUDY = ("run", "study=fusion", "train/simulated=losses", *SIMULATED[1:], "study.margin=0.03")
STUDY += ("train.steps=20", "train.simulated.step_ms=1", "seed=range(0,12)", "study.looks=[6,8,10,12]")


@pytest.fixture(scope="module")
def calm(tmp_path_factory) -> tuple[Path, str]:
    """A study that nothing disturbs, and what it printed."""
    directory = tmp_path_factory.mktemp("calm")
    done = call_cli(*STUDY, cwd=directory)
    assert done.returncode == 0, done.stderr
    return directory, done.stderr


@pytest.mark.slow
def test_a_study_says_what_each_look_decides(calm):
    directory, err = calm
    record = Store(directory / "runs").read_study("fusion")
    assert record and record.looks and record.family == 3
    decided = {one.seeds for one in record.looks.decided.values()}
    assert decided and decided <= {6, 8, 10, 12}
    table = pd.read_csv(directory / "runs/studies/fusion/results.csv")
    results = load([str(directory / "runs/studies/fusion")])
    result = compared(results.rows, records=results.records)
    primary = result.table_of("planned").dropna(subset="look")
    for row in map(dict[Any, Any], primary.to_dict("records")):
        name = f"fusion={row['fusion']} - fusion=concat"
        one = record.looks.decided.get(name)
        assert (
            (one.verdict, one.seeds) == (row["verdict"], row["look"])
            if one
            else row["verdict"] == "undecided"
        )
    for look in range(6, int(primary["look"].max()) + 1, 2):
        assert f"\n{look} seeds: " in err
    first = next(line for line in err.splitlines() if line.startswith("["))
    assert len(table) < 48 and " of at most 48 runs] " in first
    assert "; decided at " in "\n".join(answer_lines(result, results.records))
    now = live.look(Store(directory / "runs"), "fusion")
    assert now.is_over and now.line == f"{len(table)} done"
    again = call_cli(*STUDY, cwd=directory)
    assert again.returncode == 0 and " runs had finished before" in again.stderr
    assert len(pd.read_csv(directory / "runs/studies/fusion/results.csv")) == len(table)
    assert call_cli("report", "fusion", cwd=directory).returncode == 0
    page = (directory / "runs/studies/fusion/report.html").read_text(encoding="utf-8")
    assert "repeated confidence intervals" in page and "study.looks=[6,8,10,12]" in page
