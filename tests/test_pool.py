"""The pool: what happens to runs, workers and the parent when something ends before its time."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pandas as pd
import psutil
import pytest

from ablate.compute import device, limits
from ablate.config.rules import ConfigError
from ablate.launch import processes
from tests.helpers import LONG, ROOT, SIMULATED, call_cli, fork_cli, present, refusal

pytestmark = pytest.mark.slow
SAME = ["run_id", "status", "threads", "train_loss", "val_loss", "test_loss"]  # whoever makes a run


def results(cwd: Path) -> pd.DataFrame:
    return pd.read_csv(cwd / "runs" / "results.csv")


def wait_for(condition, timeout_s: float = 60) -> None:
    limit = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < limit, "it did not happen"
        time.sleep(0.05)


def of_parts(name: str, cwd: Path) -> list[Path]:
    """The files of this name of the runs that are under way."""
    return present(cwd, f"runs/store/.*.part/*/{name}")


training = partial(of_parts, "checkpoint-*")


def held(cwd: Path) -> list[str]:
    """The signs, in leases, of processes that live as far as other machines know."""
    named = [path.name.partition(".")[2] for path in present(cwd, "runs/store/.*.part/*")]
    return [sign for sign in named if sign and (cwd / "runs/store/.alive" / sign).exists()]


def logs(cwd: Path) -> list[str]:
    """The texts of the logs of the runs under way; a file may go between its listing and its reading."""
    texts = []
    for log in of_parts("log.txt", cwd):
        with contextlib.suppress(FileNotFoundError):
            texts.append(log.read_text())
    return texts


def group_of(process: subprocess.Popen) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def lives(process: psutil.Process) -> bool:
    """A zombie has ended; it waits for a parent to ask how."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_workers_read_the_text_that_the_command_was_given(tmp_path):
    """They are forked from a process that began before the text was read."""
    text = "the quick brown fox jumps over the lazy dog\n" * 200
    sweep = ("run", "-m", "corpus=file", "corpus.path=-", "seed=0,1", SIMULATED[0])
    done = fork_cli(*sweep, cwd=tmp_path, piped=text)
    assert done.returncode == 0, done.stderr
    assert results(tmp_path)["status"].tolist() == ["done", "done"]


# A sitecustomize.py that every Python process reads: it breaks the runs of the seeds that the test names, on
# a disk without locks, where nothing but its parent knows that a worker is dead.
BROKEN = """
import errno, fcntl, json, os, sys
if os.environ.get("BREAK"):
    def without_locks(*_):
        raise OSError(errno.ENOSYS, "no locks")
    fcntl.flock = without_locks
    import ablate.execution.execute as execute
    original = execute._compute
    def broken(attempts):
        for attempt in attempts:
            if code := json.loads(os.environ["BREAK"]).get(str(attempt.run.config.seed)):
                attempt.folder.log("about to break")
                exec(code)
        return original(attempts)
    execute._compute = broken
"""


