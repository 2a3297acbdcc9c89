"""A sweep that is killed again and again comes to the same bytes: benchmarks/kills.py in short."""

import contextlib
import os
import random
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ablate.execution.events import Event, Finished, ignore
from ablate.execution.execute import execute, settled
from ablate.execution.run import PlacedRun, prepare
from ablate.store.run_files import Busy
from ablate.store.store import Store
from benchmarks import kills
from tests.helpers import SIMULATED, but, make_config

SWEEP = ("seed=0,1", "train.steps=120", "train.batch=8", "train.checkpoint_every=10", "train.eval_every=30")
ONE_TEXT = ("fusion=concat,weighted_sum", "corpus=grammar", "corpus.characters=20000")
TWO_TEXTS = ("model=pair", "corpus=reverse", "corpus.held_out=30", "at=cross", "fusion=sum", "train.steps=60")
SHORT = ("train.steps=40", "train.checkpoint_every=4", "train.eval_every=8", "train.simulated.step_ms=0.5")


@pytest.mark.slow
@pytest.mark.parametrize(("of", "count"), [(ONE_TEXT, 2), (TWO_TEXTS, 1)], ids=["one text", "two texts"])
def test_a_sweep_of_two_commands_of_which_one_is_killed_comes_to_the_same_bytes(
    of, count, start, monkeypatch, capsys
):
    monkeypatch.setattr(kills, "start", lambda root, sweep: start("run", "-m", *sweep, cwd=root))
    script = ("kills.py", f"--kills={count}", "--longest", "1", "--commands", "2")
    monkeypatch.setattr(sys, "argv", [*script, *but(SWEEP, *of)])
    with pytest.raises(SystemExit) as end:
        kills.main()
    out, _ = capsys.readouterr()
    assert end.value.code == 0, out
    assert re.search(rf"{count} kills?, [0-2] of them in training, .*; tables equal: True", out)


def runs(count: int) -> list[PlacedRun]:
    return [prepare(make_config(*SIMULATED, *SHORT, f"seed={seed}")) for seed in range(count)]


def in_a_process(runs: Sequence[PlacedRun], order: random.Random) -> int:
    """Make these runs in a process of its own, in the store here, together with others that do; a line in
    `made` for each. Returns the number of the process."""

    def note(event: Event) -> None:
        if isinstance(event, Finished):
            with open("made", "a") as file:
                file.write(f"{event.row['run_id']}\n")

    own = order.sample(runs, len(runs))
    if process := os.fork():
        return process
    code = 1
    try:
        while left := [run for run in own if settled(run) is None]:
            for run in left:
                with contextlib.suppress(Busy):
                    execute(run, note)
        code = 0
    finally:
        os._exit(code)


def tables(root: Path) -> kills.Tables:
    Store(root / "runs").write_results()
    return kills.state(root)[0]


@pytest.fixture
def calm(tmp_path, monkeypatch):
    """Four runs that nobody disturbs: the directory, and the seconds that they take."""
    (tmp_path / "calm").mkdir()
    monkeypatch.chdir(tmp_path / "calm")
    began = time.monotonic()
    for run in runs(4):
        execute(run, ignore)
    return tmp_path / "calm", time.monotonic() - began


@pytest.mark.slow
def test_300_kills_of_simulated_runs_leave_the_same_bytes(calm, tmp_path, monkeypatch):
    """Of two processes at once, one is killed and begins again."""
    moments, count, sweeps, made = random.Random(0), 0, 0, runs(4)
    while count < 300:
        (root := tmp_path / f"killed-{(sweeps := sweeps + 1)}").mkdir()
        monkeypatch.chdir(root)
        processes = {in_a_process(made, moments) for _ in range(2)}
        before: dict[str, int] = {}
        while processes:
            time.sleep(moments.uniform(0, calm[1] / 4))
            os.kill(victim := min(processes, key=lambda _: moments.random()), signal.SIGKILL)
            status = os.waitpid(victim, 0)[1]
            processes.remove(victim)
            before = kills.untouched(root, before, f"kill {count}")
            if os.WIFSIGNALED(status):
                count += 1
                processes.add(in_a_process(made, moments))
            else:
                assert status == 0
        assert tables(root) == tables(calm[0])


@pytest.mark.slow
def test_16_processes_on_one_store_make_each_run_once(calm, tmp_path, monkeypatch):
    (root := tmp_path / "shared").mkdir()
    monkeypatch.chdir(root)
    order, made = random.Random(1), runs(4)
    processes = [in_a_process(made, order) for _ in range(16)]
    assert [os.waitpid(process, 0)[1] for process in processes] == [0] * 16
    lines = (root / "made").read_text().splitlines()
    assert sorted(line[:8] for line in lines) == sorted(run.name[-8:] for run in made)
    assert tables(root) == tables(calm[0])
