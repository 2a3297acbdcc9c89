"""Estimate how long a study will take, by timing a few steps on this machine, and what it can show."""

import contextlib
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ablate.analysis import stats
from ablate.analysis.looks import USUAL_SD, spending
from ablate.compute.device import with_threads
from ablate.config.contrast import FEWEST
from ablate.config.rules import ConfigError
from ablate.data.splits import Stream
from ablate.execution.execute import settled
from ablate.execution.grouping import kind, that_fit, why_alone
from ablate.execution.networks import build_group
from ablate.execution.run import PlacedRun
from ablate.execution.timing import endless_steps, seconds_each
from ablate.launch.queue import most_as_one
from ablate.store.record import StudyRecord
from ablate.store.store import Store
from ablate.study.config import Overrides, Rows
from ablate.study.launchers import Launcher
from ablate.study.study import Study, one_of_each
from ablate.training.evaluate import scores

POWER = 0.8  # at which a difference shows
STEPS, WARM_UP = 8, 2  # steps to time, and how many of them to ignore
LONG_S = 5.0  # stop after this long, even with fewer steps
WINDOWS = 64  # the most windows to evaluate
# The most work to time at once: about a second of a core, or less of a GPU.
MOST_WORK = {"cpu": 1e10, "cuda": 1e13}
# Work besides matrix products, as FLOPs that take as long: per layer and step, and per layer and token.
WORK_A_LAYER, WORK_A_TOKEN = 2e7, 2e4


@dataclass(frozen=True)
class Estimate:
    """What a command would do. seconds: for all runs that are left, `workers` at a time. seeds: how
    many report at most; difference: the least that these show with POWER, in nats, if differences scatter as
    in docs/noise.csv; None if that is not known. phases: how many runs each phase of the study takes
    (Design.costs). later: seconds of a run of each phase whose runs are unlike those to train first, as
    `seconds_a_run`."""

    record: StudyRecord
    runs: int
    finished: int
    workers: int
    threads: int
    seconds: float
    seeds: int
    difference: float | None
    phases: Mapping[str, tuple[int, int]]
    later: Mapping[str, float]

    @property
    def seconds_a_run(self) -> float:
        """The seconds of a run with as many at a time; NaN if none is left to time."""
        todo = self.runs - self.finished
        return self.seconds / todo if todo else math.nan

    @property
    def as_json(self) -> dict[str, Any]:
        names = ("runs", "finished", "workers", "threads", "seconds", "seeds", "difference")
        phases = {phase: {"least": least, "most": most} for phase, (least, most) in self.phases.items()}
        return {name: getattr(self, name) for name in names} | {"phases": phases}


def estimate(
    study: Study,
    record: StudyRecord,
    runs: Sequence[PlacedRun],
    left_out: Rows,
    launcher: Launcher,
    threads: int,
) -> Estimate:
    """The estimate for these runs of a study, which leaves others out. threads: of each run."""
    finished = Store().finished()
    todo = [run for run in runs if run.name not in finished or settled(run) is None]
    members = launcher.settings.members
    at_once, kinds = launcher.at_once(todo, threads), one_of_each(todo)
    workers = min(at_once, max(1, len(todo)))
    later = study.design.later.items()
    of_later = {phase: some for phase, arms in later if (some := _that_can_be(study, arms))}
    return Estimate(
        record,
        runs=len(runs),
        finished=len(runs) - len(todo),
        workers=workers,
        threads=threads,
        seconds=total(kinds, threads, members) / workers if kinds else 0.0,
        seeds=(seeds := len(study.design.levels.get("seed", record.seeds))),
        difference=_difference(study, record, seeds),
        phases=study.design.costs(left_out),
        later={phase: _mean_s(some, threads, members) / at_once for phase, some in of_later.items()},
    )


def _that_can_be(study: Study, arms: Sequence[Overrides]) -> list[PlacedRun]:
    """A run of each of these arms that can be built and that no condition excludes."""
    runs = list[PlacedRun]()
    for arm in arms:
        with contextlib.suppress(ConfigError):
            runs.append(study.run_of(arm))
    return runs


def _mean_s(runs: Sequence[PlacedRun], threads: int, members: int | None) -> float:
    """The mean seconds of these runs, if made one after the other."""
    return total([(run, 1) for run in runs], threads, members) / len(runs)


def _difference(study: Study, record: StudyRecord, seeds: int) -> float | None:
    """The least difference that the study shows with so many seeds; None of a metric whose scatter is not
    known, and of too few seeds for a verdict."""
    arms = len(study.design.compared)
    sd = USUAL_SD.get(record.metric or "val_loss")
    if sd is None or seeds < FEWEST or arms < 2 or record.demonstration:
        return None
    looks, contrasts = study.design.looks, study.contrasts or arms - 1
    share = float(spending(looks.at)[-1]) if looks else 1.0  # of the level, at the last look
    return float(stats.least_difference(seeds, sd, stats.ALPHA * share / contrasts, power=POWER))


