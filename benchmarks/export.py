"""How long the export of 200 runs of 10 evaluations takes: python benchmarks/export.py [TARGET…]

For each tracker (tensorboard, wandb without a network, mlflow) in a process of its own: seconds of wall time,
of process time with that of processes that it started, and of a second export, which finds all equal.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS, EVALUATIONS = 200, 10


def make_study(root: Path) -> None:
    from tests import synthetic

    synthetic.STEPS = tuple(range(100, 100 * EVALUATIONS + 1, 100))
    synthetic.small_study(root, seeds=RUNS // 2, name="benchmark")


def seconds(*command: str, cwd: Path) -> tuple[float, float]:
    """Wall and process time of a command. Raises CalledProcessError."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    env = {**os.environ, "WANDB_MODE": "offline", "ABLATE_RUNS": "runs"}
    subprocess.run(command, cwd=cwd, env=env, check=True, stdout=sys.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, used


def main(targets: list[str]) -> None:
    print("target       wall_s  process_s  again_wall_s")
    with tempfile.TemporaryDirectory() as directory:
        make_study(Path(directory) / "runs")
        for target in targets:
            command = (sys.executable, "-m", "ablate", "export", "benchmark", "--to", target)
            wall, used = seconds(*command, cwd=Path(directory))
            again, _ = seconds(*command, cwd=Path(directory))
            print(f"{target:12} {wall:6.1f} {used:10.1f} {again:13.1f}")


if __name__ == "__main__":
    main(sys.argv[1:] or ["tensorboard", "wandb", "mlflow"])
