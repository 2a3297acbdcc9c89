"""What compare and the report say of a ladder: at each rung, as predicted or not, and how it came about."""

import functools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from ablate.analysis.compare import Comparison, compare
from ablate.analysis.ladder import LadderResult, shapes
from ablate.analysis.load import Results, Source
from ablate.phrases import texts
from ablate.reporting import cells, paper
from ablate.reporting.answers import brief_lines, lines
from ablate.reporting.charts import figures
from ablate.reporting.follow_ups import ON_LADDER
from ablate.reporting.html import _ladder
from ablate.reporting.ladder import details
from ablate.reporting.limits import Limit, limits
from ablate.reporting.page import Page, gather
from ablate.store.record import Predicted, StudyRecord
from tests.helpers import ROOT, make_record
from tests.synthetic import synthetic_ladder

CONSTANT = {"sum": lambda size: 0.07}


def read(*given, **options) -> tuple[Comparison, StudyRecord]:
    table, record = synthetic_ladder(*given, **options)
    return compare(table, records=[record]), record


@functools.cache
def constant() -> tuple[Comparison, StudyRecord]:
    return read(CONSTANT)


def ladder(comparison: Comparison) -> LadderResult:
    assert comparison.ladder
    return comparison.ladder


def predicted(record: StudyRecord) -> Predicted:
    assert record.prediction
    return record.prediction.of["sum"]


def answer(comparison: Comparison, record: StudyRecord) -> list[str]:
    return brief_lines(comparison, [record], comparison.notes)


def at_top(comparison: Comparison) -> str:
    """The difference at the top with its interval, as the sentence has it."""
    row = ladder(comparison).arms[0].steps.iloc[-1]
    return f"{row['diff']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"


@pytest.mark.slow
def test_what_is_decided_and_was_predicted_takes_a_sentence():
    comparison, record = constant()
    of = predicted(record)
    (first,) = answer(comparison, record)
    steps = ladder(comparison).arms[0].steps["diff"].iloc[:-1]
    assert first.startswith(
        "On pydoc: at 0.1, 0.2, 0.4 and 0.8 M parameters summing the heads costs"
        f" {steps.min():.3f} to {steps.max():.3f} nats against concatenating the heads; for 1.5 M it was"
        f" predicted to cost {of.difference:.3f} [{of.low:.3f}, {of.high:.3f}],"
        f" and does: {at_top(comparison)}."
    )
    assert "6 paired seeds, 95 % confidence for all 5 together. Predictions are intervals of 90 %." in first


def test_a_missed_prediction_is_said_to_be():
    comparison, record = read({"sum": lambda size: 0.07 if size < 4e5 else 0.12}, rungs=3)
    assert f", and missed: it costs {at_top(comparison)}." in answer(comparison, record)[0]


@pytest.mark.slow
def test_what_saves_and_what_turns_round():
    comparison, record = read({"mean": lambda size: 0.03 - 0.03 * np.log(size / 98_304)}, noise=0.001)
    said = answer(comparison, record)[0]
    assert "at 0.1 and 0.2 M parameters mean costs 0.00" in said and "perhaps within the margin" in said
    assert "; at 0.4 and 0.8 M it saves 0.01" in said and "it was predicted to save 0.028" in said
    assert ", and does: 0.05" in said


def test_what_is_undecided_is_said_to_be():
    comparison, record = read({"mean": lambda size: 0.0}, noise=0.02, seeds=3, rungs=3)
    said, more = answer(comparison, record)
    assert "whether mean costs or saves anything against concatenating the heads is undecided (" in said
    assert "it was predicted to differ by" in said and "was seen, within that, undecided." in said
    assert more.startswith("A ladder takes no more seeds; another with about ") and "seed=" not in more
    for text in (lines(comparison, [record]), comparison.table["verdict"]):
        assert not any("more seed would" in line or "more seeds would" in line for line in text)


