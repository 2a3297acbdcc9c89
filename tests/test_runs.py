"""`ablate runs`: in which order, which columns, and what may be deleted."""

import io
import json
import os
import re
import time
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from ablate.execution.events import Evaluated, Finished, Stepped
from ablate.live import board
from ablate.live.board import Board
from ablate.live.table import Pace, summary, time_left
from ablate.store.columns import Status
from ablate.store.removal import named, prunable, remove
from ablate.store.store import Store, StoreError
from tests.helpers import call_cli
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
    return pd.DataFrame(json.loads(done.stdout))


def test_the_newest_is_last_and_ages_are_told(four: Path):
    assert listed(four)["age"].round(-1).tolist() == [172_900, 7300, 3700, 60]
    text = call_cli("runs", cwd=four).stdout
    ages = [line.split()[1] for line in text.splitlines()[1:]]
    assert ages[:3] == ["2days", "2.0h", "62min"] and re.fullmatch(r"[6-9]\ds", ages[3])


def test_rows_and_columns_are_chosen(four: Path):
    assert listed(four, "--where", "fusion=sum")["fusion"].tolist() == ["sum", "sum"]
    table = listed(four, "--sort", "-val_loss", "--columns", "train.lr,val_loss,age")
    assert [*table.columns] == ["lr", "val_loss", "age"]
    done = table["val_loss"].dropna()
    assert done.is_monotonic_decreasing and len(done) == 3
    for option in ("--sort", "--columns"):
        done = call_cli("runs", option, "val_los", cwd=four)
        line = f"{option} val_los: no column val_los; did you mean val_loss?"
        assert done.returncode == 2 and line in done.stderr


def test_what_a_study_needs_stays_unless_told(four: Path):
    store = Store(four / "runs")
    run = next(iter(store.finished()))
    done = call_cli("runs", "--delete", run, "--yes", cwd=four)
    assert done.returncode == 2 and "it is in synthetic; --force --yes deletes it all the same" in done.stderr
    assert len(store.finished()) == 4
    done = call_cli("runs", "--delete", run, "--force", cwd=four)
    assert done.returncode == 0 and "nothing is deleted yet" in done.stderr and run in done.stdout
    assert len(store.finished()) == 4
    done = call_cli("runs", "--delete", run, "--force", "--yes", cwd=four)
    assert done.returncode == 0 and "deleted 1 run" in done.stderr
    assert len(store.finished()) == 3 and len(listed(four, "synthetic")) == 3
    record = store.read_study("synthetic")
    assert record and len(record.runs) == 4  # its command makes it again
    assert len(pd.read_csv(four / "runs/studies/synthetic/results.csv")) == 3


