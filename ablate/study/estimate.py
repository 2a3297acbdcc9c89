"""How long a study will take, from a short calibration on this machine."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from ablate.compute.cores import side_by_side
from ablate.execution.execute import settled
from ablate.execution.run import Run, build, step_flops, training
from ablate.store.record import StudyRecord
from ablate.store.store import Store
from ablate.study.replicates import one_of_each
from ablate.training.computing import in_precision
from ablate.training.train import Step, evaluate

STEPS, WARM_UP = 8, 2  # timed, and of these left out
LONG_S = 5.0  # after so long fewer steps have to do
WINDOWS = 64  # evaluated, at most
# Of what is timed at once: about a second of a core, or less of a GPU.
MOST_WORK = {"cpu": 1e10, "cuda": 1e13, "mps": 1e12}
# What no matrix product does, in FLOPs that take as long: of each layer a step, and of each token in it.
WORK_A_LAYER, WORK_A_TOKEN = 2e7, 2e4


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
    at_once: int | None,
    threads: int,
    forecast: Sequence[str] = (),
) -> Estimate:
    """at_once: runs side by side, as the launcher was told; None for as many as the cores serve."""
    finished = Store().finished()
    todo = [run for run in runs if run.name not in finished or settled(run) is None]
    workers = min(at_once or side_by_side(threads), max(1, len(todo)))
    seconds = _total(one_of_each(todo), threads) / workers if todo else 0.0
    return Estimate(record, len(runs), len(runs) - len(todo), workers, threads, seconds, forecast)


def _total(kinds: Sequence[tuple[Run, int]], threads: int) -> float:
    """Seconds of all runs one after the other: the cheapest and the dearest are timed, the others lie
    between them by their FLOPs. kinds: runs, and how many are as each."""
    flops = [step_flops(run) for run, _ in kinds]
    cheapest, dearest = min(flops), max(flops)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        timed = {f: _time(kinds[flops.index(f)][0]) for f in {cheapest, dearest}}
    finally:
        torch.set_num_threads(before)
    total = 0.0
    for (run, count), f in zip(kinds, flops, strict=True):
        share = (f - cheapest) / (dearest - cheapest) if dearest > cheapest else 0.0
        step_s, evaluation_s = (
            a + share * (b - a) for a, b in zip(timed[cheapest], timed[dearest], strict=True)
        )
        steps, every = run.config.train.steps, run.config.train.eval_every
        tokens = {name: len(split.tokens) for name, split in run.corpus.splits.items()}
        evaluations = -(-steps // every) + tokens["test"] / tokens["validation"]
        total += count * (steps * step_s + evaluations * evaluation_s)
    return total


def _time(run: Run) -> tuple[float, float]:
    """Seconds of a training step, and of an evaluation of the validation split. What would take long is timed
    on a smaller run, whose seconds count as often as its work goes into that of the run."""
    small = _smaller(run)
    model = build(small)  # before the clock starts
    config = replace(small.config.train, steps=STEPS, eval_every=STEPS)  # which ends before it evaluates
    seconds, began = [], time.perf_counter()
    for event in training(small, model, config):
        if isinstance(event, Step):
            event.loss.item()  # waits for the device
            seconds.append(time.perf_counter() - began)
            if len(seconds) == STEPS or sum(seconds) > LONG_S:
                break
        began = time.perf_counter()
    tokens = run.corpus.splits["validation"].tokens
    context, most = small.spec.context, MOST_WORK[small.device.type]
    windows = max(1, min(WINDOWS, int(most / _work_a_token(small) / context)))
    sample = tokens[: windows * context + 1]
    began = time.perf_counter()
    evaluate(in_precision(model, config.precision), sample, context=context)
    evaluation_s = (time.perf_counter() - began) * len(tokens) / len(sample)
    return (
        statistics.median(seconds[WARM_UP:] or seconds) * _work(run) / _work(small),
        evaluation_s * _work_a_token(run) / _work_a_token(small),
    )


def _smaller(run: Run) -> Run:
    """The run or, where a step of it would take long, one of fewer windows, layers or positions."""
    config, spec = run.config, run.spec
    while _work(run) > MOST_WORK[run.device.type] and max(config.train.batch, spec.layers, spec.context) > 1:
        if config.train.batch > 1:
            config = replace(config, train=replace(config.train, batch=config.train.batch // 2))
        elif spec.layers > 1:
            spec = replace(spec, layers=spec.layers // 2)
        else:
            spec = replace(spec, context=spec.context // 2)
        run = replace(run, config=config, spec=spec)
    return run


def _work(run: Run) -> float:
    """Of a training step: its FLOPs, and what else it does as the FLOPs that take as long."""
    return run.config.train.batch * run.spec.context * _work_a_token(run) + WORK_A_LAYER * run.spec.layers


def _work_a_token(run: Run) -> float:
    tokens = run.config.train.batch * run.spec.context
    return step_flops(run) / tokens + WORK_A_TOKEN * run.spec.layers
