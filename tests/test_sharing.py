"""Many processes on one store: who is at a run, who gets it, and that nothing is lost or mixed."""

import contextlib
import errno
import fcntl
import json
import multiprocessing
import os
import re
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ablate.execution.execute import execute, record_failure
from ablate.execution.run import Run, prepare
from ablate.files import atomic
from ablate.files.atomic import StoreError, locked
from ablate.launch.pool import train_or_wait
from ablate.launch.queue import AGAIN_S, Queue, place_in_array
from ablate.printing import left_out
from ablate.store import lease
from ablate.store.run_files import Checkpoint, read_checkpoint, sealed
from ablate.store.run_folder import Busy, RunFolder
from ablate.store.store import Store
from ablate.study.growth import grown
from ablate.training.events import Evaluation, News
from tests.helpers import QUICK, ROOT, ignore, make_config, make_record, write_study
from tests.test_pool import wait_for

ROW = {"run_id": "0123456789abcdef", "status": "running", "code": "c", "torch": "t", "seed": 0}
METRICS = {"tokens": 21, "lr": 0.1, "train_loss": 2.5, "val_loss": 2.25, "grad_norm": 1.0, "seconds": 0.5}
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="tried on Linux only")
FORK = multiprocessing.get_context("fork")


def attempt(run: RunFolder):
    """By another process, as it were."""
    root, name = run.directory.parents[1], run.directory.name
    return RunFolder(root, name).attempt({"heads": 4}, ROW, {}, ignore)


def finish(folder: RunFolder, status: str = "done") -> None:
    folder.finish({**ROW, "status": status})


def make(run: RunFolder, status: str = "done") -> bool:
    """Whether it was to be made."""
    with attempt(run) as folder:
        if folder.finished:
            folder.drop()
        else:
            finish(folder, status)
    return not folder.finished


def leased(tmp_path: Path) -> Path:
    """The directory of an attempt with a lease of this process."""
    attempt = tmp_path / "store" / ".run.part" / lease.name(tmp_path / "store")
    attempt.mkdir(parents=True)
    return attempt


def sign_of(attempt: Path) -> Path:
    return lease._sign_of(attempt)


def elsewhere(monkeypatch: pytest.MonkeyPatch, expires_s: float = -1) -> None:
    """From here on this process is on another machine, where leases expire, by default at once."""
    monkeypatch.setattr(lease, "_boot", lambda: "another")
    monkeypatch.setattr(lease, "EXPIRES_S", expires_s)


def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)


def in_other_processes(work: Callable[..., Any], *arguments: Any, processes: int = 16) -> list[Any]:
    """What each of them answers; they begin together."""
    start, answers = FORK.Barrier(processes), FORK.Queue()

    def begin() -> None:
        start.wait()
        try:
            answers.put(work(*arguments))
        except BaseException:
            answers.put(traceback.format_exc())

    herd = [FORK.Process(target=begin) for _ in range(processes)]
    for process in herd:
        process.start()
    heard = [answers.get(timeout=60) for _ in herd]
    for process in herd:
        process.join()
    wrong = [answer for answer in heard if "Traceback" in answer]
    assert not wrong, wrong[0]
    return heard


# --- who is at a run ------------------------------------------------------------------------------


def test_on_its_machine_a_process_lives_as_long_as_its_lock(tmp_path):
    """Whatever its heartbeat says: it may have been stopped, or the clock set."""
    mine = leased(tmp_path)
    os.utime(sign_of(mine), (0, 0))
    lease.sweep(tmp_path / "store")
    assert lease.is_live(mine)
    lease.release(mine)
    assert not any(map(lease.is_live, tmp_path.glob("store/.run.part/*")))


@pytest.mark.parametrize("where", [elsewhere, without_locks])
def test_anywhere_else_it_lives_by_its_heartbeat(tmp_path, monkeypatch, where):
    mine = leased(tmp_path)
    where(monkeypatch)
    monkeypatch.setattr(lease, "EXPIRES_S", 120)
    lease.sweep(tmp_path / "store")
    assert lease.is_live(mine)
    os.utime(sign_of(mine), (0, 0))
    assert not lease.is_live(mine)


@LINUX
@pytest.mark.parametrize("leaves", [False, True], ids=["", "and leaves a child"])
def test_a_process_that_has_ended_is_dead(tmp_path, leaves):
    """Also while it waits to be asked how, and if a process lives that it forked."""
    pipe, other = os.pipe()
    if not (child := os.fork()):
        leased(tmp_path)
        os.close(other)
        if leaves and not os.fork():
            os.read(pipe, 1)  # until this test ends
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    (attempt,) = tmp_path.glob("store/.run.part/*")
    wait_for(lambda: sign_of(attempt).exists() and not lease.is_live(attempt))  # a fork holds its lock first
    lease.sweep(tmp_path / "store")
    assert not sign_of(attempt).exists() and not lease.is_live(attempt)
    os.waitpid(child, 0)
    os.close(pipe)
    os.close(other)


