"""The time that the report of a large study takes, and its size: `python benchmarks/report.py`.

The study is synthetic: losses are drawn, nothing is trained.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.synthetic import synthetic_study


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8, help="a run is 1 of 32 cells at one seed")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        synthetic_study(root / "runs", seeds=arguments.seeds)
        times = []
        for _ in range(arguments.rounds):
            begin = time.perf_counter()
            command = [sys.executable, "-m", "ablate", "report", "synthetic"]
            subprocess.run(command, cwd=root, env=os.environ, check=True, stdout=subprocess.DEVNULL)
            times.append(time.perf_counter() - begin)
        size = (root / "runs/studies/synthetic/report.html").stat().st_size
    runs = 32 * arguments.seeds
    low, middle, high = min(times), float(np.median(times)), max(times)
    print(f"{runs} runs: {middle:.1f} s ({low:.1f}–{high:.1f}), {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
