"""Tuned studies: what is run next, from simulated rows; what is compared; one study through the command."""

import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ablate.analysis.variants import distinguishing
from ablate.compose.sweep import compose
from ablate.config.rules import ConfigError
from ablate.execution.execute import execute
from ablate.launch.pool import WorkerPool
from ablate.phrases import texts
from ablate.store.columns import RESOURCE_COLUMNS, Row
from ablate.store.record import Choice, StudyRecord
from ablate.study import run as running
from ablate.study import tuned, tuning
from ablate.study.config import Overrides
from ablate.study.growth import grown
from ablate.study.study import read_declared
from ablate.study.tuning import minimum
from tests.helpers import QUICK, call_cli, compared, ignore, make_record
from tests.test_compare import ROW

LEFT_OUT: Row = {"status": "left out"}
DECLARED = {
    **{"kind": "tuned", "question": "?", "tune": "train.lr", "develop": [0, 1], "extend": 2},
    **{"factors": {"fusion": ["concat", "sum"], "train.lr": [0.001, 0.002, 0.004]}, "seeds": [100, 101]},
    **{"where": [], "primary": [{"vary": "fusion", "baseline": "concat"}], "metric": "test_loss"},
    **{"margin": 0.01},
}


def study(**changes) -> tuned.TunedDesign:
    """The design of a study without runs."""
    declared = read_declared({**DECLARED, **changes})
    assert isinstance(declared, tuned.Tuned)
    return declared.design(declared.levels)


ARMS = {
    "sum": {"fusion": "sum"},
    "rotate": {"fusion": "sum", "fusion.order": "rotate"},
    "concat": {"fusion": "concat"},
    "low": {"fusion": "concat", "out_rank": 8},
}


def test_every_named_arm_meets_every_combination_of_the_factors():
    design = study(factors={"heads": [2, 4], "train.lr": [0.001, 0.002, 0.004]}, arms=ARMS)
    assert len(design.arms) == 8
    assert {*map(design.name, design.arms)} == {f"{name} heads={heads}" for name in ARMS for heads in (2, 4)}


def at(one: Overrides) -> dict[str, str]:
    return dict(override.split("=") for override in one)


def test_a_study_says_its_phase_and_how_many_runs_there_are_about():
    design = study()  # 2 arms: 2 development seeds at 3 rates, then 2 seeds
    assert design.phase({}) == ("rates, round 1 (0.001 to 0.004)", "about ", 20)
    rows, names = dict[Overrides, Row](), list[tuple[str, str, int]]()
    of = parabolas(concat=0.002, sum=0.008)
    while proposed := design.propose(rows):
        at_work: dict[Overrides, Row] = {one: {"status": "running"} for one in proposed}
        phase = design.phase(rows | at_work)
        assert phase == design.phase(rows)  # it is the same whether its runs are proposed or at work
        names.append(phase)
        rows |= {one: of(one) for one in proposed}
    assert names == [
        ("rates, round 1 (0.001 to 0.004)", "about ", 20),
        ("rates, round 2 (0.001 to 0.008)", "about ", 20),
        ("rates, round 3 (0.001 to 0.016)", "about ", 24),
        ("reporting seeds", "", 24),
    ]
    assert len(rows) == 24
    steep = study(extend=0)
    rows = {one: parabolas(4, concat=0.002, sum=0.002)(one) for one in steep.propose({})}
    assert steep.phase(rows) == ("rates, round 2 (finer steps)", "about ", 24)


MILD = 0.09  # nats per squared octave, so that no half-octaves are tried


def parabolas(curvature: float = MILD, **optimum: float) -> Callable[[Overrides], Row]:
    """Losses with their minimum at this value of the rate, for each fusion (and number of heads, where
    there are several: sum4); a seed adds a constant."""

    def row(one: Overrides) -> Row:
        c = at(one)
        best = optimum[c["fusion"] + c.get("heads", "")]
        loss = 2 + curvature * math.log2(float(c["train.lr"]) / best) ** 2 + 0.01 * int(c["seed"])
        return {"status": "done", "val_loss": loss, "test_loss": loss + 0.5}

    return row


def run(
    study: tuned.TunedDesign, row: Callable[[Overrides], Row], rows: dict[Overrides, Row] | None = None
) -> dict[Overrides, Row]:
    """The rows of a whole study, begun from `rows`."""
    rows = dict(rows or {})
    while proposed := study.propose(rows):
        assert not set(proposed) & set(rows)
        rows |= {one: row(one) for one in proposed}
    return rows


def values(study: tuned.TunedDesign, rows: dict[Overrides, Row]) -> dict[str, str | None]:
    choices = study.found(rows).choices
    return {at(arm)["fusion"]: choice.value for arm, choice in choices.items()}