def dated(path: Path, ahead_s: float) -> None:
    os.utime(path, (when := time.time() + ahead_s, when))


@pytest.mark.parametrize("ahead_s", [2 * 86400, 600.0])
def test_a_lease_dated_ahead_counts_from_when_it_is_met(tmp_path, monkeypatch, ahead_s):
    """As of a machine that died before its clock, or that of the disk, was set back."""
    run = Store(tmp_path).run("run")
    with attempt(run) as writer:
        sign = sign_of(writer.path)
        dated(sign, ahead_s)
        elsewhere(monkeypatch, 120)
        who = f"run: process {os.getpid()} on {socket.gethostname()} is training this run"
        with pytest.raises(Busy, match=rf"^{who} \(if it is gone, delete {sign}\)$"), attempt(run):
            pass
        assert abs(sign.stat().st_mtime - time.time()) < 60
        with pytest.raises(Busy, match=r"this run, last heard of \d s ago \(if it is gone, "), attempt(run):
            pass
        dated(sign, -121)
        with attempt(run) as second:
            assert second.path != writer.path


def test_a_heartbeat_waits_for_no_computation(tmp_path, monkeypatch):
    monkeypatch.setattr(lease, "HEARTBEAT_S", 0.01)
    lease._close_sign()
    with attempt(Store(tmp_path).run("run")) as writer:
        os.utime(sign := sign_of(writer.path), (0, 0))
        limit = time.monotonic() + 10
        while sign.stat().st_mtime == 0:  # nothing is written meanwhile
            assert time.monotonic() < limit


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE, errno.EACCES])
def test_what_cant_be_read_at_this_moment_is_neither_dead_nor_damaged(tmp_path, monkeypatch, code):
    def refuse(path: Path, *_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code), str(path))

    run = Store(tmp_path).run("run")
    make(run)
    with attempt(run) as writer, monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refuse)
        assert lease.is_live(writer.path)
        with pytest.raises(StoreError, match=r"result\.json: can't be read"):
            run.read()
        left_out()
        assert Store(tmp_path).rows() == []
        assert len(lines := left_out()) == 2 and all("result.json: can't be read" in line for line in lines)
    assert not (tmp_path / "damaged").exists()


# --- who gets it ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_of_several_processes_exactly_one_gets_a_run(tmp_path):
    all_have_tried = FORK.Barrier(16)

    def take() -> str:
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(attempt(Store(tmp_path).run("run")))
                return "mine"
            except Busy as error:
                return "another's" if re.search("is training|just begun", str(error)) else str(error)
            finally:
                all_have_tried.wait(60)

    assert sorted(in_other_processes(take)) == ["another's"] * 15 + ["mine"]


def make_all(root: Path, names: list[str]) -> list[str]:
    """As commands that share a sweep: look, make, look again."""
    store, made = Store(root), []
    for name in names:
        run = store.run(name)
        try:
            if run.read() is None and make(run):
                made.append(name)
        except Busy:
            pass
        store.rows()
    return made


@pytest.mark.slow
def test_runs_are_made_once_and_never_moved_by_those_who_look(tmp_path):
    names = [f"run-{n:08x}" for n in range(40)]
    made = in_other_processes(make_all, tmp_path, names)
    assert sorted(name for names in made for name in names) == names
    assert sorted(path.name for path in (tmp_path / "store").glob("*run*")) == names
    assert not (tmp_path / "damaged").exists()


