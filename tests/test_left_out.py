"""What can't be read of a store is left out in one line each, and only what was asked for by name fails."""

import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

import ablate
from ablate.analysis.load import load
from ablate.data.text import CorpusError, read
from ablate.files.atomic import StoreError
from ablate.files.reading import left_out
from ablate.store import lease
from ablate.store.columns import fault_of
from ablate.store.store import Store
from tests.helpers import QUICK, call_cli, make_record, refusal, reseal, write_study
from tests.synthetic import small_study


@pytest.fixture
def store(tmp_path, monkeypatch) -> Store:
    """Of two studies, `mine` and `other`, of four runs each."""
    monkeypatch.chdir(tmp_path)
    left_out()
    small_study(tmp_path / "runs", name="other")
    return small_study(tmp_path / "runs", name="mine")


def study_json(store: Store, study: str = "other") -> Path:
    return store.study_directory(study) / "study.json"


def one_run(store: Store, study: str = "other") -> Path:
    """The directory of its first run."""
    record = store.read_study(study)
    assert record
    return store.root / "store" / f"run-{record.runs[0][:8]}"


def listed(*command: str, cwd: Path) -> tuple[str, list[str]]:
    """What a command printed, and the lines on what it left out. It has to succeed."""
    done = call_cli(*command, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout, [line for line in done.stderr.splitlines() if line.startswith("left out: ")]


WHOLE = {"name": "other", "kind": "grid", "factors": {}, "fixed": {}, "seeds": [], "runs": []}
CONTENTS = {
    "cut": b'{"name": "oth',
    "null": json.dumps(WHOLE | {"runs": None}).encode(),
    "of a newer ablate": json.dumps(WHOLE | {"budget": 3}).encode(),
    "infinite": json.dumps(WHOLE).replace("[]", "[1e400]", 1).encode(),
    "deep": b"[" * 100_000,
    "half a character": json.dumps(WHOLE | {"question": "\ud800"}).encode(),
    "not UTF-8": b'{"name": "\xff"}',
    "looks without a seed": json.dumps(WHOLE | {"looks": {"at": [], "seeds": []}}).encode(),
}


@pytest.mark.slow
@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_a_study_that_is_damaged_stops_only_who_asks_for_it(store, tmp_path, content):
    before, none = listed("runs", "mine", "--format", "csv", "--columns", "run_id,val_loss", cwd=tmp_path)
    shutil.rmtree(store.study_directory("other") / ".versions")  # else it could be the copy that is late
    study_json(store).write_bytes(content)
    after, lines = listed("runs", "mine", "--format", "csv", "--columns", "run_id,val_loss", cwd=tmp_path)
    assert after == before and none == []
    reason = "knows no key budget" if b"budget" in content else "can't be read ("
    assert len(lines) == 1 and "studies/other/study.json: " in lines[0] and reason in lines[0], lines
    assert reason in refusal("runs", "other", cwd=tmp_path)


@pytest.mark.slow
def test_a_run_ends_as_it_does_without_a_damaged_study_beside_it(store, tmp_path):
    study_json(store).write_bytes(b"{")
    out, lines = listed("run", *QUICK, cwd=tmp_path)
    assert "status        done" in out and len(lines) == 1 and "other/study.json" in lines[0], lines
    assert (store.root / "results.csv").read_text().count(",done,") == 9
    before = {*(store.root / "store").iterdir()}
    assert "other/study.json" in refusal("runs", "--prune", "--yes", cwd=tmp_path)  # it may need them
    assert {*(store.root / "store").iterdir()} == before


def as_pipe(path: Path) -> None:
    os.mkfifo(path)


KINDS = {
    "pipe": as_pipe,
    "directory": Path.mkdir,
    "link to nowhere": lambda path: path.symlink_to("nowhere"),
    "device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_what_is_no_regular_file_is_left_out(store, make):
    rows = {row["run_id"] for row in store.rows("mine")}
    run = one_run(store)
    for path in (study_json(store), run / "result.json"):
        path.unlink()
        make(path)
    left_out()
    assert store.study_names() == ["mine", "other"] and [*store.studies()] == ["mine"]
    assert len(lines := left_out()) == 1 and "studies/other/study.json" in lines[0], lines
    by_id = {row["run_id"]: row for row in store.rows()}
    damaged, lines = by_id.get(run.name[-8:]), left_out()
    assert rows < by_id.keys() and len(by_id) == 8 - (damaged is None)
    assert damaged["status"] == "failed" if damaged else any(run.name in line for line in lines), lines
    assert {row["run_id"] for row in store.rows("mine")} == rows
    with pytest.raises(StoreError, match=r"other/study\.json"):
        store.rows("other")
    with pytest.raises(StoreError, match=r"other/study\.json"):  # and it is not overwritten
        write_study(store, make_record(name="other"))


# --- rows -----------------------------------------------------------------------------------------

ODD_CELLS = {
    "fusion": (["sum"], {"a": 1}, True),
    "seed": ("0", 0.5, [0], True, None),
    "heads": ("4",),
    "val_loss": ("2.5", [2.5], True),
    "out_proj": (1, ["hadamard"]),
    "code": (12,),
    "error": (["why"],),
    "fusion_options": ("{", "[1]", {"a": 1}, "[" * 5000),
    "splits": ({"train": 1}, 0.8),
    "fusion_weights": ([["a"]], [[[]]], [[[[1.0]]]], [[1.0], 1.0]),
    "part_files": ([], "a"),
    "status": ("finished", 3, ["done"]),
    "run_id": ("../../x", "a", 3, ["a"]),
}


@pytest.mark.slow
def test_a_row_with_a_value_of_another_kind_is_none_whatever_its_seal(store):
    run = one_run(store, "mine")
    whole, before = reseal(run), (run / "result.json").read_bytes()
    assert not fault_of(whole)
    assert not fault_of(whole | {"fusion_weights": [[1.0, [0.5, 1]], []], "key_heads": 1, "seed": 10**30})
    for name, value in ((name, value) for name, values in ODD_CELLS.items() for value in values):
        (run / "result.json").write_bytes(before)
        row = reseal(run, **{name: value})
        assert name in fault_of(row), (name, value)
        if name in ("seed", "fusion"):  # what the table of all rows shows then
            table = load(["mine"]).rows.set_index("run_id")
            assert table["status"].tolist().count("failed") == 1
            bad = table[table["status"] == "failed"].iloc[0]
            assert bad.name == whole["run_id"] and fault_of(row) in bad["error"]
            assert table[name].dropna().size == 3
    for text in ('"val_loss": NaN', '"val_loss": 1e999', '"val_loss": "\\ud800"'):
        (run / "result.json").write_text(json.dumps(whole)[:-1] + f', "files": {{}}, "seal": "", {text}}}')
        assert [row["status"] for row in store.rows("mine")].count("failed") == 1


def test_files_that_a_row_lists_lie_beside_it(store):
    run = one_run(store, "mine")
    row = reseal(run, files={"../../../book.txt": "0" * 16})
    assert "its files are not of this run" in str(
        [one["error"] for one in store.rows() if one["run_id"] in run.name or one["run_id"] == row["run_id"]]
    )


def test_remembered_rows_count_only_if_every_byte_is_as_it_was_written(store):
    before = store.rows()
    cache = store.root / "store" / ".rows.json"
    data = cache.read_bytes()
    json.loads(data)
    name = one_run(store, "mine").name.encode()
    for other in (
        data.replace(b'"fusion": "concat"', b'"fusion": ["conc"]'),
        data.replace(name, b"x" * len(name)),
    ):
        assert other != data and len(other) == len(data)
        cache.write_bytes(other)
        assert store.rows() == before
        assert cache.read_bytes() == data  # written anew
    for make in (
        lambda: cache.write_bytes(b""),
        lambda: cache.write_bytes(b"[" * 99_999),
        lambda: os.mkfifo(cache),
    ):
        cache.unlink()
        make()
        assert store.rows() == before


# --- beside them ------------------------------------------------------------------------------------


LEASES = (b"", b"[]", b"[" * 9999, b"{}", b'{"pid": 1e400, "started": 0}', b'{"pid": 1, "started": "x"}')
LEASES += (json.dumps({"pid": 10**30, "started": 0, "host": [], "pids": 3, "boot": {}}).encode(),)


@pytest.mark.parametrize("content", [*LEASES, as_pipe, Path.mkdir], ids=lambda content: "")
def test_a_lease_that_nobody_wrote_holds_no_run(tmp_path, content):
    attempt = tmp_path / "1" / "2" / "3"
    attempt.mkdir(parents=True)
    path = attempt / "lease.json"
    content(path) if callable(content) else path.write_bytes(content)
    now = path.stat().st_mtime
    os.utime(path, (now - 1000, now - 1000))
    assert not lease.is_live(attempt) and lease.holder(attempt).count("\n") == 0
    lease.release_ended(attempt, 1)


def test_a_completion_and_a_call_from_python_leave_out_too(store, tmp_path):
    study_json(store).write_bytes(b"")
    with pytest.warns(UserWarning, match=r"left out: .*other/study\.json: can't be read"):
        assert len(ablate.load("mine")) == 4
    given: dict[str, Any] = {"_ABLATE_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "ablate sample run-"}
    done = call_cli(cwd=tmp_path, **given)
    assert done.stdout.count("run-") >= 8 and not done.stderr


# --- characters and archives ------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("corpus.path=\udcff.txt",), ("-cd", "\udcff"), ("name=a\udcff",)])
def test_what_no_file_can_hold_is_refused_before_a_run_begins(tmp_path, words):
    assert r"\udcff" in (line := refusal("run", *QUICK, *words, cwd=tmp_path)) and "not in UTF-8" in line
    assert not (tmp_path / "runs").exists()


def test_an_archive_that_cant_be_unpacked_is_one_line(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.txt", "The cat sat on the mat.\n" * 99)
    data = bytearray((tmp_path / "a.zip").read_bytes())
    data[45:60] = b"\xff" * 15
    (tmp_path / "a.zip").write_bytes(data)
    opened = zipfile.Path(tmp_path / "a.zip", "a.txt")
    with pytest.raises(
        CorpusError, match=r"a\.zip/a\.txt: can't be read \(.+\); mend that, or give other text"
    ):
        list(read(opened, "utf-8", "strict", name="a.zip/a.txt"))


# --- odd stores (benchmarks/fuzz.py store) ------------------------------------------------------------
