"""How long commands take against what their dry runs say, from Enter to the table, each in a store of its
own: `python benchmarks/estimates.py`, a quarter of an hour."""

import json
import subprocess
import tempfile
import time

NEAR = 1.5
GRID = "-m seed=range(4) train.save=none"
COMMANDS = [
    "train.steps=200",
    "train.steps=600",
    "fusion=sum heads=8 train.steps=300",
    "corpus=grammar train.steps=200",
    "corpus=copy model.context=32 train.steps=400",
    "model.layers=4 train.steps=200",
    "model.d_model=128 train.steps=100",
    "train.batch=8 train.steps=600",
    "train.eval_every=20 train.steps=200",
    "model=modern train.steps=200",
    f"{GRID} train.steps=100",
    f"{GRID} fusion=concat,sum train.steps=60",
    f"{GRID} heads=1,8 train.steps=60",
    f"{GRID} corpus=grammar train.steps=100",
    f"{GRID} corpus=reverse model=pair train.steps=100",
    f"{GRID} scores=softmax,talking train.steps=60",
    f"{GRID} model.d_model=32,96 train.steps=60",
    f"{GRID} fusion=concat,gated,mean train.steps=20",
    f"{GRID} train.lr=0.005,0.01 corpus=votes train.steps=100",
    "-m seed=0,1,2 train.steps=200",
]


def run(command: str, runs: str, *options: str) -> bytes:
    words = ["ablate", "run", *command.split(), "--runs", runs, *options]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout


def main() -> None:
    near = 0
    for command in COMMANDS:
        with tempfile.TemporaryDirectory() as runs:
            said = json.loads(run(command, runs, "--dry-run", "--format", "json"))["seconds"]
            began = time.monotonic()
            run(command, runs)
            taken = time.monotonic() - began
        near += 1 / NEAR <= taken / said <= NEAR
        print(f"{taken:5.0f} s taken, {said:5.0f} s said, {taken / said:.2f} times: {command}", flush=True)
    print(f"{near} of {len(COMMANDS)} within {NEAR} times")


if __name__ == "__main__":
    main()
