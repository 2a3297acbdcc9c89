"""Estimate how long a study will take, by timing a few steps on this machine, and what it can show."""

import functools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ablate.analysis import stats
from ablate.analysis.looks import USUAL_SD, spending
from ablate.compute.device import use_threads
from ablate.config.contrast import FEWEST
from ablate.data.corpora import TextRecipe
from ablate.execution.execute import settled
from ablate.execution.grouping import kind, most_as_one
from ablate.execution.networks import build_group
from ablate.execution.run import Run
from ablate.execution.timing import endless_steps
from ablate.files.atomic import said_if_long
from ablate.launch.processes import map_in_workers
from ablate.lazy import torch
from ablate.store.record import StudyRecord
from ablate.store.store import Store
from ablate.study.config import Rows
from ablate.study.launchers import Launcher
from ablate.study.study import Study, one_of_each
from ablate.training.evaluate import scores

SETTLED = 1000  # steps; after 200, differences scatter ten times as far as in docs/noise.csv (docs/tour.md)
TIMED_S = 3.0  # how long to make steps of each of two kinds; the load of a machine varies within seconds
WINDOWS = 64  # the most windows to evaluate
MOST_WORK = {"cpu": 1e10, "cuda": 1e13}  # FLOPs of a step: about a second of a core, or less of a GPU


@dataclass(frozen=True)
class Estimate:
    """What a command would do first. seconds: from Enter on, `workers` runs at a time. seeds: how many report
    at most; difference: the least that these show with stats.POWER, in nats, if differences scatter as in
    docs/noise.csv; None if that is not known. in_all: the runs of the whole study, as far as `how` says;
    in_all_s: their seconds, as if each took as long as the first."""

    record: StudyRecord
    runs: int
    finished: int
    workers: int
    threads: int
    seconds: float
    seeds: int
    difference: float | None
    how: str
    in_all: int

    @property
    def in_all_s(self) -> float:
        return self.seconds * (self.in_all - self.finished) / max(1, self.runs - self.finished)

    @property
    def as_json(self) -> dict[str, Any]:
        names = ("runs", "finished", "workers", "threads", "seconds", "seeds", "difference", "in_all")
        return {name: getattr(self, name) for name in names}


def estimate(
    study: Study, record: StudyRecord, runs: Sequence[Run], left_out: Rows, launcher: Launcher, threads: int
) -> Estimate:
    """The estimate for these runs of a study, which leaves others out, from when they begin. threads: of each
    run."""
    finished = Store().finished()
    todo = [run for run in runs if run.name not in finished or settled(run) is None]
    members = launcher.settings.members
    at_once, kinds = launcher.at_once(todo, threads), one_of_each(todo)
    workers = min(at_once, max(1, len(todo)))
    seconds = 0.0
    if todo:
        seconds = total(kinds, threads, members, workers) * math.ceil(len(todo) / workers) / len(todo)
    _, how, in_all = study.design.phase(left_out)
    return Estimate(
        record,
        runs=len(runs),
        finished=len(runs) - len(todo),
        workers=workers,
        threads=threads,
        seconds=seconds,
        seeds=(seeds := len(study.design.levels.get("seed", record.seeds))),
        difference=_difference(study, record, seeds, runs),
        how=how,
        in_all=in_all if how else len(runs),
    )


def _difference(study: Study, record: StudyRecord, seeds: int, runs: Sequence[Run]) -> float | None:
    """The least difference that the study shows with so many seeds; None of a metric or a task whose scatter
    is not known, of trainings so short that seeds lie far apart, of too few seeds for a verdict, and of
    looks that decide no contrast."""
    arms, steps = len(study.design.compared), min(run.config.train.steps for run in runs)
    if not all(isinstance(run.corpus.recipe, TextRecipe) for run in runs):
        return None
    sd, looks, plan = USUAL_SD.get(record.metric or "val_loss"), study.design.looks, study.design.plan
    if sd is None or seeds < FEWEST or arms < 2 or steps < SETTLED or (looks and not looks.family):
        return None
    contrasts = (plan.family if plan else 0) or arms - 1
    share = float(spending(looks.at)[-1]) if looks else 1.0  # of the level, at the last look
    return float(stats.least_difference(seeds, sd, stats.ALPHA * share / contrasts, power=stats.POWER))


def total(kinds: Sequence[tuple[Run, int]], threads: int, members: int | None = 1, at_once: int = 1) -> float:
    """The seconds of all runs, if made one after the other while so many are made at a time: the cheapest and
    the costliest are timed, the others interpolated by their FLOPs. kinds: runs, with how many there are of
    each. members: as in Queue."""
    flops = [run.step_flops for run, _ in kinds]
    ends = sorted({min(flops), max(flops)})
    beside = at_once if kinds[0][0].device.type == "cpu" else 1
    runs = [kinds[flops.index(end)][0] for end in ends for _ in range(beside)]
    each = [(run, as_one(run, kinds, members)) for run in runs]
    with said_if_long("timing a few steps, for up to 20 s"):
        times = [*map_in_workers(functools.partial(_time, threads=threads), each, beside)]
    times_E2, seconds = np.reshape(times, (len(ends), beside, 2)).mean(1), 0.0
    for (run, count), f in zip(kinds, flops, strict=True):
        step_s, token_s = (np.interp(f, ends, times_E) for times_E in times_E2.T)
        train, sizes = run.config.train, {split: of.size or 0 for split, of in run.corpus.splits.items()}
        each = min(train.eval_tokens or sizes["validation"], sizes["validation"])
        at_end = sizes["test"] + (sizes["validation"] if each < sizes["validation"] else 0)
        evaluated = (1 - (-train.steps // train.eval_every)) * each + at_end
        seconds += count * (train.steps * step_s + evaluated * token_s)
    return float(seconds)


def as_one(run: Run, kinds: Sequence[tuple[Run, int]], members: int | None) -> int:
    """How many of these runs are trained as one with this one."""
    most = most_as_one(run, members)
    return 1 if most == 1 else min(most, sum(count for one, count in kinds if kind(one) == kind(run)))


def _time(of: tuple[Run, int], threads: int) -> tuple[float, float]:
    """Seconds per training step, and per evaluated token, of each of so many runs as one, or of half as many
    and so on, where they do not fit. If a step would take long, fewer rows are timed."""
    run, members = of
    try:
        return _timed(run, members, threads)
    except torch.OutOfMemoryError:
        if members == 1:
            raise
    return _time((run, members // 2), threads)


def _timed(run: Run, members: int, threads: int) -> tuple[float, float]:
    if assumed := run.config.train.simulated:
        return assumed.step_ms / 1e3 / members, 0.0
    train, at_most = run.config.train, MOST_WORK[run.device.type] / members / run.step_flops
    rows = max(1, min(train.batch, int(train.batch * at_most)))
    small = replace(run, config=replace(run.config, train=replace(train, batch=rows)))
    steps, split, context = endless_steps(small, members), run.corpus.splits["validation"], run.spec.context
    group = build_group([small] * members)
    use_threads(run.device, threads)
    next(steps)  # the first warms up
    began, spent, count = time.perf_counter(), 0.0, 0
    while spent < TIMED_S:
        next(steps)
        spent, count = time.perf_counter() - began, count + 1
    tokens = max(1, min(WINDOWS, int(WINDOWS * at_most))) * context
    scores(group, split, context=context, most=tokens)  # draws the examples of a task, which are kept
    began = time.perf_counter()
    scores(group, split, context=context, most=tokens)
    token_s = (time.perf_counter() - began) / min(tokens, split.size or tokens)
    return spent / count * train.batch / rows / members, token_s / members