@pytest.mark.slow
def test_rows_of_no_rung_and_of_unknown_shape_are_an_answer_too():
    """No run has a role, no variant is compared, no row says how wide its values are."""
    table, record = synthetic_ladder(CONSTANT, rungs=3)
    unplaced = replace(record, roles={})
    sizes = "98,304 to 442,368 parameters"  # those of all rungs
    assert sizes in {one.brief for one in limits(compare(table, records=[unplaced]), unplaced)}
    alone = compare(table[table["fusion"] == "concat"], records=[record])
    briefs = {one.brief for one in limits(alone, record)}
    assert sizes in briefs and not any(brief.startswith("unequal size") for brief in briefs)
    unknown = table.assign(value_width=np.nan)
    assert shapes(unknown, record).empty and {"arm", "rung", "d_model"} <= {*shapes(unknown, record).columns}
    comparison = compare(unknown, records=[record])
    assert not any("by construction" in line for line in details(comparison, ladder(comparison)))


@pytest.mark.slow
def test_another_ladder_with_more_seeds_is_a_command():
    comparison, record = read({"mean": lambda size: 0.004}, noise=0.003, seeds=4, rungs=3)
    (line,) = [line for line in lines(comparison, [record]) if line.startswith("A ladder takes no more")]
    assert "`ablate run study=ladder 'study.seeds_a_rung=[" in line and " name=ladder-more`" in line
    undecided = ladder(comparison).arms[0].steps.query("verdict == 'undecided'")
    counts = [4] * 3
    for at, need in zip(undecided["rung"], undecided["more_seeds"], strict=True):
        counts[at] += int(need)
    seeds = ",".join(map(str, range(104, 104 + max(counts))))  # fresh: 100 to 103 have runs at the top
    assert f"'study.seeds_a_rung=[{','.join(map(str, counts))}]' 'study.seeds=[{seeds}]'" in line


def test_equivalence_is_a_result_too():
    comparison, record = read({"mean": lambda size: 0.0}, noise=0.001, rungs=3)
    (said,) = answer(comparison, record)
    assert "mean and concatenating the heads differ by less than 0.01 (" in said
    assert said.partition(" was seen")[2].startswith(", within that, less than would matter.")


@pytest.mark.slow
@pytest.mark.parametrize("below, so_far", [(1, ""), (2, "So far r1 and r2 of 4")])
def test_a_ladder_under_way_says_where_it_is(below: int, so_far: str):
    comparison, record = read(CONSTANT, below=below, rungs=4)
    said, more = answer(comparison, record)
    assert more == "`ablate run study=ladder` goes on with it." and "seed=" not in more
    assert ("r4 (0.8 M) is predicted once every run below it has ended." in said) == bool(so_far)
    assert so_far in said
    assert ("for 0.8 M it is predicted to cost 0.0" in said) == (below == 1) == (", and not seen yet" in said)
    table = cells.short_table(comparison)
    assert [*table["rung"]][-1].startswith("r4" if below == 1 else "r2")
    assert not [note for note in texts(comparison.notes) if note.startswith("missing")]


def test_a_prediction_that_was_changed_counts_for_nothing():
    table, record = synthetic_ladder(CONSTANT, rungs=3)
    assert record.prediction
    forged = replace(record, prediction=replace(record.prediction, date="2020-01-01"))
    comparison = compare(table, records=[forged])
    (doubt,) = [note for note in comparison.notes if "was changed" in note.text]
    assert doubt.is_doubt and "counts for nothing" in doubt.text and "2020-01-01" in doubt.text
    (said,) = answer(comparison, forged)
    assert "at 0.1, 0.2 and 0.4 M" in said and "predicted to" not in said
    assert "Doubts: a prediction that was changed" in said
    assert not cells.short_table(comparison)["predicted"].any()


@pytest.mark.slow
def test_of_many_arms_three_sentences():
    many = {"sum": 0.07, "mean": 0.02, "max": 0.0, "weighted_sum": -0.02}
    comparison, record = read(
        {arm: lambda size, of=of: of + (0.1 if of == 0.02 and size > 4e5 else 0) for arm, of in many.items()},
        noise=0.001,
        rungs=3,
    )
    assert len(ladder(comparison).arms) == 4
    said = lines(comparison, [record])
    assert said[0].endswith(
        "of 4 arms against concatenating the heads at 0.4 M parameters: 2 worse, 1 equivalent, 1 better."
    )
    assert said[1].startswith("3 of 4 lie in the intervals predicted for them; missed: mean, +0.1")
    assert said[2].startswith("The largest: at 0.1 and 0.2 M parameters mean costs 0.0")
    table = cells.short_table(comparison)
    assert [*table.groupby("arm", sort=False).size()] == [3] * 4


