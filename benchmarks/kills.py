"""Kill a sweep again and again, and compare its results with those of an undisturbed one.

    python benchmarks/kills.py --kills 50
    python benchmarks/kills.py --kills 100 --commands 2     two at once, one of them killed each time
    python benchmarks/kills.py --kills 60 --members 3       of runs that are trained as one

The same command runs to its end in one directory. In another its process group is killed with SIGKILL at
random moments, and the command is started again after each kill; if a sweep finishes anyway, another one
begins. Then every metrics.csv and results.csv are compared byte by byte, except for measured columns, and no
finished run may have been touched. Runs that are trained as one may be in other groups after a kill, so their
numbers are compared to 0.001, at a rate that does not amplify rounding. Do not change the source tree
meanwhile, or the columns code and git will differ.
"""

import argparse
import contextlib
import csv
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ablate.store.columns import RESOURCE_COLUMNS

Tables = dict[str, list[list[str]]]  # by path
SWEEP = ("fusion=concat,sum,weighted_sum,mean", "heads=2,4", "seed=0,1,2")
SWEEP += ("train.steps=500", "train.checkpoint_every=20", "train.eval_every=50")


def start(root: Path, overrides: list[str]) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "ablate", "run", "-m", *overrides],
        cwd=root,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(root: Path, overrides: list[str]) -> None:
    process = start(root, overrides)
    _, err = process.communicate()
    assert process.returncode == 0, err


def unmeasured(path: Path) -> list[list[str]]:
    """The cells of a CSV file, without the columns that differ from one execution to the next."""
    with path.open(encoding="utf-8", newline="") as file:
        names, *rows = csv.reader(file)
    kept = [i for i, name in enumerate(names) if name not in (*RESOURCE_COLUMNS, "seconds", "members")]
    return [[row[i] for i in kept] for row in (names, *rows)]


def state(root: Path) -> tuple[Tables, dict[str, int]]:
    """The tables of a store, and when each finished run was."""
    runs = root / "runs"
    tables = {
        str(path.relative_to(runs)): unmeasured(path)
        for path in (*runs.glob("store/[!.]*/metrics.csv"), *runs.glob("**/results.csv"))
    }
    return tables, finished(root)


def differing(calm: Tables, killed: Tables, most: float = 0.0) -> list[str]:
    """A line for each table that is not the same in both, with the first row that is not. most: by how much
    numbers may differ."""
    lines = []
    for path in sorted({*calm, *killed}):
        pairs = itertools.zip_longest(calm.get(path, []), killed.get(path, []), fillvalue=[])
        lines += [f"{path}: {one} / {other}" for one, other in pairs if not _same(one, other, most)][:1]
    return lines


def _same(one: list[str], other: list[str], most: float) -> bool:
    if one == other or not most:
        return one == other
    with contextlib.suppress(ValueError):
        cells = zip(one, other, strict=True)
        return all(a == b or abs(float(a) - float(b)) <= most for a, b in cells)
    return False


def finished(root: Path) -> dict[str, int]:
    return {p.parent.name: p.stat().st_mtime_ns for p in root.glob("runs/store/[!.]*/result.json")}


def trains(root: Path, process: subprocess.Popen) -> bool:
    """Whether a run of this command is under way and has a state to lose or keep."""
    for part in root.glob("runs/store/.*.part"):
        with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
            for metrics in part.glob("*@*/metrics.csv"):
                _, _, sign = metrics.parent.name.partition(".")
                if os.getpgid(int(sign.partition("-")[0])) == process.pid:
                    return True
    return False


def wait_for_training(root: Path, process: subprocess.Popen) -> None:
    limit = time.monotonic() + 60
    while process.poll() is None and not trains(root, process) and time.monotonic() < limit:
        time.sleep(0.02)


def untouched(root: Path, before: dict[str, int], when: str) -> dict[str, int]:
    """The finished runs. Raises AssertionError if one of those before is not as it was."""
    after = finished(root)
    touched = [name for name, written in before.items() if after.get(name) != written]
    assert not touched, f"{when}: trained again: {touched}"
    return after


def kill_again_and_again(
    root: Path, overrides: list[str], kills: int, longest_s: float, seed: int, commands: int = 1
) -> tuple[int, int]:
    """So many commands at once on one sweep, until it is finished; each kill hits one of them, which is
    started again. Returns how many kills there were, and how many of them hit training. Raises
    AssertionError if a finished run is touched."""
    moments, before, number, hits = random.Random(seed), dict[str, int](), 0, 0
    processes = [start(root, overrides) for _ in range(commands)]
    while number < kills:
        victim = moments.randrange(commands)
        if moments.random() < 0.9:
            wait_for_training(root, processes[victim])
        time.sleep(moments.uniform(0, longest_s))
        if any(process.poll() is not None for process in processes):
            break
        hits += trains(root, processes[victim])
        os.killpg(processes[victim].pid, signal.SIGKILL)
        processes[victim].communicate()
        number += 1
        before = untouched(root, before, f"kill {number}")
        print(f"kill {number}: {len(before)} runs finished", flush=True)
        processes[victim] = start(root, overrides)
    for process in processes:
        _, err = process.communicate()
        assert process.returncode == 0, err
    untouched(root, before, "the end")
    return number, hits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("sweep", nargs="*", default=SWEEP, help="overrides; by default 24 runs")
    parser.add_argument(
        "--longest", type=float, default=5.0, help="seconds of training before a kill, at most"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", type=int, default=1, help="at once, on one sweep")
    parser.add_argument("--members", type=int, help="runs that are trained as one, at most")
    arguments = parser.parse_args()
    sweep, most = [*arguments.sweep], 0.0
    if arguments.members:
        sweep += [f"hydra.launcher.members={arguments.members}", "train.lr=0.0001"]
        most = 1e-3
    with tempfile.TemporaryDirectory() as directory:
        calm = Path(directory) / "calm"
        calm.mkdir()
        finish(calm, sweep)
        same, kills, hits, sweeps = True, 0, 0, 0
        while kills < arguments.kills:  # a sweep may be finished in spite of them
            killed = Path(directory) / f"killed-{sweeps}"
            killed.mkdir()
            number, hit = kill_again_and_again(
                killed,
                sweep,
                arguments.kills - kills,
                arguments.longest,
                arguments.seed + sweeps,
                arguments.commands,
            )
            kills, hits, sweeps = kills + number, hits + hit, sweeps + 1
            other = differing(state(calm)[0], state(killed)[0], most)
            print(*other[:5], sep="\n", flush=True)
            same = same and not other
        print(f"{kills} kills, {hits} of them in training, {sweeps} sweeps; tables equal: {same}")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
