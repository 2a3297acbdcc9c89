"""Contrasts of a study by the names of its arms."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ablate.analysis.contrasts import Weighed
from ablate.analysis.variants import Variant
from ablate.compose.sweep import compose
from ablate.config.rules import ConfigError
from ablate.reporting import answers
from ablate.reporting.cells import contrast_table
from ablate.store.record import PlannedContrast, Side, StudyRecord, as_plain, read_record
from ablate.study.growth import grown
from ablate.study.study import Study
from tests.helpers import compared, make_record
from tests.test_compare import of_cells

SMALL = ("corpus=grammar", "corpus.characters=5000", "model.context=16", "heads=8")
ARMS = {
    "concat": {"fusion": "concat"},
    "sum": {"fusion": "sum"},
    "sum_matched": {"fusion": "sum", "match": "params"},
    "groups 2": {"fusion": "grouped", "fusion.groups": 2},
    "groups 4": {"fusion": "grouped", "fusion.groups": 4},
    "rank": {"fusion": "concat", "out_rank": 16},
    "gated": {"fusion": "gated"},
    "static": {"fusion": "gated", "fusion.input": "static"},
    "wide": {"fusion": "concat", "model.mlp_hidden": 512},
    "nano": {"model": "nano"},
    "broad": {"model.d_model": 128},
    "usual": {"fusion": "concat", "scale": "inside"},
}


def study(*primary: Any, arms: Any = ARMS, **keys: Any) -> Study:
    sweep = compose(["-m", *SMALL])
    block = {"kind": "grid", "question": "?", "factors": {}, "arms": arms, "seeds": [0, 1]}
    block |= {"metric": "val_loss", "primary": [*primary], **keys}
    return Study(replace(sweep, study=block))


def named(of: Study) -> list[list[tuple[float, str]]]:
    """The sides of each contrast, by the names of arms."""
    plan = of.design.plan
    assert plan
    return [[(weight, plan.arms[arm]) for weight, arm in one.sides] for one in plan.contrasts]


@pytest.mark.slow
def test_a_contrast_by_names_is_of_these_arms_alone():
    of = study("sum_matched - concat", "rank - groups 4", {"vary": "fusion", "baseline": "concat",
               "where": {"fusion": ["concat", "gated"], "match": "none"}})  # fmt: skip
    assert named(of) == [
        [(1, "sum_matched"), (-1, "concat")],
        [(1, "rank"), (-1, "groups 4")],
        [(1, "gated"), (-1, "concat")],
        [(1, "static"), (-1, "concat")],
    ]
    runs = of.ready(of.design.propose({}))
    ids = {overrides: run.run_id for overrides, run in runs.items()}
    record = of.record(runs, {}, ids)
    assert read_record(as_plain(record)) == record and record.family == 4
    first, second = record.contrasts[0].sides
    assert (first.weight, first.arm, len(first.runs)) == (1, "sum_matched", 2)
    of_concat = {ids[run] for run in ids if of.design.name(of.design.arm_of(run)) == "concat"}
    assert {*second.runs} == of_concat
    assert as_plain(record)["primary"][0] == {"arms": "sum_matched - concat"}


@pytest.mark.slow
def test_a_sum_of_arms_is_a_contrast_like_others():
    of = study("0.5*sum + 0.5*sum_matched - concat", "sum - concat - gated + static")
    assert not Weighed("", [(0.5, 0), (0.5, 1), (-0.5, 2), (-0.5, 3)]).is_crossed  # means of two arms
    halves = [(0.5, "sum"), (0.5, "sum_matched"), (-1, "concat")]
    assert named(of) == [halves, [(1, "sum"), (-1, "concat"), (-1, "gated"), (1, "static")]]
    losses = {"sum": [2.0, 2.3], "sum_matched": [2.2, 2.1], "concat": [2.0, 2.1]}
    rows = of_cells(({"fusion": name, "form": name}, values) for name, values in losses.items())
    sides = [
        Side(weight, name, rows.loc[rows["fusion"] == name, "run_id"].tolist()) for weight, name in halves
    ]
    planned = PlannedContrast(name="both - concat", sides=sides)
    result = compared(rows, records=[make_record(metric="val_loss", contrasts=[planned])])
    named_by = contrast_table(result, "planned", long=True)["variant"]  # no arm's name
    assert named_by.tolist() == ["concat", "both - concat"]
    found = result.findings[0]
    # The halves of 2.0 + 2.2 less 2.0, and of 2.3 + 2.1 less 2.1: 0.1 and 0.1.
    assert (found.name, found.diff, found.pairs) == ("both - concat", pytest.approx(0.1), 2)
    assert found.differences == pytest.approx([0.1, 0.1])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("sum_mached - concat", r"sum_mached is no arm; did you mean sum_matched\?"),
        ("sum - sum", "sum - sum: write an entry as .* by the names of two arms, as sum - concat"),
        ("sum", "sum: write an entry as .* by the names of two arms, as sum - concat"),
        ("0.5*sum - concat", "by the names of two arms"),
        ("usual - concat", "usual - concat: both arms are the same; name another one"),
    ],
)
def test_what_is_no_contrast_by_names_is_refused_in_a_line(names, message):
    with pytest.raises(ConfigError, match=message) as refused:
        study(names)
    assert str(refused.value).startswith("study.primary: ") and "\n" not in str(refused.value)


@pytest.mark.slow
def test_a_contrast_of_an_arm_that_can_not_be_built_is_left_out():
    arms = {**ARMS, "groups 3": {"fusion": "grouped", "fusion.groups": 3}}
    of = study("groups 3 - concat", "sum - concat", arms=arms)
    of.ready(of.design.propose({}))
    of.check_primary()
    assert "groups=3" in of.left_out[0] and "2 of 26 runs left out" in of.left_out[0]
    assert of.left_out[1].startswith("study.primary: groups 3 - concat: no two runs of this study differ so")
    assert len(of.left_out) == 2


def test_a_contrast_is_named_beforehand_if_it_stood_before_the_second_of_its_arms_had_results():
    def record(*sides: list[str]) -> StudyRecord:
        contrast = PlannedContrast(name="a - b", sides=[Side(1, "a", sides[0]), Side(-1, "b", sides[1])])
        return make_record(metric="val_loss", contrasts=[contrast])

    def beforehand(old: StudyRecord | None, new: StudyRecord, ended: set[str]) -> bool:
        return grown(old, new, ended=lambda: ended).contrasts[0].beforehand

    first = record(["1"], ["2"])
    assert beforehand(None, first, set()) and beforehand(None, first, {"1"})
    assert not beforehand(None, first, {"1", "2"})  # a sweep had made both
    late = grown(None, first, ended=lambda: {"1", "2"})
    assert not beforehand(late, record(["1", "3"], ["2", "4"]), set())
    kept = grown(grown(None, first), record(["3"], ["4"]), ended=lambda: {"1", "2"})
    assert kept.contrasts[0].beforehand and kept.contrasts[0].sides[0].runs == ["1", "3"]
    unknown = record([], [])  # of a tuned study, before values are chosen
    assert not beforehand(grown(None, unknown), first, {"1", "2"})


def test_a_study_of_several_texts_compares_within_each():
    rows = of_cells(
        (
            {
                "fusion": fusion,
                "corpus": text,
                "corpus_sha256": f"{text}-hash",
                "tokenizer": tokenizer,
                "vocab": size,
            },
            [level + seed / 10 + (fusion == "sum") * (apart + seed / 50) for seed in range(6)],
        )
        for text, tokenizer, size, level, apart in (
            ("stdlib", "bpe", 1024, 3.0, 0.2),
            ("grammar", "char", 30, 0.5, -0.2),
        )
        for fusion in ("concat", "sum")
    )
    study = make_record(factors={"fusion": ["concat", "sum"], "corpus": ["stdlib", "grammar"]})
    found = compared(rows, records=[study])
    apart = {one.variant.levels["corpus"]: one for one in found.tested}
    assert apart.keys() == {"stdlib", "grammar"} and apart["stdlib"].diff > 0 > apart["grammar"].diff
    assert all(one.variant.differing(one.baseline) == ["fusion"] for one in found.tested)
    assert "corpus=grammar" in " ".join(answers.answer(found, []).findings)
    other = compared(rows, baseline={"corpus": "stdlib", "fusion": "concat"})  # losses of two texts
    assert len(other.tested) == 1 and "different texts" in answers.doubts(other.notes)
    assert "different texts" not in answers.doubts(found.notes)


# --- a difference at two levels, and what is found by itself ------------------------------------------


def losses(*cells: dict[str, Any]) -> Any:
    return of_cells(
        (cell, [3 + at * at / 10 + seed * (at + 1) % 5 / 100 for seed in range(6)])
        for at, cell in enumerate(cells)
    )


BOTH = [{"fusion": fusion, "layers": layers} for fusion in ("concat", "sum") for layers in (2, 10)]


def test_a_difference_is_compared_between_each_two_levels():
    found = compared(losses(*BOTH, {"fusion": "mean", "layers": 3}), within="model.layers")
    (one,) = found.findings
    assert not [note for note in found.notes if "no baseline" in note.text]
    assert one.sides() == ("sum - concat layers=10", "sum - concat layers=2")
    assert one.pairs == 6 and one.diff == pytest.approx((0.9 - 0.1) - (0.4 - 0.0))
    half = 3.16338 * (0.001 / 5 / 6) ** 0.5  # t(5) at 1 - 0.025/2; squares of 0, 2, -1, 1, -2, 0 hundredths
    assert contrast_table(found)["at this level"][0] == f"+0.4000 [{0.4 - half:.4f}, {0.4 + half:.4f}]"
    grid = [{"heads": heads, "layers": layers} for heads in (2, 4) for layers in (1, 2)]
    (one,) = compared(losses(*grid), within="heads").findings
    assert one.sides() == ("heads=4 layers=1 - 2", "heads=2 layers=1 - 2")
    assert compared(losses({"corpus": "docs"}, {"corpus": "copy"})).nothing.startswith("no baseline is named")
    assert Variant({"out_rank": ""}).title(["out_rank"]) == "out_rank=null"


@pytest.mark.parametrize(
    ("rows", "within", "line"),
    [
        (losses(*BOTH), "lr", "--within lr: every row has none; name a column that varies"),
        (losses(*BOTH), "nothing", "--within: no column nothing"),
        (losses(*BOTH), "seed", "--within seed: a difference is a mean over seeds"),
        (losses(BOTH[0], BOTH[3]), "layers", "no difference is there at two of its levels (10, 2)"),
    ],
)
def test_what_has_no_two_levels_is_refused(rows, within, line):
    with pytest.raises(ConfigError) as error:
        compared(rows, within=within)
    assert line in str(error.value)


@pytest.mark.parametrize(
    ("varied", "baseline"),
    [
        ({"scores": ["softmax", "qk_norm"]}, "softmax"),
        ({"heads": [2, 4, 8]}, "4"),
        ({"lr": [0.02, 0.01]}, "0.01"),
        ({"layers": [16, 8]}, "8"),
    ],
)
def test_the_default_of_what_varies_is_the_baseline(varied, baseline):
    ((key, levels),) = varied.items()
    result = compared(losses(*({"fusion": "concat", key: level} for level in levels)))
    bases = {one.baseline.levels[key] for one in result.findings}
    assert bases == {baseline} and len(result.findings) == len(levels) - 1


def test_a_study_names_contrasts_of_contrasts():
    vary = {"vary": "fusion", "baseline": "concat"}
    arms = {name: ARMS[name] for name in ("concat", "sum", "gated")}
    keys = {"factors": {"model.layers": [1, 2]}}
    plan = study({"arms": "sum - concat", "within": "layers"}, arms=arms, **keys).design.plan
    name = "(sum - concat at model.layers=2) - (sum - concat at model.layers=1)"
    assert plan and [one.name for one in plan.contrasts] == [name]
    plan = study(
        {**vary, "within": "model.layers"}, arms={}, factors={"fusion": ["concat", "sum"], **keys["factors"]}
    ).design.plan
    assert plan and [weight for weight, _ in plan.contrasts[0].sides] == [1, -1, -1, 1] and plan.family == 1
    with pytest.raises(ConfigError, match="write an entry as"):
        study({"within": "heads"}, arms=arms, **keys)
    known = r"is no factor that both sides share; (did you mean|choices:) model\.layers"
    for within, of, why in (("layrs", keys, known), ("fusion", keys, known), ("out_rank", {}, "; add one ")):
        with pytest.raises(ConfigError, match=f"within {within}: {within} .*{why}"):
            study({"arms": "sum - concat", "within": within}, arms=arms, **of)
    with pytest.raises(ConfigError, match="no two runs of this study differ so"):
        study({"arms": "sum - concat", "within": "heads"}, arms=arms).check_primary()


def test_a_sum_of_arms_takes_no_row_from_its_arms_and_two_studies_may_share_one():
    found = compared(
        of_cells(
            ({"fusion": name}, np.arange(6) + level) for level, name in enumerate(("concat", "sum", "mean"))
        )
    )
    one = next(one for one in found.findings if one.variant.levels["fusion"] == "sum")
    values, weights = one.case.values[[0, 0, 1]], np.array([0.5, 0.5, -1.0])
    case = replace(one.case, weights=weights, values=values)
    thirds = replace(one, name="0.5*sum + 0.5*mean - concat", case=case)
    assert thirds.is_sum
    table = replace(found, findings=[thirds, replace(thirds, pairs=5)]).table
    rows = table["variant"].tolist()
    assert sorted(rows[:-2]) == sorted(found.summary["variant"]) and rows[-2:] == [thirds.name] * 2
    assert table["verdict"].notna().all() and table["n"].tolist()[-2] == table["n"].tolist()[-1] + 1
