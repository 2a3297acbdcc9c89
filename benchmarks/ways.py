"""By how much validation losses of runs trained as one differ from those of the same runs trained alone.

python -m benchmarks.ways --model tiny --members 16 --steps 1000 --device cpu
"""

import argparse
import dataclasses
import statistics

from ablate.compute import device
from ablate.execution.run import PlacedRun, build_group, training
from ablate.training.events import Evaluation
from benchmarks.gpu import Case, runs_of


def losses(runs: list[PlacedRun]) -> list[float]:
    with device.deterministic(runs[0].device), training(runs, build_group(runs)) as trained:
        ended = [event for event in trained.events() if isinstance(event, Evaluation) and event.step]
    return [event.validation.loss for event in ended]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    steps = arguments.steps
    runs = runs_of(
        Case(arguments.model, arguments.precision, arguments.members), arguments.device, small=False
    )
    train = dataclasses.replace(runs[0].config.train, steps=steps, eval_every=steps, eval_tokens=None)
    runs = [dataclasses.replace(run, config=dataclasses.replace(run.config, train=train)) for run in runs]
    grouped, alone = losses(runs), [losses([run])[0] for run in runs]
    differences = [a - b for a, b in zip(grouped, alone, strict=True)]
    print(
        f"{len(runs)} runs of {steps} steps, validation loss as one minus alone: mean"
        f" {statistics.mean(differences):+.5f}, sd {statistics.stdev(differences):.5f}, at most"
        f" {max(map(abs, differences)):.5f}; sd over seeds {statistics.stdev(alone):.4f}"
    )


if __name__ == "__main__":
    main()
