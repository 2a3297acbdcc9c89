"""Time a training step of each variant on this machine, alone and relative to its baseline.

If two models were timed one after the other, their times would also differ by what else the machine did. So
they take turns, a few steps each, and the ratio is computed within each round.
"""

import dataclasses
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from ablate.compute.device import with_threads
from ablate.config.rules import ConfigError
from ablate.execution.networks import build_group, training
from ablate.execution.run import Run
from ablate.execution.stored import reopened
from ablate.phrases import counted
from ablate.store.store import Store, StoreError
from ablate.training.events import Step

ROUNDS = 7
ROUND_S = 0.1  # approximate time of each model in a round
FOREVER = 10**9


class StepTimer:
    """Times training steps of variants, with as many threads as their runs had.

    runs: a run_id for each variant. stores: where to look for its config.yaml. Raises ConfigError.
    """

    def __init__(self, runs: Mapping[str, str], stores: Sequence[Store]) -> None:
        prepared = {variant: _prepared(variant, run_id, stores) for variant, run_id in runs.items()}
        self._runs = {variant: run for variant, (run, _) in prepared.items()}
        self._threads = max((n for _, n in prepared.values() if n), default=torch.get_num_threads())
        self.line = (
            f"step_ms: a training step here, {counted(self._threads, 'thread')}, median of {ROUNDS} rounds;"
            " step_ratio: to its baseline, taking turns, [least, most]"
        )

    def steps_of(self, variant: str) -> tuple[Any, ...]:
        """What the time of a step depends on: runs that differ only in learning rate or seed share it."""
        run = self._runs[variant]
        t = run.config.train
        return (repr(run.spec), t.batch, t.clip is None, t.precision, str(run.device))

    def seconds(self, *variants: str) -> list[list[float]]:
        """As `step_seconds`."""
        with with_threads(self._threads):
            return step_seconds([self._runs[variant] for variant in variants])


def step_seconds(runs: Sequence[Run], rounds: int = ROUNDS) -> list[list[float]]:
    """Seconds per training step, for each run and round; in a round they take turns, every other one in
    reverse order."""
    steps = [endless_steps(run) for run in runs]
    for step in steps:
        next(step)  # the first warms up
    count = max(1, round(ROUND_S / max(seconds_each(step, 2) for step in steps)))
    seconds: list[list[float]] = [[] for _ in runs]
    for _, backwards in zip(range(rounds), itertools.cycle([False, True]), strict=False):
        for at in sorted(range(len(runs)), reverse=backwards):
            seconds[at].append(seconds_each(steps[at], count))
    return seconds


def seconds_each(steps: Iterator[None], count: int) -> float:
    """Seconds per step, over the next `count` steps."""
    began = time.perf_counter()
    for _ in range(count):
        next(steps)
    return (time.perf_counter() - began) / count


def endless_steps(run: Run, members: int = 1) -> Iterator[None]:
    """Makes a training step each time that it is asked for the next item, of so many runs as one that differ
    in their seeds; the models are built before the first."""
    endless = dataclasses.replace(
        run.config.train,
        **{"steps": FOREVER, "eval_every": FOREVER, "eval_tokens": 1, "lr": 1e-6},
        **{"checkpoint_every": None},
    )
    configs = [dataclasses.replace(run.config, train=endless, seed=seed) for seed in range(members)]
    runs = [dataclasses.replace(run, config=config) for config in configs]
    with training(runs, build_group(runs)) as steps:
        for event in steps.events():
            if isinstance(event, Step):
                event.loss_M.tolist()  # waits for the device
                yield


def _prepared(variant: str, run_id: str, stores: Sequence[Store]) -> tuple[Run, int | None]:
    """The run, and the number of threads that it had."""
    for store in stores if isinstance(run_id, str) else []:  # a foreign table may have no run_id
        try:
            directory = store.find(run_id)
        except StoreError:
            continue
        stored = reopened(directory)
        if stored.config.train.simulated:
            raise ConfigError(f"--cost: {variant}: no model was trained (train=simulated); leave --cost out")
        return stored.prepared(stored.config.device), stored.row.get("threads")
    raise ConfigError(
        f"--cost: {variant}: no config of run {run_id} in {stores[0].root / 'store'}, and a step can only be"
        " timed from one; compare where the runs were made, or leave --cost out"
    )