@pytest.mark.parametrize(
    ("first", "losses", "place", "doubt"),
    [
        (-1, [3, 1, 2], 1 / 6, ""),  # 1.5x² − 0.5x + 1
        (-3, [9, 1e3, 3, 1, 2, 50], 1 / 6, ""),  # only the points around the best decide
        (-2, [4, 1, 0, np.inf], 0, ""),  # x² falls to the last finite point; what diverged is not fitted
        (0, [1, 3, 4], 0, "the best of the grid: the curve around it is not convex"),
    ],
)
def test_the_minimum_of_a_parabola_by_hand(first, losses, place, doubt):
    x = first + np.arange(float(len(losses)))
    assert minimum(x, np.array(losses, float)) == (pytest.approx(place, abs=1e-9), doubt)


@pytest.mark.parametrize(
    ("losses", "value", "doubt"),
    [
        ([3, 1, 2], "0.002245", ""),  # 0.002·2^(1/6)
        ([4, 1, 0, math.inf], "0.004", ""),  # what diverged brackets
        ([math.inf, 1, math.inf], "0.002", "the best of the grid: a fit takes three finite points"),
        ([math.inf, math.inf], None, "no value: all of train.lr=0.001,0.002 diverged"),
        ([math.nan, math.nan], None, "no value: all of train.lr=0.001,0.002 can't be built"),
        ([1, 1, 1, math.inf], "0.002", "the best of the grid: the curve around it is not convex"),
    ],
)
def test_the_choice_of_a_value_by_hand(losses, value, doubt):
    grid = ["0.001", "0.002", "0.004", "0.008"][: len(losses)]
    assert tuning.choose(study().search, grid, losses) == Choice(value, doubt)


def test_develop_then_report_each_arm_at_its_own_value():
    s = study()
    rows = run(s, parabolas(concat=0.002, sum=0.0025))
    develop = [one for one in rows if int(at(one)["seed"]) < 100]
    assert len(develop) == 2 * 3 * 2 and list(rows)[: len(develop)] == develop
    assert values(s, rows) == {"concat": "0.002", "sum": "0.0025"}
    found = {(at(one)["fusion"], at(one)["train.lr"]): arms for one, arms in s.members(rows).items() if arms}
    assert found == {("concat", "0.002"): [("fusion=concat",)], ("sum", "0.0025"): [("fusion=sum",)]}
    assert {at(one)["seed"] for one in set(rows) - set(develop)} == {"100", "101"}


def test_an_edge_extends_the_grid_for_every_arm_up_to_a_limit():
    s = study()
    rows = run(s, parabolas(concat=0.002, sum=0.008))
    assert s.found(rows).points[("fusion=sum",)] == ["0.001", "0.002", "0.004", "0.008", "0.016"]
    grid = {at(one)["train.lr"] for one in rows if at(one)["fusion"] == "concat" and at(one)["seed"] == "0"}
    assert {"0.008", "0.016"} < grid and values(s, rows)["sum"] == "0.008"
    far = run(s, parabolas(concat=0.002, sum=1.0))
    now = s.found(far)
    assert [*now.points.values()] == [["0.001", "0.002", "0.004", "0.008", "0.016"]] * 2
    assert now.choices[("fusion=sum",)].doubt.startswith("not bracketed: train.lr=0.016")
    assert any("fusion=sum" in line and "not bracketed" in line for line in s.closing(far))


def test_a_steep_curve_is_fitted_through_half_octaves_beside_its_best_point():
    s = study()
    mild, steep = parabolas(concat=0.002, sum=0.0025), parabolas(0.3, concat=0.002, sum=0.0025)

    def lopsided(one: Overrides) -> Row:  # twice as steep above the best rate
        row, above = steep(one), max(0.0, math.log2(float(at(one)["train.lr"]) / 0.0025))
        return {key: value + 0.3 * above**2 if "loss" in key else value for key, value in row.items()}

    rows = run(s, lambda one: lopsided(one) if at(one)["fusion"] == "sum" else mild(one))
    points = s.found(rows).points
    assert points[("fusion=concat",)] == ["0.001", "0.002", "0.004"]
    assert points[("fusion=sum",)] == ["0.001", "0.001414", "0.002", "0.002828", "0.004"]
    assert abs(math.log2(float(values(s, rows)["sum"] or 0) / 0.0025)) < 0.08
    by_octaves, _ = minimum(np.arange(3.0), np.array([0.524, 0.031, 0.276]))  # of these losses
    assert abs(by_octaves - math.log2(2.5)) > 0.08
    edge = run(s, parabolas(0.3, concat=0.002, sum=1.0))
    assert max(float(at(one)["train.lr"]) for one in edge if int(at(one)["seed"]) < 100) == 0.016


