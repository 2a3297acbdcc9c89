"""A training step at a time, of a run that is not to be trained: for estimates."""

import dataclasses
from collections.abc import Iterator

from ablate.execution.networks import build_group, training
from ablate.execution.run import Run
from ablate.training.events import Step

FOREVER = 10**9


def endless_steps(run: Run, members: int = 1) -> Iterator[None]:
    """Makes a training step each time that it is asked for the next item, of so many runs as one that differ
    in their seeds; the models are built before the first."""
    far = {"steps": FOREVER, "eval_every": FOREVER, "checkpoint_every": None, "eval_tokens": 1, "lr": 1e-6}
    endless = dataclasses.replace(run.config.train, **far)
    configs = [dataclasses.replace(run.config, train=endless, seed=seed) for seed in range(members)]
    runs = [dataclasses.replace(run, config=config) for config in configs]
    with training(runs, build_group(runs)) as steps:
        for event in steps.events():
            if isinstance(event, Step):
                event.loss_M.tolist()  # waits for the device
                yield
