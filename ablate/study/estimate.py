"""How long a study will take, from a short calibration on this machine."""

import dataclasses
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ablate.compute.cores import side_by_side, threads_each
from ablate.execution.execute import settled
from ablate.execution.run import Run, build, step_flops, training
from ablate.store.record import StudyRecord
from ablate.training.train import Step, evaluate

STEPS, WARM_UP = 8, 2  # timed, and of these left out
LONG_S = 5.0  # after so long fewer steps have to do
WINDOWS = 64  # evaluated


@dataclass(frozen=True)
class Estimate:
    """What a command would do. seconds: of all runs that are left, with `workers` side by side. forecast:
    lines on what follows from them."""

    record: StudyRecord
    runs: int
    finished: int
    workers: int
    threads: int
    seconds: float
    forecast: Sequence[str] = ()


def estimate(
    record: StudyRecord,
    runs: Sequence[Run],
    workers: int | None,
    threads: int | None,
    forecast: Sequence[str] = (),
) -> Estimate:
    """workers, threads: as the launcher was told; None for its own choice."""
    todo = [run for run in runs if settled(run) is None]
    threads = threads or threads_each(len(runs), max(map(step_flops, runs)))
    workers = min(workers or side_by_side(threads), max(1, len(todo)))
    seconds = _total(todo, threads) / workers if todo else 0.0
    return Estimate(record, len(runs), len(runs) - len(todo), workers, threads, seconds, forecast)


def _total(runs: Sequence[Run], threads: int) -> float:
    """Seconds of all runs one after the other: the cheapest and the dearest are timed, the others lie
    between them by their FLOPs."""
    flops = [step_flops(run) for run in runs]
    cheapest, dearest = (min(flops), max(flops))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        low, high = (_time(runs[flops.index(f)]) for f in (cheapest, dearest))
    finally:
        torch.set_num_threads(before)
    total = 0.0
    for run, f in zip(runs, flops, strict=True):
        share = (f - cheapest) / (dearest - cheapest) if dearest > cheapest else 0.0
        step_s, evaluation_s = (a + share * (b - a) for a, b in zip(low, high, strict=True))
        steps, every = run.config.train.steps, run.config.train.eval_every
        tokens = {name: len(split.tokens) for name, split in run.corpus.splits.items()}
        evaluations = -(-steps // every) + tokens["test"] / tokens["validation"]
        total += steps * step_s + evaluations * evaluation_s
    return total


def _time(run: Run) -> tuple[float, float]:
    """Seconds of a training step, and of an evaluation of the validation split."""
    model = build(run)  # before the clock starts
    config = dataclasses.replace(run.config.train, steps=STEPS)
    seconds, began = [], time.perf_counter()
    for event in training(run, model, config):
        if isinstance(event, Step):
            event.loss.item()  # waits for the device
            seconds.append(time.perf_counter() - began)
            if len(seconds) == STEPS or sum(seconds) > LONG_S:
                break
        began = time.perf_counter()
    tokens = run.corpus.splits["validation"].tokens
    sample = tokens[: WINDOWS * run.spec.context + 1]
    began = time.perf_counter()
    evaluate(model, sample, config, context=run.spec.context)
    evaluation_s = (time.perf_counter() - began) * len(tokens) / len(sample)
    return statistics.median(seconds[WARM_UP:] or seconds), evaluation_s
