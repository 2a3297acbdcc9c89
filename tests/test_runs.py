"""`ablate runs`: in which order, which columns, and what may be deleted."""

import io
import json
import os
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from ablate import live
from ablate.live import Board, summary, time_left
from ablate.printing import console
from ablate.probes.study import find as probed
from ablate.store.columns import Status
from ablate.store.store import Store
from ablate.training.events import Evaluation, Score
from tests.helpers import call_cli, ignore, refusal, write_study
from tests.synthetic import small_study

QUICK = ("model.d_model=8", "heads=2", "model.context=8", "train.steps=4", "train.batch=2")
QUICK += ("corpus=grammar", "corpus.characters=5000")


@pytest.fixture
def four(tmp_path: Path) -> Path:
    """A study of four finished runs, one an hour, the last one a minute ago."""
    store = small_study(tmp_path / "runs", diverging=(3,))
    for age, row in zip((7300, 3700, 60, 172_900), store.rows(), strict=True):
        directory = store.directories([row["run_id"]])[row["run_id"]]
        when = time.time() - age
        os.utime(directory / "result.json", (when, when))
    return tmp_path


def listed(where: Path, *options: str) -> pd.DataFrame:
    done = call_cli("runs", *options, "--format", "json", cwd=where)
    assert done.returncode == 0, done.stderr
    return pd.DataFrame(json.loads(done.stdout)["rows"])


def test_the_newest_is_last_and_ages_are_told(four: Path):
    assert listed(four)["age"].round(-1).tolist() == [172_900, 7300, 3700, 60]
    text = call_cli("runs", cwd=four).stdout
    ages = [line.split()[1] for line in text.splitlines()[1:]]
    assert ages[:3] == ["2days", "2.0h", "62min"] and re.fullmatch(r"[6-9]\ds", ages[3])


@pytest.mark.slow
@pytest.mark.parametrize("here", [".", "elsewhere"])
def test_a_run_and_a_study_by_path(four: Path, here: str, monkeypatch):
    (four / "elsewhere").mkdir()
    monkeypatch.chdir(four / here)
    store, elsewhere = Store(four / "runs"), Store()
    run = next(row for row in store.rows() if row["seed"] == 0 and row["fusion"] == "sum")
    directory = store.directories([run["run_id"]])[run["run_id"]]
    for path in (directory, os.path.relpath(directory), f"{directory}/"):
        assert elsewhere.find(str(path)).samefile(directory)
        assert [*probed(str(path)).directories] == [run["run_id"]]
    assert store.named(f"{directory}/", store.finished()) == directory.name
    assert listed(Path.cwd(), str(four / "runs/studies/synthetic"))["seed"].tolist() == [0, 1, 0, 1]


def test_rows_are_chosen(four: Path):
    assert listed(four, "--where", "fusion=sum")["fusion"].tolist() == ["sum", "sum"]
    assert len(listed(four, "--where", "fusion=sum", "synthetic")) == 2
    ids = listed(four)["run_id"].tolist()
    assert listed(four, ids[1], ids[0][:10])["run_id"].tolist() == ids[:2]


def test_what_a_study_needs_stays_unless_told(four: Path):
    store = Store(four / "runs")
    run = next(iter(store.finished()))
    done = call_cli("runs", "--delete", run, "--yes", cwd=four)
    assert done.returncode == 2 and "it is in synthetic; --force --yes deletes it all the same" in done.stderr
    assert len(store.finished()) == 4
    done = call_cli("runs", "--delete", run, "--force", cwd=four)
    assert done.returncode == 0 and "nothing is deleted yet" in done.stderr and run[-8:] in done.stdout
    assert len(store.finished()) == 4
    done = call_cli("runs", "--delete", run, "--force", "--yes", cwd=four)
    assert done.returncode == 0 and "deleted 1 run" in done.stderr
    assert len(store.finished()) == 3 and len(listed(four, "synthetic")) == 3
    record = store.read_study("synthetic")
    assert record and len(record.runs) == 4  # its command makes it again
    assert len(pd.read_csv(four / "runs/studies/synthetic/results.csv")) == 3