def test_single_runs_go_and_their_list_forgets_them(tmp_path: Path):
    for seed in (0, 1):
        call_cli("run", *QUICK, f"seed={seed}", cwd=tmp_path)
    store = Store(tmp_path / "runs")
    (kept, gone) = sorted(store.finished())
    done = call_cli("runs", "--delete", gone.rpartition("-")[2], "--yes", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert store.finished() == {kept}
    record = store.read_study("single")
    assert record and len(record.runs) == 1
    assert [name for name in os.listdir(tmp_path / "runs/store") if "gone" in name] == []
    assert len(pd.read_csv(tmp_path / "runs/results.csv")) == 1


def test_pruning_takes_what_nobody_needs(tmp_path: Path):
    call_cli("run", *QUICK, cwd=tmp_path)
    call_cli("run", *QUICK, "seed=1", "train.lr=1e30", "train.clip=null", cwd=tmp_path)  # diverged: a result
    store = Store(tmp_path / "runs")
    assert prunable(store) == []
    assert "nothing to delete" in call_cli("runs", "--prune", cwd=tmp_path).stderr
    row = next(row for row in store.rows() if row["status"] == "done")
    with store.run("concat-cut-0123abcd").attempt({}, {**row, "run_id": "0123abcd" * 2}, known=[]):
        (running,) = named(store, ["0123abcd"])
        assert running.needed_by == "it is running"
    (cut_off,) = prunable(store)
    assert cut_off.row["status"] == Status.INTERRUPTED and cut_off.size > 0
    assert "nothing is deleted yet" in call_cli("runs", "--prune", cwd=tmp_path).stderr
    assert call_cli("runs", "--prune", "--yes", cwd=tmp_path).returncode == 0
    assert prunable(store) == [] and len(store.finished()) == 2


def test_a_terminal_has_the_table_of_the_store_with_steps_that_only_the_command_knows(four, monkeypatch):
    monkeypatch.chdir(four)
    screen = io.StringIO()
    monkeypatch.setattr(board, "SHARE", 1e9)  # every time
    monkeypatch.setattr(
        board, "Console", lambda **_: Console(file=screen, force_terminal=True, width=100, highlight=False)
    )
    store = Store()
    row = next(row for row in store.rows() if row["status"] == "done")
    name = next(name for name in store.finished() if name.endswith(row["run_id"][:8]))
    with store.run(name).attempt({}, {**row, "steps": 200}, known=store.run(name).stamp()):
        with Board("synthetic", 4) as at:
            at.listener(name)(Stepped(50, 1.25))
            at.listener("other")(Finished({"status": "failed", "error": "by hand"}))
        with Board("synthetic", None, only={row["run_id"]}) as at:
            at.listener(name)(Evaluated(10, 1.0, 2.0, 3000.0))
            at.listener(name)(Stepped(200, 1.0))
    shown = screen.getvalue()
    assert "1 running" in shown and "50/200" in shown and "1.2500" in shown
    assert "[1/4] other: failed, by hand" in shown
    assert "step 10: train_loss 1.0000, val_loss 2.0000, 3,000 tokens/s" in shown
    assert "evaluating" in shown and "200/200" in shown


def test_a_process_that_is_at_a_deleted_run_hears_of_it(tmp_path: Path):
    store = small_study(tmp_path / "runs", seeds=1)
    row = store.rows()[0]
    with (
        pytest.raises(StoreError),
        store.run("x-0123abcd").attempt({}, {**row, "run_id": "0123abcd" * 2}, known=[]) as at,
    ):
        remove(store, named(store, ["x-"]))
        at.log("still here")


@pytest.mark.parametrize(
    "options, words",
    [
        (["--delete", "nothing"], "nothing: no run begins with it"),
        (["--delete", ""], "no run begins with it"),
        (["--delete"], "name the runs"),
        (["--delete", "run-"], "4 runs begin with it; give more letters"),
        (["--prune", "run-"], "takes no runs"),
    ],
)
def test_what_is_asked_wrongly_deletes_nothing(four: Path, options: list[str], words: str):
    done = call_cli("runs", *options, "--yes", cwd=four)
    assert words in done.stderr and done.stderr.count("\n") <= 5, done.stderr
    assert len(Store(four / "runs").finished()) == 4


def test_the_time_left_is_that_of_what_is_under_way_and_of_what_has_not_begun():
    done = {"status": Status.DONE, "wall_s": 60.0}
    assert summary([done], 3) == "1 done, 3 to begin" and summary([]) == "no runs yet"
    statuses = ("done", "running", "done", "failed")
    assert summary([{"status": status} for status in statuses]) == "2 done, 1 failed, 1 running"
    going_on = [Pace({"steps": 40}, 10, 1.0, {}), Pace({"steps": 50}, 5, 2.0, {})]
    assert time_left([done], going_on, 3) == "; about 2 min left"  # (30 + 90 + 3·60)/2 s
    assert time_left([], going_on, 4) == "; about 3 min left"  # (30 + 90 + 4·70)/2 s
    assert time_left([done], [], 3) == "" == time_left([done], [Pace({"steps": 40}, 0, None, {})], 0)
    assert time_left([], going_on, 0) == "; about 60 s left"
