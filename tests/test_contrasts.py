"""Contrasts of a study by the names of its arms."""

from dataclasses import replace
from typing import Any

import pytest

from ablate.analysis.compare import compare
from ablate.analysis.contrasts import primary_pairs
from ablate.analysis.incomparable import Incomparable
from ablate.compose.sweep import compose
from ablate.config.contrast import Contrast
from ablate.config.rules import ConfigError
from ablate.execution.run import resolve
from ablate.reporting.answers import findings
from ablate.store.record import as_plain, read_record
from ablate.study.study import Study, settings
from tests.helpers import make_record
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
    assert sweep is not None
    block = {"kind": "grid", "question": "?", "factors": {}, "arms": arms, "seeds": [0, 1]}
    block |= {"metric": "val_loss", "primary": [*primary], **keys}
    return Study(replace(sweep, study=block))


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        *("sum_matched - concat", "sum_matched - sum", "rank - groups 4"),
        *("nano - concat", "groups 4 - groups 2", "static - gated"),
    ],
)
def test_a_contrast_by_names_is_of_these_two_arms_alone(names):
    of = study(names)
    assert of.config
    (contrast,) = of.config.primary
    assert str(contrast) == contrast.arms == names and contrast.baseline
    arms = {
        name: [f"{key}={value}" for key, value in arm.items()]
        for name, arm in ARMS.items()
        if name not in ("wide", "usual")
    }
    runs = [resolve(of.sweep.configs((*SMALL, *arm))) for arm in arms.values()]
    variants = settings(runs)
    pairs, missing = primary_pairs(variants, [contrast])
    place = {run.run_id: name for name, run in zip(arms, runs, strict=True)}
    ids = variants.table["run_id"]
    assert [(place[ids[one]], place[ids[base]]) for one, base in pairs] == [tuple(names.split(" - "))]
    assert not missing


@pytest.mark.slow
def test_what_a_contrast_by_names_is_written_out_to():
    of = study("sum_matched - concat", {"vary": "fusion", "baseline": "concat", "where": {"match": "none"}})
    assert of.config
    by_names, other = of.config.primary
    assert by_names == Contrast(
        baseline={"fusion": "concat", "match": "none"},
        variants=[{"fusion": ["sum"], "match": ["params"]}],
        where={"model.d_model": [64], "out_rank": [None], "scale": ["inside"]},
        arms="sum_matched - concat",
    )
    assert not other.arms and other.where == {"match": "none"}
    runs = of.ready(of.design.propose({}))
    record = of.record(runs, {}, {overrides: run.run_id for overrides, run in runs.items()})
    assert record.primary == [by_names, other] and read_record(as_plain(record)).primary == record.primary
    assert as_plain(record)["primary"][0]["arms"] == "sum_matched - concat"


@pytest.mark.slow
def test_arms_may_differ_in_auto_where_rows_have_that_word():
    arms = {**ARMS, "shared": {"key_heads": 1, "value_heads": 1}}
    config = study("shared - concat", "sum - concat", arms=arms).config
    assert config
    one, other = config.primary
    assert one.baseline == {"key_heads": "auto", "value_heads": "auto"}
    assert other.where["key_heads"] == ["auto"]  # so that no run with shared keys is meant


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("sum_mached - concat", r"sum_mached is no arm; did you mean sum_matched\?"),
        ("sum - sum", "sum - sum: the same arm twice; name another one"),
        ("sum", "sum: write an entry as .* by the names of two arms, as sum - concat"),
        ("- concat", "by the names of two arms"),
        ("usual - concat", "usual - concat: both arms are the same; name another one"),
        ("wide - concat", r"wide - concat: model\.mlp_hidden=auto: a run has a number in its place"),
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
    runs = of.ready(of.design.propose({}))
    of.check_primary(runs, None)
    assert "groups=3" in of.left_out[0] and "2 of 26 runs left out" in of.left_out[0]
    assert of.left_out[1].startswith("study.primary: groups 3 - concat: no two runs of this study differ so")
    assert len(of.left_out) == 2


def test_a_study_of_several_texts_compares_within_each():
    """Of a study that varies the text; rows of several texts are refused otherwise."""
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
    with pytest.raises(Incomparable, match="these rows come from 2 texts"):
        compare(rows)
    study = make_record(factors={"fusion": ["concat", "sum"], "corpus": ["stdlib", "grammar"]})
    found = compare(rows, records=[study])
    apart = {one.variant.levels["corpus"]: one for one in found.tested}
    assert apart.keys() == {"stdlib", "grammar"} and apart["stdlib"].diff > 0 > apart["grammar"].diff
    assert all(one.variant.differing(one.baseline) == ["fusion"] for one in found.tested)
    assert "corpus=grammar" in " ".join(findings(found))