def test_who_lost_a_run_writes_nothing_into_it_and_stops(tmp_path, monkeypatch):
    run = Store(tmp_path).run("run")
    with pytest.raises(Busy, match="has taken this run over"), attempt(run) as first:
        first.metrics({**METRICS, "step": 1})
        first.log("first")
        elsewhere(monkeypatch)
        with attempt(run) as second:
            for write in (
                lambda: first.metrics({**METRICS, "step": 2}),
                lambda: first.log("first again"),
                lambda: first.write("environment.json", "{}"),
                lambda: first.seal({**ROW, "status": "done"}),
            ):
                with pytest.raises(Busy, match="has taken this run over"):
                    write()
            second.metrics({**METRICS, "step": 3})
            finish(second)
        first.metrics({**METRICS, "step": 4})
    lines = (run.directory / "metrics.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["step", "3"]
    assert (run.directory / "log.txt").read_text() == "first\n"
    assert [path.name for path in (tmp_path / "store").glob("*run*")] == ["run"]


def test_a_single_run_waits_for_who_is_at_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ablate.launch.pool.AGAIN_S", 0.01)
    run, (pipe, child) = prepare(make_config(*QUICK)), FORK.Pipe()
    stored, heard = Store().run(run.name), []

    def begin() -> None:
        with attempt(stored) as writer:
            child.send("begun")
            child.recv()
            writer.finish({**ROW, "run_id": run.run_id, "status": "done"})

    def listen(news: News) -> None:
        if not isinstance(news, Busy):
            heard.append(type(news))
        if isinstance(news, str):
            pipe.send("go on")

    other = FORK.Process(target=begin)
    other.start()
    assert pipe.recv() == "begun"
    train_or_wait(run, listen)
    other.join()
    assert heard == [str, type(None)]


# --- killed at any moment -------------------------------------------------------------------------


class Killed(BaseException):
    """From here on this process does nothing any more."""


def killed_before(call: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Let the process end before its operation of this number that changes names; returns their count."""
    count = 0

    def counted(operation: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count >= call:
                raise Killed
            return operation(*arguments, **options)

        return act

    for name in ("rename", "replace", "unlink", "rmdir", "mkdir"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    return lambda: count


def make_anew(run: RunFolder, steps: tuple[int, ...] = (3, 6)) -> int:
    """Put a result in the place of the one that is there; returns the step that it went on from."""
    with run.attempt({"heads": 4}, ROW, {}, ignore) as writer:
        began = writer.start.step if writer.start else 0
        for step in steps:
            writer.checkpoint(Checkpoint(step, {"w": np.zeros(2)}, [{**METRICS, "step": step}], 1.0, 0.5))
        writer.finish({**ROW, "status": "done", "val_loss": 1.0})
    return began


@pytest.mark.slow
@pytest.mark.parametrize("left", [False, True], ids=["", "and an attempt that was interrupted"])
def test_killed_before_any_of_its_operations_nothing_is_lost(tmp_path, monkeypatch, left):
    """With a result of before, whose place a new one is to take."""
    for call in range(1, 1000):
        run = Store(tmp_path / str(call)).run("run")
        make(run)
        if left:
            with contextlib.suppress(KeyboardInterrupt), attempt(run) as writer:
                writer.checkpoint(Checkpoint(2, {"w": np.zeros(2)}, [{**METRICS, "step": 2}], 1.0, 0.5))
                raise KeyboardInterrupt
        with monkeypatch.context() as patch:
            calls = killed_before(call, patch)
            with contextlib.suppress(Killed):
                make_anew(run)
            if calls() < call:
                assert call > 15
                break
        whole = [path for path in run.attempts.glob("*") if sealed(path)]
        kept = [last.step for path in run.attempts.glob("*") if (last := read_checkpoint(path))]
        assert (run.read() or whole) and (kept or not left or whole or (run.read() or {}).get("val_loss"))
        with monkeypatch.context() as patch:
            elsewhere(patch)
            if (run.read() or {}).get("val_loss") != 1.0:
                assert make_anew(run) == max(kept, default=0) or whole  # which was published
            if run.attempts.exists():  # killed after its run was published
                make_anew(run)
        assert (run.read() or {})["val_loss"] == 1.0
        assert [path.name for path in (tmp_path / str(call) / "store").glob("*run*")] == ["run"], call


@pytest.mark.slow
def test_of_300_kills_none_changes_a_byte():
    """Of one of two processes at once, at any moment, which is started again."""
    command = [sys.executable, "-m", "tests.killing", "runs", "300"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "300 kills\n", done.stderr


# --- one try a command ----------------------------------------------------------------------------


def broken(*_: Any) -> None:
    raise RuntimeError("broken\nin a line of its own")


def test_a_run_that_fails_is_tried_once_by_commands_that_begin_together(tmp_path, monkeypatch):
    run, heard = replace(prepare(make_config(*QUICK)), replaces=[]), []
    monkeypatch.setattr("ablate.execution.execute._compute", broken)
    assert execute(run, heard.append, tmp_path)["error"] == "RuntimeError: broken"
    failure = Store(tmp_path).run(run.name).stamp()
    assert "Traceback" in (Store(tmp_path).run(run.name).directory / "log.txt").read_text()
    assert execute(run, heard.append, tmp_path)["status"] == "failed"  # it began before that
    after = replace(run, replaces=failure)
    assert execute(after, heard.append, tmp_path)["status"] == "failed"  # it began after that
    assert Store(tmp_path).run(run.name).stamp() != failure
    ends = [type(news) for news in heard if not isinstance(news, str | Evaluation)]
    assert ends == [dict, type(None), dict]


def test_another_run_whose_id_begins_alike_is_not_taken_for_it(tmp_path):
    run = prepare(make_config(*QUICK))
    other = {**ROW, "run_id": run.run_id[:8] + "00000000", "status": "done"}
    with Store(tmp_path).run(run.name).attempt({}, other, {}, ignore) as folder:
        folder.finish(other)
    with pytest.raises(StoreError, match=f"there lies another run, {other['run_id']}, whose id begins as"):
        execute(run, ignore, tmp_path)
    assert Store(tmp_path).rows()[0]["run_id"] == other["run_id"]


@pytest.mark.parametrize("crash", [False, True])
def test_a_failure_never_takes_the_place_of_a_result(tmp_path, monkeypatch, crash):
    """With force=true, where the new attempt raises, or its process is gone."""
    config = make_config(*QUICK)
    run, stored = prepare(config), Store(tmp_path).run(prepare(config).name)
    execute(run, lambda event: None, tmp_path)
    known = stored.stamp()
    again = replace(prepare(replace(config, force=True)), replaces=known)
    monkeypatch.setattr("ablate.execution.execute._compute", broken)
    with pytest.raises(StoreError, match=r"broken; its earlier result stays, .* in .*\.part$"):
        if crash:
            record_failure(again, "broken", tmp_path)
        else:
            execute(again, lambda event: None, tmp_path)
    assert stored.stamp() == known
    (attempt,) = tmp_path.glob(f"store/.{run.name}.part/*")
    assert "broken" in (attempt / "log.txt").read_text()
    assert [row["status"] for row in Store(tmp_path).rows()] == ["done"]


# --- the order ------------------------------------------------------------------------------------


def runs_of(count: int) -> list[Any]:
    return [SimpleNamespace(name=f"run-{n:08x}") for n in range(count)]


def picked(queue: Queue, runs: Sequence[Run]) -> list[int]:
    return [runs.index(run) for _ in range(20) for run in queue.next()]


def test_each_command_begins_at_another_place():
    runs = runs_of(6)
    assert picked(Queue(runs, {runs[4].name}, start=0), runs) == [4, 0, 1, 2, 3, 5]  # one was cut off
    assert picked(Queue(runs, set(), start=0.5), runs) == [3, 4, 5, 0, 1, 2]
    runs = runs_of(50)
    orders = {tuple(picked(Queue(runs, set()), runs)) for _ in range(20)}
    assert len(orders) > 5


def test_tasks_of_an_array_begin_at_their_places_in_it(monkeypatch):
    for name, value in (("MIN", "10"), ("MAX", "13")):
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", value)
    first, runs = [], runs_of(8)
    for task in range(10, 14):
        monkeypatch.setenv("SLURM_ARRAY_TASK_ID", str(task))
        first.append(picked(Queue(runs, set()), runs)[0])
    assert first == [0, 2, 4, 6]
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "")
    assert 0 <= place_in_array() < 1


def test_what_another_is_at_comes_last(monkeypatch):
    runs = runs_of(3)
    queue = Queue(runs, set(), start=0)
    assert queue.next() == [runs[0]]
    queue.later(runs[0])
    assert picked(queue, runs) == [1, 2] and queue
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 2 * AGAIN_S)
    assert queue.next() == [runs[0]] and not queue


# --- studies --------------------------------------------------------------------------------------


def add(root: Path) -> str:
    run = f"{os.getpid():016x}"
    for part in ("a", "b", "c"):
        new = make_record(name="mine", runs=[f"{part}{run[1:]}"], seeds=[0])
        Store(root).change_study("mine", lambda before, new=new: grown(before, new))
    return run


@pytest.mark.slow
def test_commands_that_change_a_study_at_once_never_undo_each_other(tmp_path):
    added = in_other_processes(add, tmp_path)
    record = Store(tmp_path).read_study("mine")
    expected = sorted(f"{part}{run[1:]}" for run in added for part in "abc")
    assert record and record.runs == expected


def test_who_waits_for_long_is_told_for_what(tmp_path, monkeypatch, caplog):
    """As for a race, which another process may run for hours."""

    def wait() -> None:
        with locked(tmp_path / "lock"):
            pass

    waits = threading.Thread(target=wait)
    with locked(tmp_path / "lock"):
        monkeypatch.setattr(atomic, "LONG_S", 0.01)
        waits.start()
        limit = time.monotonic() + 10
        while not caplog.messages:
            assert time.monotonic() < limit
    waits.join()
    assert caplog.messages == [f"{tmp_path / 'lock'}: another process has it; waiting"]


def test_an_edit_of_study_json_by_hand_counts(tmp_path):
    store, mine = Store(tmp_path), tmp_path / "studies" / "mine" / "study.json"
    write_study(store, make_record(name="mine", seeds=[0]))
    mine.write_text(json.dumps({**json.loads(mine.read_text()), "margin": 0.5}))
    store.change_existing("mine", lambda record: replace(record, seeds=[0, 1]))
    record = store.read_study("mine")
    assert record and (record.seeds, record.margin) == ([0, 1], 0.5)