@pytest.mark.parametrize("curvature", [MILD, 0.3])
def test_any_rows_lead_to_the_same_study_in_any_order(curvature):
    s = study()
    row = parabolas(curvature, concat=0.0004, sum=0.003)
    whole = run(s, row)
    rng = random.Random(0)
    for _ in range(30):
        some = rng.sample(sorted(whole), rng.randrange(len(whole)))
        again = run(s, row, {one: whole[one] for one in some})
        assert again == whole and s.members(again) == s.members(whole)
        shuffled = {one: whole[one] for one in rng.sample(sorted(whole), len(whole))}
        assert values(s, shuffled) == values(s, whole)


def test_what_cannot_be_built_is_left_out_and_nothing_extends_there():
    s = study()
    usual = parabolas(concat=0.002, sum=0.008)
    no_sum = run(s, lambda one: LEFT_OUT if at(one)["fusion"] == "sum" else usual(one))
    assert values(s, no_sum) == {"concat": "0.002"}
    below = run(s, lambda one: LEFT_OUT if float(at(one)["train.lr"]) > 0.005 else usual(one))
    now = s.found(below)
    assert [*now.points.values()] == [["0.001", "0.002", "0.004", "0.008"]] * 2
    assert now.choices[("fusion=sum",)].doubt.startswith("not bracketed")


def test_a_failed_development_run_is_waited_for():
    s = study()
    usual = parabolas(concat=0.002, sum=0.002)
    failed = run(s, lambda one: {"status": "failed"} if at(one)["train.lr"] == "0.002" else usual(one))
    assert len(failed) == 12 and "4 development runs have no result" in s.closing(failed)[0]
    healed = {one: row for one, row in failed.items() if row["status"] == "done"}
    assert values(s, run(s, usual, healed))["sum"] == "0.002"


def test_whole_numbers_end_at_one():
    """The best batch is 1, so nothing is below it: the grid ends there."""
    s = study(tune="train.batch", factors={"fusion": ["concat", "sum"], "train.batch": [1, 2, 4]})

    def row(one: Overrides) -> Row:
        return {"status": "done", "val_loss": math.log2(int(at(one)["train.batch"])) ** 2 + 1}

    rows = run(s, row)
    assert {at(one)["train.batch"] for one in rows} == {"1", "2", "4"}
    assert s.search.text(0.3) == "1"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seeds": [1, 100]}, "seed=1: a development seed"),
        ({"metric": "val_loss"}, "use test_loss"),
        ({"factors": {"fusion": ["concat"]}}, "study.tune=train.lr: it has no grid"),
        ({"factors": {"fusion": ["concat"], "train.lr": [0.001, 0.003]}}, "twice the one before"),
        ({"kind": "tuner"}, "did you mean tuned"),
    ],
)
def test_wrong_studies_are_one_line(changes, words):
    with pytest.raises(ConfigError, match=words):
        study(**changes)


def test_a_grown_study_keeps_runs_at_old_values_without_a_role():
    """More rates move the choice of two arms; the third, which was not asked for again, keeps its own."""

    def record(prefix: str, **values: str) -> StudyRecord:
        asked = study(factors={**DECLARED["factors"], "fusion": list(values)})
        rows = run(asked, parabolas(**{fusion: float(value) for fusion, value in values.items()}))
        roles, chosen = asked.roles(rows, {one: prefix + " ".join(one) for one in rows})
        return make_record(kind="tuned", runs=[*roles], roles=roles, chosen=chosen)

    def roles(record: StudyRecord, fusion: str) -> set[tuple[str, str]]:
        """With what their run_id begins with."""
        reporting = {run_id: of.role for run_id, of in record.roles.items() if of.phase == "report"}
        return {(run_id[:3], role) for run_id, role in reporting.items() if f"fusion={fusion} " in run_id}

    three = {"concat": "0.002", "sum": "0.0025", "mean": "0.003"}
    old = record("old", **three)
    assert roles(old, "mean") == {("old", "tuned")}
    same = grown(old, record("new", **three))
    assert roles(same, "sum") == {("old", "tuned"), ("new", "tuned")}
    moved = grown(old, record("new", concat="0.002", sum="0.0035"))
    assert roles(moved, "mean") == {("old", "tuned")}
    assert roles(moved, "sum") == {("old", ""), ("new", "tuned")}


# --- what compare makes of it -----------------------------------------------------------------------


def test_doubts_and_what_cannot_be_built_are_said():
    s = study(seeds=[100, 101, 102])
    rows = run(s, parabolas(concat=0.002, sum=0.0028))
    frame = pd.DataFrame(
        {**ROW, "run_id": f"{i:016x}", "fusion": at(one)["fusion"], "seed": int(at(one)["seed"]), **rows[one]}
        | {"phase": "report", "role": "tuned", "tuned": "train.lr", "lr": float(at(one)["train.lr"])}
        for i, (one, roles) in enumerate(s.members(rows).items())
        if roles
    )
    record = make_record(
        kind="tuned",
        metric="test_loss",
        declared={"tune": "train.lr"},
        chosen={"fusion=sum": Choice("0.0028", "not bracketed: …")},
        left_out={"fusion=mean": "too wide", "fusion=grouped": "too wide"},
    )
    notes = texts(compared(frame, records=[record]).notes)
    assert "fusion=sum: train.lr=0.0028: not bracketed: …" in notes
    assert "can't be built: fusion=mean: too wide" in notes