@pytest.mark.slow
def test_a_condition_chooses_what_is_deleted_and_what_runs_stays(tmp_path: Path):
    call_cli("run", *QUICK, cwd=tmp_path)
    store = Store(tmp_path / "runs")
    (row,) = store.rows()
    row = {**row, "run_id": "0123abcd" * 2}
    with store.run("concat-cut-0123abcd").attempt({}, row, {}, ignore):
        running = call_cli("runs", "0123abcd", "--delete", "--yes", cwd=tmp_path)
        assert running.returncode == 2 and "it is running; --force" in running.stderr
    interrupted = ("runs", "--where", "status=failed,interrupted", "--delete")
    dry = call_cli(*interrupted, cwd=tmp_path)
    assert "nothing is deleted yet: --yes deletes 1 run" in dry.stderr and "concat" in dry.stdout
    assert call_cli(*interrupted, "--yes", cwd=tmp_path).returncode == 0
    assert [row["status"] for row in store.rows()] == ["done"]
    assert "no row meets it" in call_cli(*interrupted, "--yes", cwd=tmp_path).stderr


def test_a_study_is_deleted_with_the_runs_that_no_other_uses(four: Path):
    store = Store(four / "runs")
    record = store.read_study("synthetic")
    assert record
    write_study(store, replace(record, name="other", runs=record.runs[:1]))
    write_study(store, replace(record, name="loose", kind="single", runs=record.runs[1:2]))
    (four / "runs/studies/synthetic/report.html").touch()

    some = call_cli("runs", "synthetic", "--where", "fusion=sum", "--delete", "--yes", cwd=four)
    assert some.returncode == 2 and "synthetic; --force --yes deletes it all the same" in some.stderr

    dry = call_cli("runs", "synthetic", "--delete", cwd=four)
    line = "studies/synthetic with all in it, and 2 runs; runs that others have too stay"
    assert dry.returncode == 0 and f"nothing is deleted yet: --yes deletes runs/{line}" in dry.stderr
    assert len(dry.stdout.splitlines()) == 3 and len(store.finished()) == 4

    done = call_cli("runs", "synthetic", "--delete", "--yes", cwd=four)
    assert done.returncode == 0 and f"deleted runs/{line}" in done.stderr
    assert sorted(store.study_names()) == ["loose", "other"] == sorted(os.listdir(four / "runs/studies"))
    assert sorted(row["run_id"] for row in store.rows()) == record.runs[:2]
    assert sorted(pd.read_csv(four / "runs/results.csv", dtype=str)["run_id"]) == record.runs[:2]


def test_a_study_with_a_run_under_way_stays(four: Path):
    store = Store(four / "runs")
    row = store.rows()[0]
    name = next(name for name in store.finished() if name.endswith(row["run_id"][:8]))
    with store.run(name).attempt({}, row, {}, ignore) as attempt:
        attempt.log("begun")
        done = call_cli("runs", "synthetic", "--delete", "--yes", cwd=four)
    assert done.returncode == 2 and "it is running; --force --yes" in done.stderr
    assert store.study_names() == ["synthetic"] and len(store.finished()) == 4