@pytest.fixture
def breaking(tmp_path):
    """The environment in which the runs of some seeds break by the given codes."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(BROKEN)
    path = os.pathsep.join([str(tmp_path / "site"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return lambda codes: {"PYTHONPATH": path, "BREAK": json.dumps(codes)}


def test_runs_that_break_fail_alone_with_their_reason(tmp_path, breaking, start_python):
    breaks = {
        1: ("raise ValueError('no luck')", "ValueError: no luck"),
        2: ("os.kill(os.getpid(), 11)", "SIGSEGV"),
        3: ("os.kill(os.getpid(), 9)", "SIGKILL; out of memory?"),
        4: ("os._exit(7)", "exit code 7"),
    }
    sweep = ("run", "-m", "seed=range(8)", *SIMULATED)
    codes = {seed: code for seed, (code, _) in breaks.items()}
    process = start_python(*sweep, cwd=tmp_path, **breaking(codes))
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1 and "Traceback" not in err
    rows = results(tmp_path).set_index("seed")
    assert rows["status"].to_dict() == {s: "failed" if s in breaks else "done" for s in range(8)}
    for seed, (_, reason) in breaks.items():
        assert reason in str(rows.loc[seed, "error"]) and reason in err
        (log,) = (tmp_path / "runs" / "store").glob(f"*-s{seed}-*/log.txt")
        assert "about to break" in log.read_text() and reason in log.read_text()
    assert not held(tmp_path)  # for which another machine would wait
    again = call_cli(*sweep, cwd=tmp_path)
    assert again.returncode == 0 and "4 of 8 runs had finished before" in again.stderr
    assert set(results(tmp_path)["status"]) == {"done"}


def test_ctrl_c_ends_everything_and_the_same_command_goes_on(tmp_path, start, start_python):
    command = ("run", "-m", "seed=0,1,2", *LONG, "hydra.launcher.workers=2")
    process = start_python(*command, cwd=tmp_path)
    wait_for(lambda: len(training(tmp_path)) == 2)
    workers = group_of(process)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    wait_for(lambda: not any(map(lives, workers)))
    assert process.returncode == 130 and "Traceback" not in err and "interrupted" in err
    assert not held(tmp_path)
    rows = call_cli("runs", "--format", "csv", cwd=tmp_path).stdout
    assert rows.count("interrupted") == 2 and rows.count("running") == 0
    again = start(*command, cwd=tmp_path)
    wait_for(lambda: sum("going on after" in text for text in logs(tmp_path)) == 2)
    os.killpg(again.pid, signal.SIGKILL)
    assert "2 to go on from step " in again.communicate()[1]


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_the_parent(tmp_path, ending, start):
    process = start("run", "-m", "seed=0,1", *LONG, cwd=tmp_path)
    wait_for(lambda: len(training(tmp_path)) == 2)
    workers = group_of(process)
    assert len(workers) >= 2
    process.send_signal(ending)  # to the parent alone
    wait_for(lambda: not any(map(lives, workers)))
    process.communicate(timeout=30)
    assert process.returncode == (143 if ending == signal.SIGTERM else -signal.SIGKILL)
    if ending == signal.SIGTERM:  # else it is their lock that tells other commands of this machine
        assert not held(tmp_path)
    rows = call_cli("runs", "--format", "csv", cwd=tmp_path).stdout
    assert rows.count("interrupted") == 2 and rows.count("running") == 0


def fill(directory: Path, launcher: str) -> pd.DataFrame:
    """The rows of a store that the pool begins and this launcher fills, from the second seed on."""
    directory.mkdir()
    mine = ("run", "-m", "fusion=sum,mean", *SIMULATED, "name=mine")
    assert call_cli(*mine, "seed=0", cwd=directory).returncode == 0
    for finished in (2, 4):
        done = call_cli(*mine, "seed=0,1", f"hydra/launcher={launcher}", cwd=directory)
        assert done.returncode == 0 and f"{finished} of 4 runs had finished" in done.stderr, done.stderr
    return results(directory)[SAME]


def test_hydras_own_launcher_fills_the_same_store(tmp_path):
    """test_launchers.py tries those that take seconds."""
    pd.testing.assert_frame_equal(fill(tmp_path / "pool", "pool"), fill(tmp_path / "basic", "basic"))


@pytest.mark.parametrize("setting", ["workers=0", "members=x", "members=1025"])
def test_wrong_settings_are_one_line(tmp_path, setting):
    line = refusal("run", "-m", "seed=0,1", f"hydra.launcher.{setting}", cwd=tmp_path)
    assert line.startswith(f"ablate: hydra.launcher.{setting}: use auto or a whole number from 1 to 1024")


def test_cores_are_those_given_to_this_process(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "QUOTA", quota := tmp_path / "cpu.max")
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    assert limits.available_cores() == 8
    quota.write_text("max 100000\n")
    assert limits.available_cores() == 8
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "3")
    assert limits.available_cores() == 3
    quota.write_text("250000 100000\n")
    monkeypatch.delenv("OMP_NUM_THREADS")
    each = limits.threads_each
    assert limits.available_cores() == 2
    assert (each(1, 1e12), each(5, 1e12), each(1, 1e9), each(1, 3.8e9)) == (2, 1, 1, 2)
    assert [device.workers([], threads) for threads in (1, 2, 3)] == [2, 1, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert each(5, 1e9) == 7
    quota.write_text("40000 100000\n")
    assert limits.available_cores() == 1


def test_a_script_without_a_main_guard_may_sweep(tmp_path):
    keys = {"train": "simulated", "corpus": "grammar", "corpus.characters": 5000}
    script = f"import ablate\nrows = ablate.run(seed=[0, 1], **{keys})\nprint(list(rows.status))\n"
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout == "['done', 'done']\n", done.stderr


def test_values_come_in_order_and_a_lost_process_says_why():
    assert [*processes.map_in_workers(abs, range(-5, 0), 2)] == [5, 4, 3, 2, 1]
    with pytest.raises(ConfigError, match="a worker process is lost: ZeroDivisionError"):
        list(processes.map_in_workers(partial(divmod, 1), [1, 0], 2))