def total(kinds: Sequence[tuple[PlacedRun, int]], threads: int, members: int | None = 1) -> float:
    """The seconds of all runs, if made one after the other. kinds: runs, with how many there are of each.
    members: as in Queue."""
    return float([count for _, count in kinds] @ _seconds(kinds, threads, members))


def _seconds(kinds: Sequence[tuple[PlacedRun, int]], threads: int, members: int | None) -> np.ndarray:
    """(K,) seconds of one run of each kind, its share where several are trained as one: the cheapest and the
    costliest are timed, the others interpolated by their FLOPs."""
    flops = [run.step_flops for run, _ in kinds]
    cheapest, dearest = min(flops), max(flops)
    timed = {}
    with with_threads(threads):
        for f in {cheapest, dearest}:
            run = kinds[flops.index(f)][0]
            timed[f] = _time(run, as_one(run, kinds, members))
    seconds = []
    for (run, _), f in zip(kinds, flops, strict=True):
        share = (f - cheapest) / (dearest - cheapest) if dearest > cheapest else 0.0
        step_s, token_s = (a + share * (b - a) for a, b in zip(timed[cheapest], timed[dearest], strict=True))
        seconds.append(run.config.train.steps * step_s + _evaluated(run) * token_s)
    return np.array(seconds)


def _evaluated(run: PlacedRun) -> int:
    """The number of tokens that a run evaluates, during training and at its end."""
    train = run.config.train
    validation, test = (run.corpus.splits[split].size or 0 for split in ("validation", "test"))
    each = min(train.eval_tokens or validation, validation)
    at_end = test + (validation if each < validation else 0)
    return (1 - (-train.steps // train.eval_every)) * each + at_end


def as_one(run: PlacedRun, kinds: Sequence[tuple[PlacedRun, int]], members: int | None) -> int:
    """How many of these runs are trained as one with this one."""
    most = most_as_one(run, members)
    if most == 1 or why_alone(run):
        return 1
    waiting = sum(count for one, count in kinds if kind(one) == kind(run))
    return min(most, waiting, that_fit(run))


def _time(run: PlacedRun, members: int) -> tuple[float, float]:
    """Seconds per training step, and per evaluated token, of each of so many runs as one. If that would take
    long, smaller runs are timed and their seconds scaled up by the ratio of their work."""
    if assumed := run.config.train.simulated:
        return assumed.step_ms / 1e3 / members, 0.0
    small = _smaller(run, members)
    steps, seconds = endless_steps(small, members), []
    group = build_group([small] * members)  # before the clock starts
    while len(seconds) < STEPS and sum(seconds) <= LONG_S:
        seconds.append(seconds_each(steps, 1))
    context, most = small.spec.context, MOST_WORK[small.device.type]
    windows = max(1, min(WINDOWS, int(most / _work_a_token(small) / context / members)))
    split, most = run.corpus.splits["validation"], windows * context
    scores(group, split, context=context, most=most)  # draws the examples of a task, which are kept
    began = time.perf_counter()
    scores(group, split, context=context, most=most)
    token_s = (time.perf_counter() - began) / min(most, split.size or most)
    return (
        statistics.median(seconds[WARM_UP:] or seconds) * _work(run) / _work(small) / members,
        token_s * _work_a_token(run) / _work_a_token(small) / members,
    )


def _smaller(run: PlacedRun, members: int) -> PlacedRun:
    """The run or, if a step of so many would take long, one with fewer rows, layers or positions."""
    config, spec = run.config, run.spec
    as_it_is = not isinstance(run.corpus.splits["train"], Stream)  # only a text has shorter windows
    while members * _work(run) > MOST_WORK[run.device.type]:
        if config.train.batch > 1:
            config = replace(config, train=replace(config.train, batch=config.train.batch // 2))
        elif spec.layers > 1:
            spec = replace(spec, layers=spec.layers // 2)
        elif spec.context > 1 and not as_it_is:
            spec = replace(spec, context=spec.context // 2)
        else:
            break
        run = replace(run, config=config, spec=spec)
    return run


def _work(run: PlacedRun) -> float:
    """The work of a training step: its FLOPs, plus everything else as FLOPs that take as long."""
    return run.config.train.batch * run.spec.context * _work_a_token(run) + WORK_A_LAYER * run.spec.layers


def _work_a_token(run: PlacedRun) -> float:
    tokens = run.config.train.batch * run.spec.context
    return run.step_flops / tokens + WORK_A_TOKEN * run.spec.layers
