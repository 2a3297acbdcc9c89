"""Files that were damaged or deleted: each gives a clear line and loses nothing."""

import json
import re

import pytest

from ablate.execution.execute import execute
from ablate.execution.run import prepare
from tests.helpers import LONG, QUICK, Command, call_cli, make_config, refusal, stopping
from tests.test_pool import logs, results, training, wait_for

pytestmark = pytest.mark.slow


def kill(process: Command) -> str:
    """What it had written to its errors."""
    process.kill()
    return process.communicate()[1]


def test_other_threads_go_on_from_no_checkpoint_and_delete_none(tmp_path, start):
    long = (*QUICK[:2], "train.batch=2", "train.steps=1000000", "train.checkpoint_every=10")
    process = start("run", *long, cwd=tmp_path, OMP_NUM_THREADS="2")
    wait_for(lambda: len(training(tmp_path)) == 1)
    kill(process)
    kept = training(tmp_path)
    line = refusal("run", *long, cwd=tmp_path)
    assert (
        "was made otherwise (threads was 2, is 1) and is kept: hydra.launcher.threads=2 goes on from" in line
    )
    assert [path.name for path in training(tmp_path)] == [path.name for path in kept]
    for word, begins in (("hydra.launcher.threads=2", "going on after step"), ("force=stale", "begun")):
        count = sum(log.count(begins) for log in logs(tmp_path))
        goes_on = start("run", *long, word, cwd=tmp_path)
        wait_for(lambda begins=begins, count=count: sum(log.count(begins) for log in logs(tmp_path)) > count)
        kill(goes_on)


def test_a_sweep_leaves_a_run_to_machines_of_its_kind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keys = (*QUICK[:4], "train.eval_every=1", "train.checkpoint_every=1")
    with pytest.raises(KeyboardInterrupt):
        execute(prepare(make_config(*keys, "seed=1")), stopping(2))
    (kept,) = training(tmp_path)
    row = json.loads((kept.parent / "result.json").read_text())
    (kept.parent / "result.json").write_text(json.dumps({**row, "processor": "another"}))

    sweep = ("run", "-m", "seed=0,1", *keys)
    done = call_cli(*sweep, cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.count("processor was another, is ") == 1, done.stderr
    assert re.search("seed=1.*: concat-h4-d64x2-s1-.*: its ch", done.stderr)
    (still,) = training(tmp_path)
    assert still.name == kept.name and results(tmp_path)["status"].tolist().count("done") == 1
    (still.parent / "result.json").write_text(json.dumps(row))  # as on one of its kind
    assert call_cli(*sweep, cwd=tmp_path).returncode == 0
    assert results(tmp_path)["status"].tolist() == ["done", "done"]


def test_a_damaged_checkpoint_is_put_aside_and_the_run_begins_anew(tmp_path, start):
    process = start("run", *LONG, cwd=tmp_path)
    wait_for(lambda: len(training(tmp_path)) == 1)
    kill(process)
    (checkpoint,) = training(tmp_path)
    content = bytearray(checkpoint.read_bytes())
    content[-5] ^= 1
    checkpoint.write_bytes(content)
    again = start("run", *LONG, cwd=tmp_path)
    wait_for(lambda: any((tmp_path / "runs" / "damaged").glob("*")))
    (aside,) = (tmp_path / "runs" / "damaged").iterdir()
    assert (aside / checkpoint.name).read_bytes() == content
    wait_for(lambda: len(training(tmp_path)) == 1)
    err = kill(again)
    assert checkpoint.name in err and "damaged" in err and "Traceback" not in err
    (part,) = (tmp_path / "runs" / "store").glob(".*.part/*")
    assert json.loads((part / "result.json").read_text())["status"] == "running"
    assert "going on" not in (part / "log.txt").read_text()