def test_the_table_has_a_row_for_each_rung_and_the_prediction():
    comparison, record = constant()
    table = cells.short_table(comparison)
    assert [*table.columns] == ["arm", "rung", "n", "difference [low, high]", "predicted", "verdict"]
    assert [*table["rung"]] == ["r1 0.1 M", "r2 0.2 M", "r3 0.4 M", "r4 0.8 M", "r5 1.5 M"]
    of = predicted(record)
    assert [*table["predicted"]] == ["", "", "", "", f"[{of.low:.4f}, {of.high:.4f}]"]
    row = comparison.table.query("verdict == 'worse'").iloc[0]
    assert f"{row['diff']:+.4f} [{row['low']:.4f}, {row['high']:.4f}]" in {*table["difference [low, high]"]}


def test_why_says_how_it_came_about():
    comparison, record = constant()
    text = "\n".join(lines(comparison, [record]))
    assert "sum: train.lr 0.006 at r1 (tuned), 0.006 at r2 (tuned), 0.006 at r3 (predicted)" in text
    (arm,) = ladder(comparison).arms
    assert "sum: with twice the parameters its difference changes by" in text
    assert (
        "sum: heads 4 to 10; its heads together write into a space of rank 16 at every rung, of the 64 to"
        in text
    )
    assert "its heads" not in text.partition("\nconcat: heads 4 to 10")[2].splitlines()[0]
    assert arm.slope and arm.slope.low < 0 < arm.slope.high  # it is constant


def test_a_slope_is_by_doublings():
    comparison, _ = read({"sum": lambda size: 0.01 * np.log2(size / 98_304)}, noise=0.0005, rungs=3)
    (arm,) = ladder(comparison).arms
    assert arm.slope and arm.slope.value == pytest.approx(0.01, abs=0.001)
    assert arm.slope.low < 0.01 < arm.slope.high


def test_of_another_metric_nothing_was_predicted():
    table, record = synthetic_ladder(CONSTANT, rungs=3)
    assert compare(table, records=[record], metric="val_loss").ladder is None


@pytest.fixture(scope="module")
def page() -> Page:
    table, record = synthetic_ladder(
        {"sum": lambda size: 0.07, "mean": lambda size: 0.02 if size < 1e6 else 0.0}
    )
    return gather(Results(table, [Source(Path(), None, "ladder", stored=record)], []))


@pytest.mark.slow
def test_the_chart_has_the_rungs_the_band_and_the_held_out_point(page: Page):
    figure, losses = figures(page)[:2]
    assert [*figure.charts] == ["ladder-sum", "ladder-mean"] and figure.first
    data = figure.data[figure.data["arm"] == "sum"]
    assert [*data["what"]] == ["rung"] * 4 + ["top", "predicted"]
    of = predicted(page.subject.record)
    assert [*data[["diff", "low", "high"]].iloc[-1]] == [of.difference, of.low, of.high]
    assert [*data["parameters"].iloc[-2:]] == [1_536_000] * 2
    drawn = figure.charts["ladder-sum"]
    marks = [layer["mark"]["type"] for layer in drawn["layer"]]
    assert marks == ["rule", "area", "line", "rule", "point"]
    assert drawn["layer"][-1]["encoding"]["x"]["scale"]["type"] == "log"
    band = [*drawn["datasets"][drawn["layer"][1]["data"]["name"]]]
    assert [(point["low"], point["high"]) for point in band] == [
        (pytest.approx(data["diff"].iloc[3]), pytest.approx(data["diff"].iloc[3])),
        (of.low, of.high),
    ]
    points = drawn["datasets"][drawn["layer"][-1]["data"]["name"]]
    assert [point["what"] for point in points] == ["rung"] * 4 + ["top"]
    assert losses.key == "ladder-losses" and len(losses.data) == 3 * 5
    first = losses.data.query("arm == 'concat'").iloc[0]
    assert first["flops"] == 3 * 2 * 98_304 * 16 * 98_304


