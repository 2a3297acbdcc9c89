"""The processor time of a training step of one config beside another's, alternating in one process.

python -m benchmarks.two model=tiny model=modern --members 4 --precision bfloat16

A config is given by overrides, separated by spaces; with several members, each is that many runs as one.
"""

import argparse
import dataclasses
import statistics
import time
from collections.abc import Iterator

import hydra

from ablate.compose.composer import to_run_config
from ablate.compose.configs import configs_dir
from ablate.execution.run import build_group, prepare, training
from ablate.training.events import Step

FOREVER = ("train.steps=100000000", "train.eval_every=100000000", "device=cpu")


def steps(words: str, precision: str, members: int) -> Iterator[None]:
    keys = [*FOREVER, f"train.precision={precision}", *words.split()]
    run = prepare(to_run_config(hydra.compose("config", overrides=keys)))
    runs = [
        dataclasses.replace(run, config=dataclasses.replace(run.config, seed=seed)) for seed in range(members)
    ]
    with training(runs, build_group(runs)) as trained:
        for event in trained.events():
            if isinstance(event, Step):
                yield


def seconds(of: Iterator[None], count: int) -> float:
    began = time.process_time()
    for _ in range(count):
        next(of)
    return (time.process_time() - began) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("first")
    parser.add_argument("second")
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--steps", type=int, default=10, help="of each in a round")
    of = parser.parse_args()
    with hydra.initialize_config_dir(str(configs_dir()), version_base="1.3"):
        both = [steps(words, of.precision, of.members) for words in (of.first, of.second)]
        for one in both:
            next(one)
    times = []
    for round_ in range(of.rounds + 1):
        pair = {which: seconds(both[which], of.steps) for which in ((0, 1) if round_ % 2 else (1, 0))}
        times.append((pair[0], pair[1]))
    first, second = (1000 * statistics.median(column) for column in zip(*times[1:], strict=True))
    ratios = sorted(b / a for a, b in times[1:])
    print(
        f"{of.members} as one, {of.precision}: {first:.2f} and {second:.2f} ms of a processor a step; ratio"
        f" {statistics.median(ratios):.3f} ({ratios[len(ratios) // 4]:.3f} to"
        f" {ratios[3 * len(ratios) // 4]:.3f} in the middle half)"
    )


if __name__ == "__main__":
    main()
