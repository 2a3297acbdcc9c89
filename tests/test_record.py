"""The record of a study: as it is written, as it is read back, and as the first releases wrote it."""

import json
from dataclasses import replace

import pytest

from ablate.analysis.notes import doubts
from ablate.store.record import Choice, Machine, Role, StudyRecord, as_plain, read_record
from ablate.store.store import Store, StoreError
from ablate.study.growth import grown
from tests.helpers import make_record, write_study

# What 0.x wrote of `run study=tuned size=demo fusion=concat,sum train.lr=0.004,0.008 study.develop=[0]`, with
# few of its fixed keys and runs.
FIRST = """{
  "chosen": {"fusion=sum": {"doubt": "not bracketed: train.lr=0.008", "value": "0.008"}},
  "demonstration": true,
  "develop": ["0"],
  "extend": 0,
  "factors": {"fusion": ["concat", "sum"], "heads": ["2"], "train.lr": ["0.004", "0.008"]},
  "fixed": {"corpus.splits": [0.8, 0.1, 0.1], "model.bias": false, "seeds.data": null, "train.steps": 4},
  "kind": "tuned",
  "machine": {"linear": "mkl", "threads": 1},
  "margin": 0.01,
  "metric": "test_loss",
  "name": "tuned-demo",
  "parts": {
    "1100ea93294ee5ec": {"phase": "develop", "role": "", "tuned": "train.lr", "values": {}},
    "136cac8da041842d": {
      "phase": "report", "role": "octave_up", "tuned": "train.lr", "values": {"octave_up": ["fusion=sum"]}
    }
  },
  "primary": [{"baseline": "concat", "vary": "fusion"}],
  "question": "Does it matter?",
  "runs": ["1100ea93294ee5ec", "136cac8da041842d"],
  "seeds": [0, 100],
  "study": "tuned",
  "tune": "train.lr",
  "where": []
}"""
NOW = StudyRecord(
    name="tuned-demo",
    kind="tuned",
    factors={"fusion": ["concat", "sum"], "heads": ["2"], "train.lr": ["0.004", "0.008"]},
    fixed={"corpus.splits": [0.8, 0.1, 0.1], "model.bias": False, "seeds.data": None, "train.steps": 4},
    seeds=[0, 100],
    runs=["1100ea93294ee5ec", "136cac8da041842d"],
    question="Does it matter?",
    primary=[{"vary": "fusion", "baseline": "concat"}],
    metric="test_loss",
    margin=0.01,
    declared={"tune": "train.lr", "develop": ["0"], "extend": 0},
    study="tuned",
    demonstration=True,
    machine=Machine(threads=1, linear="mkl"),
    roles={
        "1100ea93294ee5ec": Role(phase="develop", role="", tuned="train.lr"),
        "136cac8da041842d": Role(
            phase="report", role="octave_up", tuned="train.lr", values={"octave_up": ["fusion=sum"]}
        ),
    },
    chosen={"fusion=sum": Choice("0.008", "not bracketed: train.lr=0.008")},
)


def test_a_record_comes_back_as_it_was_written(tmp_path):
    store = Store(tmp_path)
    for record in (NOW, make_record(name="little", seeds=[7])):
        write_study(store, record)
        assert store.read_study(record.name) == record
    assert as_plain(make_record()).keys() == {"name", "kind", "factors", "fixed", "seeds", "runs"}


def test_a_study_of_the_first_layout_opens_and_grows(tmp_path):
    store, path = Store(tmp_path), tmp_path / "studies" / "tuned-demo" / "study.json"
    path.parent.mkdir(parents=True)
    path.write_text(FIRST)
    old = store.read_study("tuned-demo")
    assert old == NOW and NOW.tuned_key == "train.lr" and NOW.development_seeds == ["0"]
    assert doubts(NOW) == ["fusion=sum: train.lr=0.008: not bracketed: train.lr=0.008"]
    write_study(store, grown(old, replace(NOW, seeds=[0, 101], runs=["a" * 16], roles={}, chosen={})))
    both = store.read_study("tuned-demo")
    assert both == replace(NOW, seeds=[0, 100, 101], runs=[*NOW.runs, "a" * 16])
    assert "parts" not in json.loads(path.read_text())
    with pytest.raises(StoreError, match=r"develop was \['0'\] when the study began"):
        grown(old, replace(NOW, declared={**NOW.declared, "develop": ["1"]}))


def test_a_grid_and_a_list_of_runs_of_the_first_layout_have_no_roles():
    plain = {key: value for key, value in json.loads(FIRST).items() if key in as_plain(make_record())}
    for kind in ("grid", "single"):
        record = read_record(plain | {"kind": kind})
        assert not record.roles and not record.declared and not record.is_declared
        assert record.is_one_by_one == (kind == "single") and record.tuned_key == ""
