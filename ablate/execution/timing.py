"""Time a training step of each variant on this machine, alone and relative to its baseline.

If two models were timed one after the other, their times would also differ by what else the machine did. So
they take turns, a few steps each, and the ratio is computed within each round.
"""

import dataclasses
import itertools
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
import torch

from ablate.config.rules import ConfigError
from ablate.execution.kept import config_of
from ablate.execution.prepare import prepare
from ablate.execution.run import Run, build, training
from ablate.phrases import counted
from ablate.store.run_files import read_started
from ablate.store.store import Store, StoreError
from ablate.training.train import Step

ROUNDS = 7
ROUND_S = 0.1  # approximate time of each model in a round
FOREVER = 10**9


def with_cost(
    table: pd.DataFrame, runs: Mapping[str, str], stores: Sequence[Store]
) -> tuple[pd.DataFrame, str]:
    """Add to a table of compare the columns step_ms, step_ratio, step_ratio_low and step_ratio_high: medians
    over rounds, and the range of the ratio. Also returns a line on how it was timed. The ratio is empty if
    there is no baseline, or if it takes the same steps.

    Uses as many threads as the runs had. runs: a run_id for each variant. stores: where to look for its
    config.yaml. Raises ConfigError.
    """
    found = {variant: _prepared(variant, runs[variant], stores) for variant in table["variant"].unique()}
    prepared = {variant: run for variant, (run, _) in found.items()}
    threads = max((threads for _, threads in found.values() if threads), default=torch.get_num_threads())
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        timed = _timed(table, prepared)
    finally:
        torch.set_num_threads(before)
    line = (
        f"step_ms: a training step here, {counted(threads, 'thread')}, median of {ROUNDS} rounds;"
        " step_ratio: to its baseline, taking turns, [least, most]"
    )
    return table.join(timed), line


def _timed(table: pd.DataFrame, prepared: Mapping[str, Run]) -> pd.DataFrame:
    alone: dict[Any, float] = {}
    ratios: dict[Any, list[float]] = {}
    rows = []
    for variant, baseline in zip(table["variant"], table["baseline"], strict=True):
        run = prepared[variant]
        if (key := _steps_of(run)) not in alone:
            alone[key] = 1000 * statistics.median(step_seconds([run]).pop())
        ratio = [float("nan")]
        if isinstance(baseline, str) and (pair := (key, _steps_of(prepared[baseline])))[0] != pair[1]:
            if pair not in ratios:
                ours, theirs = step_seconds([run, prepared[baseline]])
                ratios[pair] = [a / b for a, b in zip(ours, theirs, strict=True)]
            ratio = ratios[pair]
        rows.append((alone[key], statistics.median(ratio), min(ratio), max(ratio)))
    columns = ["step_ms", "step_ratio", "step_ratio_low", "step_ratio_high"]
    return pd.DataFrame(rows, columns=columns, index=table.index)


def step_seconds(runs: Sequence[Run], rounds: int = ROUNDS) -> list[list[float]]:
    """Seconds per training step, for each run and round; in a round they take turns, every other one in
    reverse order."""
    steps = [_steps(run) for run in runs]
    for step in steps:
        next(step)  # the first warms up
    count = max(1, round(ROUND_S / max(_seconds(step, 2) for step in steps)))
    seconds: list[list[float]] = [[] for _ in runs]
    for _, backwards in zip(range(rounds), itertools.cycle([False, True]), strict=False):
        for at in sorted(range(len(runs)), reverse=backwards):
            seconds[at].append(_seconds(steps[at], count))
    return seconds


def _seconds(steps: Iterator[None], count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        next(steps)
    return (time.perf_counter() - began) / count


def _steps(run: Run) -> Iterator[None]:
    endless = dataclasses.replace(
        run.config.train,
        **{"steps": FOREVER, "eval_every": FOREVER, "eval_tokens": 1, "lr": 1e-6},
        **{"checkpoint_every": None, "probe_every": None},
    )
    for event in training(run, build(run), endless):
        if isinstance(event, Step):
            event.loss.item()  # waits for the device
            yield


def _steps_of(run: Run) -> tuple[Any, ...]:
    """What the time of a step depends on: runs that differ only in learning rate or seed share it."""
    t = run.config.train
    computes = (t.precision, run.linear, run.attention, t.compile, str(run.device))
    return (repr(run.spec), t.batch, t.clip is None, *computes)


def _prepared(variant: str, run_id: str, stores: Sequence[Store]) -> tuple[Run, int | None]:
    """The run, and the number of threads that it had."""
    for store in stores if isinstance(run_id, str) else []:  # a foreign table may have no run_id
        try:
            directory = store.find(run_id)
            threads = read_started(directory).get("threads")
        except (StoreError, OSError):
            continue
        return prepare(config_of(directory)), threads
    raise ConfigError(
        f"--cost: {variant}: no config of run {run_id} in {stores[0].root / 'store'}, and a step can only be"
        " timed from one; compare where the runs were made, or leave --cost out"
    )
