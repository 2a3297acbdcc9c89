"""Processes that are killed at any moment. They are forked without PyTorch, at a third of the cost."""

import contextlib
import multiprocessing
import random
import sys
import time
from pathlib import Path
from typing import Any

from ablate.execution.execute import execute
from ablate.execution.run import Run, prepare
from ablate.store.run_folder import Busy
from tests.helpers import SIMULATED, ignore, make_config

FORK = multiprocessing.get_context("fork")
SHORT = ("train.steps=40", "train.eval_every=10", "train.checkpoint_every=2", "train.simulated.step_ms=0.3")
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


def kill(directory: str, most: int) -> None:
    """Two processes make the same runs, from both ends. One is killed and started again, until all are made;
    then it begins anew, up to so many kills."""
    runs = [prepare(make_config(*SIMULATED, *SHORT, f"seed={seed}")) for seed in range(10)]
    ways, moments, kills, resumed = (runs, runs[::-1]), random.Random(0), 0, 0
    make(runs, calm := Path(directory, "calm"))
    while kills < most:
        root, finished = Path(directory, f"after {kills}"), dict[str, int]()
        herd = [begin(way, root) for way in ways]
        while kills < most and all(process.is_alive() for process in herd):
            time.sleep(moments.uniform(0, 0.02))
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
    assert resumed > 10 and "torch" not in sys.modules
    print(f"{kills} kills")
