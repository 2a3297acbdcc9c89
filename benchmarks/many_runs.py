"""How long commands take on a store with many finished runs.

    python benchmarks/many_runs.py --runs 10000

It makes the store in a temporary directory (rows as runs leave them, without weights), then times whole
commands, including process start: without the cache of rows, with it, and after one new run.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import hydra
import numpy as np

from ablate.compose.composer import to_run_config
from ablate.compose.configs import configs_dir
from ablate.config.identity import digest
from ablate.execution.execute import describe
from ablate.execution.run import PlacedRun, prepare
from ablate.store import run_files
from ablate.store.store import Store

METHODS = ("concat", "sum", "weighted_sum", "mean")


def run_of(method: str, heads: int) -> PlacedRun:
    with hydra.initialize_config_dir(str(configs_dir()), version_base="1.3"):
        return prepare(
            to_run_config(hydra.compose("config", overrides=[f"fusion={method}", f"heads={heads}"]))
        )


def add(store: Store, row: dict, seed: int, loss: float) -> None:
    identity = digest([row["fusion"], row["heads"], seed])[:16]
    row = {**row, "run_id": identity, "seed": seed, "status": "running"}
    name = f"{row['fusion']}-h{row['heads']}-s{seed}-{identity[:8]}"
    with store.run(name).attempt({"seed": seed}, row, known=[]) as writer:
        measured = {"wall_s": 9.5, "tokens_per_s": 1e5, "train_loss": loss, "val_loss": loss}
        store.run(name).finish(writer, {**row, **measured, "status": "done"}, known=[])


def seconds(root: Path, *command: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "ablate", *command], cwd=root, check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    run_files.sync = lambda directory: None  # it is not the disk that is timed
    rows = [describe(run_of(method, heads)) for method in METHODS for heads in (1, 2, 4, 8)]
    losses = np.random.default_rng(0).normal(2.0, 0.01, arguments.runs)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        store = Store(root / "runs")
        for number, loss in enumerate(losses):
            add(store, rows[number % len(rows)], number // len(rows), float(loss))
        print(f"{arguments.runs} runs")
        for command in (("runs",), ("compare", "--format", "csv")):
            (root / "runs" / "store" / ".rows.json").unlink(missing_ok=True)
            first = seconds(root, *command)
            again = statistics.median(seconds(root, *command) for _ in range(arguments.repeats))
            add(store, rows[0], arguments.runs + len(command), 2.0)
            one_more = seconds(root, *command)
            print(
                f"ablate {command[0]}: {again:.2f} s (median of {arguments.repeats});"
                f" {first:.2f} s with nothing remembered, {one_more:.2f} s after one new run"
            )


if __name__ == "__main__":
    main()
