"""Processes that are killed at any moment. They are forked without PyTorch, at a third of the cost.

python -m tests.killing races 100     (or runs 300) kills as often as the tests do not.
"""

import contextlib
import csv
import multiprocessing
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from ablate.execution.execute import execute
from ablate.execution.run import Run, prepare
from ablate.store.run_folder import Busy
from tests.helpers import SIMULATED, Command, fork_cli, ignore, make_config

FORK = multiprocessing.get_context("fork")
SHORT = ("train.steps=20", "train.eval_every=10", "train.checkpoint_every=2", "train.simulated.step_ms=0.3")
FILES = ("config.yaml", "metrics.csv", "result.json", "log.txt")


def make(runs: list[Run], root: Path) -> None:
    for run in runs:
        with contextlib.suppress(Busy):
            execute(run, ignore, root)


def begin(runs: list[Run], root: Path) -> Any:
    process = FORK.Process(target=make, args=(runs, root))
    process.start()
    return process


def files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for f in FILES for p in root.glob(f"store/[!.]*/{f}")}


def kill_runs(directory: Path, most: int) -> None:
    """Two processes make the same runs, from both ends. One is killed and started again, until all are made;
    then it begins anew, up to so many kills."""
    runs = [prepare(make_config(*SIMULATED, *SHORT, f"seed={seed}")) for seed in range(5)]
    ways, moments, kills, resumed = (runs, runs[::-1]), random.Random(0), 0, 0
    make(runs, calm := directory / "calm")
    while kills < most:
        root, finished = directory / f"after {kills}", dict[str, int]()
        herd = [begin(way, root) for way in ways]
        while kills < most and all(process.is_alive() for process in herd):
            time.sleep(moments.uniform(0, 0.01))
            place = moments.randrange(2)
            herd[place].kill()
            herd[place].join()
            kills += 1
            now = {path.parent.name: path.stat().st_mtime_ns for path in root.glob("store/[!.]*/result.json")}
            assert now.items() >= finished.items()
            finished, herd[place] = now, begin(ways[place], root)
        for process in herd:
            process.join()
        make(runs, root)
        made, wanted = files(root), files(calm)
        resumed += sum(b"going on after" in made.pop(name) for name in [*made] if name.endswith("log.txt"))
        assert made == {name: wanted[name] for name in made} and len(made) == 3 * len(runs)
    assert resumed > 10


# Losses that scatter, reckoned by the shell alone, so that a race goes on to its last pair.
LOSS = "sleep 0.01; n=$(({seed} + %d)); echo loss: $((n * n * 7919 %% 8999))"
RACE = ("race", LOSS % 3, LOSS % 50, "--metric", "loss", "--lower-is-better", "-n", "a", "-n")


def kill_races(directory: Path, most: int) -> None:
    """A race is killed and begins again until it has ended; then another does, up to so many kills. Killed is
    the process alone, whose command then goes on for a while, or with all that it has started."""
    moments, kills, races = random.Random(0), 0, 0
    with mock.patch("tests.helpers.WARM", FORK):
        fork_cli(*RACE, "calm", cwd=directory)
        calm = race_rows(directory, "calm")
        assert len(calm) == 48
        while kills < most:
            name, races = f"killed{races}", races + 1
            while kills < most and kill_race(name, directory, moments.uniform(0.05, 0.2), bool(kills % 2)):
                kills += 1
            fork_cli(*RACE, name, cwd=directory)
            assert race_rows(directory, name) == calm


def kill_race(name: str, directory: Path, after_s: float, with_its_commands: bool) -> bool:
    """Whether it was still to be killed then."""
    with contextlib.closing(Command(*RACE, name, cwd=directory)) as process:
        time.sleep(after_s)
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended
            for one in psutil.Process(process.pid).children(recursive=True) if with_its_commands else []:
                one.kill()
        if process.poll() is not None:
            return False
        process.kill()
        process.communicate(10)
        return True


def race_rows(directory: Path, name: str) -> list[list[str]]:
    """The rows of its table, without their seconds."""
    with (directory / f"runs/races/a-{name}/results.csv").open(newline="") as file:
        return [[row["seed"], row["loss"], row["status"]] for row in csv.DictReader(file)]


if __name__ == "__main__":
    what, most = sys.argv[1], int(sys.argv[2])
    directory = tempfile.mkdtemp()  # a TemporaryDirectory would go with the first process that is forked here
    {"runs": kill_runs, "races": kill_races}[what](Path(directory), most)
    shutil.rmtree(directory)
    assert "torch" not in sys.modules
    print(f"{most} kills")
