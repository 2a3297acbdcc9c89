"""Runs on disk: whole or absent, derived tables; the records of studies, and how they grow."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ablate.analysis.notes import of_studies
from ablate.compose.sweep import compose
from ablate.config.contrast import Contrast
from ablate.files.atomic import StoreError, make_once
from ablate.phrases import texts
from ablate.store import lease, removal
from ablate.store import rows as rows_module
from ablate.store.columns import COLUMNS
from ablate.store.provenance import parts_code, provenance
from ablate.store.record import Choice, Role, StudyRecord, as_plain
from ablate.store.run_files import Checkpoint, Damaged
from ablate.store.run_folder import Busy, RunFolder
from ablate.store.store import Store
from ablate.study.growth import grown
from ablate.study.study import Study
from tests.helpers import QUICK, ignore, make_record, write_study

ROW = {"run_id": "0123456789abcdef", "status": "running", "fusion": "sum", "seed": 0, **provenance()}
ROW |= parts_code()
METRICS = {"step": 3, "tokens": 21, "lr": 0.1, "train_loss": 2.5, "val_loss": 2.25, "grad_norm": 1.0}


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path)


def writing(store: Store, name: str = "run", row: dict = ROW, anew: bool = False):
    """An attempt that is to replace what is there now."""
    return store.run(name).attempt({"heads": 4}, row, {}, ignore, anew=anew)


def finish(folder: RunFolder, **columns) -> None:
    folder.finish({**ROW, "status": "done", **columns})


def finished(store: Store, name: str = "run", **columns) -> None:
    with writing(store, name) as writer:
        writer.metrics({**METRICS, "seconds": 0.5})
        finish(writer, **columns)


def latest(store: Store, name: str = "run") -> Path:
    attempt = store.run(name).latest()
    assert attempt
    return attempt


def single(*runs: str) -> StudyRecord:
    """The record of single runs with name=mine."""
    return make_record(name="mine", kind="single", seeds=[0], runs=[*runs])


def test_a_finished_run_is_a_directory_with_its_files(store, tmp_path):
    finished(store, val_loss=2.25)
    files = {path.name for path in store.run("run").directory.iterdir()}
    assert files == {"config.yaml", "metrics.csv", "result.json"}
    metrics = (store.run("run").directory / "metrics.csv").read_text()
    assert metrics == "step,tokens,lr,train_loss,val_loss,grad_norm,seconds\n3,21,0.1,2.5,2.25,1.0,0.5\n"
    assert store.run("run").read() == {**ROW, "status": "done", "val_loss": 2.25}
    assert [path.name for path in (tmp_path / "store").glob("[!.]*")] == ["run"]


def statuses(store: Store) -> list[tuple[str, float | None]]:
    return [(row["status"], row.get("val_loss")) for row in store.rows()]


def test_an_attempt_counts_only_when_it_is_whole(store, tmp_path):
    with pytest.raises(KeyboardInterrupt), writing(store):
        assert statuses(store) == [("running", None)]
        raise KeyboardInterrupt
    assert store.run("run").read() is None and statuses(store) == [("interrupted", None)]
    finished(store, val_loss=1.0)
    with pytest.raises(KeyboardInterrupt), writing(store) as writer:
        assert statuses(store) == [("done", 1.0)]  # so far it may just look at it
        writer.log("begun")
        assert statuses(store) == [("running", None)]
        raise KeyboardInterrupt
    assert statuses(store) == [("done", 1.0)]
    with writing(store) as writer:
        assert (store.run("run").read() or {})["val_loss"] == 1.0
        finish(writer, val_loss=2.0)
    assert statuses(store) == [("done", 2.0)]
    assert [path.name for path in (tmp_path / "store").glob("[!.]*")] == ["run"]


def test_results_are_derived_from_the_runs(store, tmp_path):
    finished(store, "b", run_id="b" * 16, val_loss=0.1 + 0.2, out_proj=True)
    finished(store, "a", run_id="a" * 16)
    write_study(store, single("b" * 16))
    path = store.write_results("mine")
    rows = pd.read_csv(path)
    assert list(rows.columns) == list(COLUMNS)
    assert rows["run_id"].tolist() == ["b" * 16] and rows["study"].tolist() == ["mine"]
    assert rows["val_loss"].tolist() == [0.1 + 0.2] and rows["out_proj"].tolist() == [True]
    assert pd.read_csv(tmp_path / "results.csv")["run_id"].tolist() == ["a" * 16, "b" * 16]


def record(*overrides: str) -> StudyRecord:
    """Of the study that a sweep asks for."""
    study = Study(compose(["-m", *QUICK, *overrides]))
    return study.record(study.ready(study.design.propose({})), {}, {})


def mine(*overrides: str, runs: str = "ab") -> StudyRecord:
    return replace(record("name=mine", "seed=0,1", *overrides), runs=[*runs])


def test_a_study_grows_by_levels_and_seeds():
    both = grown(mine("heads=1,2"), replace(mine("heads=2,4", runs="bc"), seeds=[1, 2]))
    assert both.factors == {"heads": ["1", "2", "4"]}
    assert both.seeds == [0, 1, 2] and both.runs == ["a", "b", "c"]


@pytest.mark.parametrize(
    "other, parts",
    [
        (lambda: mine("fusion=sum,mean"), ("fusion", "factor")),
        (lambda: mine("heads=1,2", "train.lr=0.5"), ("train.lr", "0.5", "0.01")),
        (lambda: single("a"), ("single", "grid")),
    ],
)
def test_any_other_change_of_a_named_study_is_refused(other, parts):
    with pytest.raises(StoreError) as refusal:
        grown(mine("heads=1,2"), other())
    assert all(part in str(refusal.value) for part in (*parts, "name=NAME")), refusal.value


@pytest.mark.slow
def test_a_sweep_is_named_by_what_it_runs():
    names = {record(seeds).name for seeds in ("seed=0,1", "seed=1,0")}
    assert len(names) == 1 and record("seed=0,2").name not in names
    assert names.pop().startswith("sweep-")


def test_a_damaged_run_is_shown_and_set_aside_never_trusted(store, tmp_path):
    run = store.run(name := "sum-h4-01234567")
    for count, content in enumerate(("", "[]", "{}", '{"run_id": "0123456789abcdef"', "\udcff"), start=1):
        finished(store, name)
        (run.directory / "result.json").write_text(content, errors="surrogateescape")
        with pytest.raises(Damaged, match=r"result\.json: missing or damaged"):
            run.read()
        (row,) = store.rows()
        assert (row["run_id"], row["status"]) == ("01234567", "failed") and "damaged" in row["error"]
        said: list[str] = []
        with run.attempt({}, ROW, {}, said.append) as folder:
            folder.drop()
        assert said[0].endswith(f"; it is in {tmp_path / 'damaged' / name}-{count} now") and len(said) == 1
        assert run.read() is None and store.rows() == []


@pytest.mark.parametrize("file", ["result.json", "metrics.csv", "config.yaml"])
def test_a_run_edited_by_hand_is_noticed(store, file):
    finished(store, val_loss=2.25)
    assert store.rows()[0]["val_loss"] == 2.25  # and it is in the cache now
    path = store.run("run").directory / file
    path.write_text(path.read_text().replace("2.25", "1.25").replace("heads: 4", "heads: 8"))
    with pytest.raises(Damaged, match=f"{file}: .*edited since the run ended"):
        store.run("run").read()
    if file == "result.json":
        (row,) = store.rows()
        assert row["status"] == "failed" and "val_loss" not in row


def checkpoint(step: int) -> Checkpoint:
    arrays = {"param/w": np.full((2, 3), step, np.float32)}
    return Checkpoint(step, arrays, [{**METRICS, "step": step, "seconds": 0.5}], 1.5, 0.5)


def interrupted(store: Store, *steps: int, row: dict = ROW) -> None:
    with pytest.raises(KeyboardInterrupt), writing(store, row=row) as writer:
        for step in steps:
            writer.metrics({**METRICS, "step": step, "seconds": 0.5})
            writer.checkpoint(checkpoint(step))
        writer.metrics({**METRICS, "step": 99, "seconds": 0.5})
        raise KeyboardInterrupt


@pytest.mark.parametrize("fails", [False, True])
def test_an_interrupted_run_goes_on_from_its_last_checkpoint(store, fails):
    interrupted(store, 3, 6)
    assert len(list(latest(store).glob("checkpoint-*"))) == 1
    if fails:
        with writing(store) as writer:
            writer.finish({**ROW, "status": "failed"})
        assert statuses(store) == [("failed", None)]
    with writing(store) as writer:
        assert writer.start is not None
        assert vars(writer.start) | {"arrays": None} == vars(checkpoint(6)) | {"arrays": None}
        np.testing.assert_array_equal(writer.start.arrays["param/w"], np.full((2, 3), 6))
        finish(writer)
    lines = (store.run("run").directory / "metrics.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["step", "6"]  # not 99, which the checkpoint lacks
    assert not list(store.run("run").directory.glob("checkpoint-*"))


@pytest.mark.parametrize("column", ["code", "parts", "torch", "threads", "device", "processor"])
def test_a_checkpoint_of_other_bytes_is_kept_until_a_run_is_to_begin_anew(store, column):
    interrupted(store, 3)
    other = {**ROW, column: "other"}
    line = (
        rf"^run: its checkpoint after step 3 was made otherwise \({column} was .*, is other\) and is kept: "
    )
    for _ in range(2):
        with pytest.raises(StoreError, match=line), writing(store, row=other):
            pass
    with writing(store) as writer:
        assert writer.start is not None and writer.start.step == 3
    with writing(store, row=other, anew=True) as writer:
        assert writer.start is None and not list(writer.path.glob("checkpoint-*"))


def test_a_failed_run_that_another_command_takes_for_over_keeps_its_checkpoint(store):
    interrupted(store, 3)
    with writing(store) as writer:
        writer.finish({**ROW, "status": "failed"})
    row = {**ROW, "processor": "other"}  # which could not go on from there
    with store.run("run").attempt({}, row, {}, ignore, is_over=lambda *_: True) as other:
        assert other.finished is not None and other.finished["status"] == "failed"
    assert store.run("run").latest() is None and statuses(store) == [("failed", None)]
    with writing(store) as writer:
        assert writer.start is not None and writer.start.step == 3


def test_an_attempt_that_lost_its_row_is_put_aside(store, tmp_path):
    interrupted(store, 3)
    (latest(store) / "result.json").unlink()
    with writing(store) as writer:
        assert writer.start is None
        finish(writer)
    assert len(list((tmp_path / "damaged").glob("*/checkpoint-*"))) == 1


def test_a_result_that_lies_in_an_attempt_is_put_aside(store, tmp_path):
    interrupted(store, 3)
    taken = latest(store) / ".gone-0123"
    taken.mkdir()
    (taken / "model.safetensors").touch()
    finished(store)
    assert [path.name for path in tmp_path.glob("damaged/*/*")] == ["model.safetensors"]


def test_a_process_that_is_interrupted_as_it_begins_holds_no_run(store, monkeypatch):
    def begins(*arguments):
        make_once(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("ablate.store.run_folder.make_once", begins)
        finished(store)
    finished(store)


def test_the_lease_of_a_process_that_lives_is_not_buried(store, tmp_path):
    with writing(store) as writer:
        lease.bury(tmp_path / "store", os.getpid())
        with pytest.raises(Busy):
            finished(store)
        finish(writer)


def test_what_is_complete_is_the_result_whoever_finds_it(store, tmp_path):
    with pytest.raises(KeyboardInterrupt), writing(store) as writer:
        writer.checkpoint(checkpoint(3))
        writer.seal({**ROW, "status": "done"})
        raise KeyboardInterrupt
    assert [row["status"] for row in store.rows()] == ["interrupted"]
    assert store.run("run").read() is None  # a look moves nothing
    with writing(store, row={**ROW, "processor": "other"}) as other:
        assert other.finished == {**ROW, "status": "done"}
        other.drop()
    assert store.run("run").read() == {**ROW, "status": "done"}
    assert [path.name for path in (tmp_path / "store").glob("*run*")] == ["run"]


def test_rows_are_read_again_only_where_a_run_changed(store, tmp_path, monkeypatch):
    for name in ("a", "b", "c"):
        finished(store, name, run_id=name * 16)
    store.rows()
    read: list[str] = []
    original = rows_module.read_finished
    monkeypatch.setattr(rows_module, "read_finished", lambda path: read.append(path.name) or original(path))
    assert len(store.rows()) == 3 and read == []
    finished(store, "b", run_id="b" * 16, val_loss=1.0)
    assert [row.get("val_loss") for row in store.rows()] == [None, 1.0, None] and read == ["b"]
    for edited in ("[1, {", "[1]", '{"a": 1}', '{"a": [[], 1]}', '{"a": [[], {}]}'):
        (tmp_path / "store" / ".rows.json").write_text(edited)
        assert len(store.rows()) == 3 and read == [*"babc"]
        read[1:] = []


def test_a_run_is_found_by_the_beginning_of_its_name_or_id(store):
    for steps, identity in enumerate(("44be20f812345678", "44cc000000000000")):
        finished(store, f"sum-h4-{identity[:8]}", run_id=identity, steps=steps)
    first = store.run("sum-h4-44be20f8").directory
    assert all(store.find(part) == first for part in ("44b", "44be20f8", "44be20f81234", "sum-h4-44be"))
    for wrong in ("44be20f8ffff", "", "zz"):
        with pytest.raises(StoreError, match="no finished run begins with it"):
            store.find(wrong)
    with pytest.raises(StoreError, match=r"letters: sum-h4-44be20f8 steps=0, sum-h4-44cc0000 steps=1$"):
        store.find("44")


def test_runs_whose_ids_begin_alike_are_not_taken_for_each_other(store):
    ids = ["44be20f8" + digit * 8 for digit in "12"]
    for seed, run_id in enumerate(ids):
        finished(store, f"sum-h4-s{seed}-44be20f8", run_id=run_id, seed=seed)
    write_study(store, make_record(name="grid", seeds=[0], runs=ids[:1]))
    assert [row["run_id"] for row in store.rows()] == ids
    assert [row["run_id"] for row in store.rows("grid")] == ids[:1]
    assert [path.name[-10] for path in store.directories(ids).values()] == ["0", "1"]
    both = removal.removable(store, store.by_name())
    assert [run.needed_by for run in both] == ["it is in grid", ""]
    removal.remove(store, both[1:])
    assert [row["run_id"] for row in store.rows()] == ids[:1]


# --- records of studies ---------------------------------------------------------------------------

NOW = StudyRecord(
    name="tuned",
    kind="tuned",
    factors={"fusion": ["concat", "sum"], "heads": ["2"], "train.lr": ["0.004", "0.008"]},
    fixed={"corpus.splits": [0.8, 0.1, 0.1], "model.bias": False, "seeds.data": None, "train.steps": 4},
    seeds=[0, 100],
    runs=["1100ea93294ee5ec", "136cac8da041842d"],
    question="Does it matter?",
    primary=[Contrast(baseline={"fusion": "concat"}, where={"heads": [2, 4]})],
    metric="test_loss",
    margin=0.01,
    declared={"tune": "train.lr", "develop": ["0"], "extend": 0},
    study="tuned",
    threads=1,
    roles={
        "1100ea93294ee5ec": Role(phase="develop", role="", tuned="train.lr"),
        "136cac8da041842d": Role(
            phase="report", role="tuned", tuned="train.lr", values={"tuned": ["fusion=sum"]}
        ),
    },
    chosen={"fusion=sum": Choice("0.008", "not bracketed: train.lr=0.008")},
)


def test_a_record_comes_back_as_it_was_written(store):
    for record in (NOW, make_record(name="little", seeds=[7])):
        write_study(store, record)
        assert store.read_study(record.name) == record
    assert as_plain(make_record()).keys() == {"name", "kind", "factors", "fixed", "seeds", "runs"}


def test_a_study_grows_and_keeps_what_it_declared(store):
    write_study(store, NOW)
    assert NOW.tuned_key == "train.lr" and NOW.development_seeds == ["0"]
    assert texts(of_studies([NOW], [], {})) == ["fusion=sum: train.lr=0.008: not bracketed: train.lr=0.008"]
    write_study(store, grown(NOW, replace(NOW, seeds=[0, 101], runs=["a" * 16], roles={}, chosen={})))
    both = store.read_study("tuned")
    assert both == replace(NOW, seeds=[0, 100, 101], runs=[*NOW.runs, "a" * 16])
    for key, other in {"develop": ["1"], "extend": 2}.items():
        with pytest.raises(StoreError, match=f"{key} was .* when the study began"):
            grown(NOW, replace(NOW, declared={**NOW.declared, key: other}))
    for key, other in {"primary": [], "metric": "val_acc", "margin": 0.02, "where": ["heads < 4"]}.items():
        with pytest.raises(StoreError, match=f"{key} was .* when the study began"):
            grown(NOW, replace(NOW, **{key: other}))