# --- fair arms --------------------------------------------------------------------------------------


def matched(fusion: str, match: str, losses: tuple[float, ...], **other) -> list[dict]:
    return [
        {
            **ROW,
            **{"fusion": fusion, "match": match, "d_model": 64},
            **{"mlp_hidden": 256, "run_id": f"{fusion}{match}{seed}", "seed": seed, "val_loss": loss},
            **other,
        }
        for seed, loss in enumerate(losses)
    ]


@pytest.mark.slow
def test_an_arm_meets_the_baseline_that_is_matched_as_it_is_or_the_only_one():
    rows = [
        *matched("concat", "none", (2.0, 2.1, 2.3)),
        *matched("sum", "none", (2.1, 2.3, 2.4)),
        *matched("sum", "params", (2.1, 2.2, 2.4), mlp_hidden=304),
    ]
    table = compared(pd.DataFrame(rows)).table.set_index(["fusion", "match"])
    assert table.loc[("sum", "params"), "diff"] == pytest.approx(0.1)
    own = matched("concat", "params", (1.0, 1.1, 1.3), mlp_hidden=290)
    table = compared(pd.DataFrame([*rows, *own])).table.set_index(["fusion", "match"])
    assert table.loc[("sum", "params"), "diff"] == pytest.approx(1.1)


# --- through the command ----------------------------------------------------------------------------

TUNED = (
    *("run", "study=tuned", "fusion=concat,sum", "train.lr=0.004,0.008,0.016", "study.develop=[0,1]"),
    *("seed=100,101", *QUICK),
)
SIMULATED = (*TUNED, "train/simulated=losses")


def rows_of(cwd: Path, name: str = "tuned") -> pd.DataFrame:
    rows = pd.read_csv(cwd / "runs" / "studies" / name / "results.csv")
    return rows.drop(columns=[*RESOURCE_COLUMNS, "threads", "study"])


@pytest.mark.slow
def test_a_tuned_study_that_was_interrupted(tmp_path, monkeypatch):
    whole, cut = (tmp_path / name for name in ("whole", "cut"))
    for cwd in (whole, cut):
        cwd.mkdir()
    dry = call_cli(*SIMULATED, "--dry-run", cwd=whole)
    assert dry.returncode == 0 and "12 runs first" in dry.stdout
    done = call_cli(*SIMULATED, cwd=whole)
    assert done.returncode == 0, done.stderr
    assert "fusion=sum: train.lr=" in done.stderr
    assert done.stdout.count("\nsum ") == done.stdout.count("\nconcat ") == 1  # at its own value only
    rows = rows_of(whole)
    assert set(rows["phase"]) == {"develop", "report"} and set(rows["tuned"]) == {"train.lr"}
    assert rows[rows["phase"] == "report"]["role"].tolist() == ["tuned"] * 4

    def four(pool: WorkerPool) -> None:
        for _ in range(4):
            execute(pool._queue.next()[0], ignore)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.chdir(cut)
        patch.setattr(WorkerPool, "train", four)
        running.run(compose(SIMULATED[1:]))
    assert rows_of(cut)["phase"].tolist() == ["develop"] * 4
    assert call_cli(*SIMULATED, cwd=cut).returncode == 0
    pd.testing.assert_frame_equal(rows_of(cut), rows)

    json_ = call_cli("compare", "tuned", "--format", "json", cwd=whole)
    primary = [row for row in json.loads(json_.stdout)["rows"] if row["family"] == "planned"]
    assert {row["fusion"]: row["n"] for row in primary} == {"concat": 2, "sum": 2}
    assert all(row["metric"] == "test_loss" for row in primary)


def test_arms_are_told_apart_by_what_they_set_and_not_by_the_rates_that_they_chose():
    table = pd.DataFrame(
        {
            "fusion": "concat",
            "heads": "8",
            "out_proj": ["true", "false", "false", "false"],
            "scale": ["inside", "inside", "both", "inside"],
            "lr": ["0.011", "0.012", "0.013", "0.014"],
            "tuned": "train.lr",
        }
    )
    columns = [*table.columns[:-1]]
    assert distinguishing(table, columns) == columns
    assert distinguishing(table[:3], columns) == columns[:-1]
    assert distinguishing(table.assign(tuned=""), columns) == [*columns[:3], "lr"]