def test_a_report_has_the_ladder_and_its_table(page: Page):
    found = _ladder(page.comparison)
    assert found
    details, table = found
    assert table.names[:2] == ["arm", "rung"] and len(table.rows) == 10
    assert any("a space of rank 16" in line for line in details)
    assert "predicted" in page.answer.findings[0] and "missed" in page.answer.findings[1]
    assert "half an octave to either side" in page.methods and "were predicted" in page.methods
    assert not page.failures


@pytest.mark.slow
def test_limits_say_one_size_unless_it_is_a_ladder(page: Page):
    of_ladder = {limit.brief: limit for limit in page.limits}
    assert "98,304 to 1,536,000 parameters" in of_ladder
    assert not [brief for brief in of_ladder if "size" in brief]  # the params of a rung are equal, too
    (limit,) = _of_one_size("sum")
    assert limit.brief == "one size: 2 layers, 64 wide, 500 steps"
    assert limit.next.command == "ablate run study=ladder corpus=stdlib name=s-ladder"
    heads = _of_one_size("sum", heads=1)
    assert [limit.next.command for limit in heads] == [
        "ablate run -m corpus=stdlib model.layers=4 model.d_model=128 name=s-larger"
    ]
    assert "kind: ladder with these arms asks at several (docs/scale.md)" in heads[0].words


def _of_one_size(fusion: str, **columns) -> list[Limit]:
    """What a study of concat and of another fusion says of its size. columns: of the other one."""
    table, _ = synthetic_ladder({fusion: lambda size: 0.07}, rungs=3)
    table = table[table["d_model"] == 64]
    table.loc[table["fusion"] == fusion, "fusion_options"] = '{"order": "none"}'  # a default of its own
    table = pd.concat(
        [table.query("fusion == 'concat'"), table.query("fusion != 'concat'").assign(**columns)]
    )
    variants = [{"fusion": fusion, **columns}]
    primary = [{"baseline": {"fusion": "concat", "heads": 4}, "variants": variants}]
    record = make_record(primary=primary, metric="test_loss", typed=["-m", "corpus=stdlib"])
    comparison = compare(table, records=[record])
    assert comparison.ladder is None
    found = limits(comparison, record)
    return [limit for limit in found if limit.ask == "Does it hold at a larger size?"]


@pytest.mark.slow
def test_fusions_that_the_ladder_lacks_are_given_to_it():
    (limit,) = _of_one_size("lowest")
    assert "ablate run study=ladder 'study.arms.lowest={fusion: lowest}' corpus=stdlib" in limit.next.command
    text = (ROOT / "configs" / "study" / "ladder.yaml").read_text(encoding="utf-8")
    assert {*ON_LADDER} == {arm["fusion"] for arm in yaml.safe_load(text)["study"]["arms"].values()}


def test_a_table_for_a_paper_has_a_column_for_each_rung(page: Page):
    table = paper.by_variant(page.comparison)
    names = ["arm", "0.1 M", "0.2 M", "0.4 M", "0.8 M", "1.5 M predicted", "1.5 M"]
    assert [*table.frame.columns] == names and [*table.frame["arm"]] == ["sum", "mean"]
    of = predicted(page.subject.record)
    assert table.frame["1.5 M predicted"].iloc[0] == f"[{of.low:.3f}, {of.high:.3f}]"
    row = ladder(page.comparison).arms[0].steps.iloc[0]
    assert table.frame["0.1 M"].iloc[0] == f"{row['diff']:+.3f} [{row['low']:.3f}, {row['high']:.3f}]†"
    assert r"arm & 0.1 M & 0.2 M & 0.4 M & 0.8 M & 1.5 M predicted & 1.5 M \\" in paper.latex(table)
    assert "Predicted: 90 % intervals, made before a run of that size began." in table.caption
