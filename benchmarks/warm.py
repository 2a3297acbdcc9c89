"""The time that a warm worker spends on a run outside of training and evaluation.

    python benchmarks/warm.py --runs 20

It makes runs of `tiny` one after the other in one process, as a worker of the pool does. The time goes into
checking the config, opening the corpus, drawing the weights, and writing, sealing and syncing the run's
files.
"""

import argparse
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
import torch

from ablate.compose.composer import to_run_config
from ablate.compose.configs import configs_dir
from ablate.execution import formulas
from ablate.execution.events import ignore
from ablate.execution.execute import execute
from ablate.execution.run import prepare
from ablate.training.train import Training

inside = 0.0  # seconds in training and evaluation, of the run that goes on


def timed_generator(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        global inside
        events = function(*args, **kwargs)
        while True:
            began = time.perf_counter()
            event = next(events, None)
            inside += time.perf_counter() - began
            if event is None:
                return
            yield event

    return wrapped


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        global inside
        began = time.perf_counter()
        result = function(*args, **kwargs)
        inside += time.perf_counter() - began
        return result

    return wrapped


def main() -> None:
    global inside
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=120, help="with a checkpoint each 100")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    Training.events = timed_generator(Training.events)
    formulas.scores = timed(formulas.scores)
    with hydra.initialize_config_dir(str(configs_dir()), version_base="1.3"):
        config = to_run_config(hydra.compose("config", overrides=[f"train.steps={arguments.steps}"]))
    outside = []
    with tempfile.TemporaryDirectory() as directory:
        for seed in range(arguments.runs + 1):
            inside, began = 0.0, time.perf_counter()
            execute(prepare(dataclasses.replace(config, seed=seed)), ignore, Path(directory))
            outside.append(1000 * (time.perf_counter() - began - inside))
    warm = outside[1:]  # the first opens the corpus
    spread = f"{statistics.median(warm):.1f} ms ({min(warm):.1f}–{max(warm):.1f})"
    print(f"{spread} a run outside training and evaluation; median and range of {len(warm)}")


if __name__ == "__main__":
    main()