def test_runs_whose_study_is_gone_can_go(four: Path):
    shutil.rmtree(four / "runs/studies/synthetic")
    assert call_cli("runs", "--where", "seed>=0", "--delete", "--yes", cwd=four).returncode == 0
    assert Store(four / "runs").finished() == set()
    assert len((four / "runs/results.csv").read_text().splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("place", ["environment", "option"])
def test_results_lie_where_one_says(place: str, four: Path):
    os.rename(four / "runs", four / "kept")
    given: dict[str, Any] = {"ABLATE_RUNS": "kept"} if place == "environment" else {}
    option = ["--runs", "kept"] if place == "option" else []

    def call(name: str, *words: str) -> str:
        done = call_cli(name, *words, *option, cwd=four, **given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert len(json.loads(call("runs", "synthetic", "--format", "json"))["rows"]) == 4
    assert "1 run in kept" in call("run", *QUICK)
    if place == "environment":
        assert "sum" in call("compare", "synthetic")
        report = Path("kept", "studies", "synthetic", "report.html")
        assert call("report", "synthetic").strip().endswith(str(report)) and (four / report).exists()
    assert len(Store(four / "kept").finished()) == 5 and not (four / "runs").exists()
    assert call("sample", "concat-h2", "--tokens", "1")


@pytest.mark.parametrize("words", [("--runs", ""), ("--runs", "file"), ("--runs",)])
def test_a_place_that_is_no_directory_is_refused(words: tuple[str, ...], four: Path):
    (four / "file").touch()
    assert "--runs" in refusal("runs", *words, cwd=four)


def test_one_study_is_watched_at_a_time(four: Path):
    assert "--watch a b: " in refusal("runs", "a", "b", "--watch", cwd=four)


def test_a_terminal_has_how_far_the_runs_are(four, monkeypatch):
    monkeypatch.chdir(four)
    screen = io.StringIO()
    seconds: dict[str, Any] = {"seconds": 1.0, "evaluation_seconds": 0.0, "tokens_per_s": 3000.0}
    of_step: dict[str, Any] = {"step": 10, "tokens": 0, "lr": 0.1, "train_loss": 1.0, "grad_norm": 1.0}
    evaluated = Evaluation(0, validation=Score(20.0, 0, 10), **of_step, **seconds)
    monkeypatch.setattr(live, "SHARE", 1e9)  # every time
    monkeypatch.setattr(live, "console", lambda **_: console(file=screen, force_terminal=True, width=100))
    store = Store()
    row = next(row for row in store.rows() if row["status"] == "done")
    name = next(name for name in store.finished() if name.endswith(row["run_id"][:8]))
    with store.run(name).attempt({}, {**row, "steps": 200}, {}, ignore) as attempt:
        attempt.log("begun")
        with Board("synthetic", 4) as at:
            at.listener("other")({"status": "failed", "error": "by hand"})
        with Board("synthetic", None, only={row["run_id"]}) as at:
            at.listener(name)(evaluated)
    shown = screen.getvalue()
    assert "1 running" in shown and "[1/4] other: failed, by hand" in shown
    assert "step 10: train_loss 1.0000, val_loss 2.0000, 3,000 tokens/s" in shown


@pytest.mark.parametrize(
    "options, words",
    [
        (["--delete"], "--delete: name studies or runs, or give --where"),
        (["--delete", "nothing"], "nothing: no run or study begins with it"),
        (["--delete", "run-"], "4 runs begin with it; give more letters"),
    ],
)
def test_what_is_asked_wrongly_deletes_nothing(four: Path, options: list[str], words: str):
    done = call_cli("runs", *options, "--yes", cwd=four)
    assert words in done.stderr and done.stderr.count("\n") <= 5 and done.returncode == 2, done.stderr
    assert len(Store(four / "runs").finished()) == 4


def test_the_time_left_is_that_of_what_is_under_way_and_of_what_has_not_begun():
    done, running = {"status": Status.DONE, "wall_s": 60.0}, {"status": Status.RUNNING}
    assert summary([done], 3) == "1 done, 3 to begin" and summary([]) == "no runs yet"
    statuses = ("done", "running", "done", "failed")
    assert summary([{"status": status} for status in statuses]) == "2 done, 1 failed, 1 running"
    assert time_left([done, running, running], 3) == "; about 2 min left"  # (3 + 2/2)·60/2 s
    assert time_left([done], 3) == "" == time_left([running], 3)  # nothing goes on, or nothing is known
    of_four = [{**running, "members": 4}] * 4
    assert time_left([done, *of_four], 0) == "; about 2 min left"  # not a quarter of it for each
