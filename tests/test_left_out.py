"""What can't be read of a store is left out in one line each, and only what was asked for by name fails."""

import json
from pathlib import Path

import pytest

from ablate.printing import left_out
from ablate.store.store import Store
from tests.helpers import QUICK, call_cli, refusal
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


def listed(*command: str, cwd: Path) -> tuple[str, list[str]]:
    """What a command printed, and the lines on what it left out. It has to succeed."""
    done = call_cli(*command, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout, [line for line in done.stderr.splitlines() if line.startswith("left out: ")]


WHOLE = {"name": "other", "kind": "grid", "factors": {}, "fixed": {}, "seeds": [], "runs": []}
CONTENTS = {
    "cut": b'{"name": "oth',
    "null": json.dumps(WHOLE | {"runs": None}).encode(),
    "not UTF-8": b'{"name": "\xff"}',
}


@pytest.mark.slow
@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_a_study_that_is_damaged_stops_only_who_asks_for_it(store, tmp_path, content):
    before, none = listed("compare", "mine", "--format", "csv", cwd=tmp_path)
    study_json(store).write_bytes(content)
    after, lines = listed("compare", "mine", "--format", "csv", cwd=tmp_path)
    assert after == before and none == []
    reason = "can't be read ("
    assert len(lines) == 1 and "studies/other/study.json: " in lines[0] and reason in lines[0], lines
    assert reason in refusal("runs", "other", cwd=tmp_path)


@pytest.mark.slow
def test_a_run_ends_as_it_does_without_a_damaged_study_beside_it(store, tmp_path):
    study_json(store).write_bytes(b"{")
    out, lines = listed("run", *QUICK, cwd=tmp_path)
    assert "status        done" in out and len(lines) == 1 and "other/study.json" in lines[0], lines
    assert (store.root / "results.csv").read_text().count(",done,") == 9
    before = {*(store.root / "store").iterdir()}
    assert "other/study.json" in refusal(
        "runs", "--where", "status=done", "--delete", "--force", "--yes", cwd=tmp_path
    )  # it may need them
    assert {*(store.root / "store").iterdir()} == before


# --- characters and archives ------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("corpus.path=\udcff.txt",), ("-cd", "\udcff"), ("name=a\udcff",)])
def test_what_no_file_can_hold_is_refused_before_a_run_begins(tmp_path, words):
    assert r"\udcff" in (line := refusal("run", *QUICK, *words, cwd=tmp_path)) and "not in UTF-8" in line
    assert not (tmp_path / "runs").exists()
