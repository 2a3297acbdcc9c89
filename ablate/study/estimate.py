"""Estimate how long a study will take, by timing a few steps on this machine."""

import contextlib
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from ablate.clusters import Cluster
from ablate.compute.device import with_threads
from ablate.config.rules import ConfigError
from ablate.data.splits import Stream
from ablate.execution.execute import settled
from ablate.execution.grouping import kind, that_fit, why_alone
from ablate.execution.place import attention_of, linear_of
from ablate.execution.run import PlacedRun, Run, build_group, place
from ablate.execution.timing import endless_steps, seconds_each
from ablate.launch.queue import most_as_one
from ablate.store.record import Machine, StudyRecord
from ablate.store.store import Store
from ablate.study.config import Overrides, Rows
from ablate.study.launchers import Launcher, placed
from ablate.study.machine import gains_in_bfloat16
from ablate.study.study import Study, one_of_each
from ablate.training.evaluate import scores

STEPS, WARM_UP = 8, 2  # steps to time, and how many of them to ignore
LONG_S = 5.0  # stop after this long, even with fewer steps
WINDOWS = 64  # the most windows to evaluate
# The most work to time at once: about a second of a core, or less of a GPU.
MOST_WORK = {"cpu": 1e10, "cuda": 1e13}
# Work besides matrix products, as FLOPs that take as long: per layer and step, and per layer and token.
WORK_A_LAYER, WORK_A_TOKEN = 2e7, 2e4
BUSY = 1.25  # mention what a quiet machine would need if a step takes so many times its processor time
WORTH_SAYING = 0.9  # mention bfloat16 if it takes less than this share of the time in float32


@dataclass(frozen=True)
class Times:
    """Seconds of runs, if made one after the other: for training steps, for evaluations during training, and
    for evaluating whole splits at the end. longest: of the longest run, all in all. busy: how much longer a
    step took than its processor time, as other processes compute too."""

    steps: float = 0.0
    evaluations: float = 0.0
    ends: float = 0.0
    longest: float = 0.0
    busy: float = 1.0

    @property
    def total(self) -> float:
        return self.steps + self.evaluations + self.ends


@dataclass(frozen=True)
class Estimate:
    """What a command would do. seconds: for all runs that are left, `workers` at a time; at_once: of as many
    runs as one likes. in_bfloat16: the same with train.precision=bfloat16, if that is faster and was not
    asked for. times: what the time is spent on. cluster: the jobs on other machines that train them. untimed:
    why nothing could be timed on this machine; empty if it could. forecast: lines about what will follow
    after these runs. phases: how many runs each phase of the study takes (Design.costs). later: seconds of a
    run of each phase whose runs are unlike those to train first, as `seconds_a_run`."""

    record: StudyRecord
    runs: int
    finished: int
    workers: int
    at_once: int
    threads: int
    times: Times
    in_bfloat16: float | None
    cluster: Cluster | None
    untimed: str
    forecast: Sequence[str]
    phases: Mapping[str, Mapping[str, float]]
    later: Mapping[str, float]

    @property
    def seconds(self) -> float:
        return self.times.total / self.workers

    @property
    def seconds_when_quiet(self) -> float | None:
        """The same on a machine on which nothing else computes; None if that would be about as long."""
        is_worth_saying = self.times.busy > BUSY and self.seconds > 60
        return self.seconds / self.times.busy if is_worth_saying else None

    @property
    def seconds_a_run(self) -> float:
        """The seconds of a run with as many at a time; NaN if none is left to time."""
        todo = self.runs - self.finished
        return self.seconds / todo if todo and not self.untimed else math.nan


def estimate(
    study: Study,
    record: StudyRecord,
    runs: Sequence[Run],
    left_out: Rows,
    launcher: Launcher,
    machine: Machine | None,
) -> Estimate:
    """The estimate for these runs of a study, which leaves others out. machine: its settings; None where
    those of a cluster will choose them. Raises ConfigError if this machine can't place a larger run that
    follows these."""
    finished = Store().finished()
    todo = [run for run in runs if run.name not in finished or settled(run) is None]
    cluster = launcher.settings if launcher.settings.remote else None
    threads = launcher.threads(machine, todo)
    at_once = launcher.at_once(placed(todo), threads)
    workers, untimed = min(at_once, max(1, len(todo))), ""
    try:
        kinds = [(run if isinstance(run, PlacedRun) else place(run), n) for run, n in one_of_each(todo)]
    except ConfigError as error:
        kinds, untimed = [], str(error)
    members = launcher.settings.members
    times, faster = total(kinds, threads, members) if kinds else Times(), None
    if kinds and not cluster and all(gains_in_bfloat16(run) for run, _ in kinds):
        in_halves = total([(_in_bfloat16(run), count) for run, count in kinds], threads, members).total
        faster = in_halves / workers if in_halves < WORTH_SAYING * times.total else None
    later = {} if untimed else study.design.later
    of_later = {phase: runs for phase, arms in later.items() if (runs := _that_can_be(study, arms))}
    return Estimate(
        record,
        runs=len(runs),
        finished=len(runs) - len(todo),
        workers=workers,
        at_once=at_once,
        threads=threads,
        times=times,
        in_bfloat16=faster,
        cluster=cluster,
        untimed=untimed,
        forecast=study.design.forecast(left_out),
        phases=study.design.costs(left_out),
        later={phase: _mean_s(runs, threads, members) / at_once for phase, runs in of_later.items()},
    )


def _that_can_be(study: Study, arms: Sequence[Overrides]) -> list[Run]:
    """A run of each of these arms that can be built and that no condition excludes."""
    runs = list[Run]()
    for arm in arms:
        with contextlib.suppress(ConfigError):
            runs.append(study.run_of(arm))
    return runs


def _mean_s(runs: Sequence[Run], threads: int, members: int | None) -> float:
    """The mean seconds of these runs, if made one after the other. Raises ConfigError if this machine can't
    place one."""
    kinds = [(run if isinstance(run, PlacedRun) else place(run), 1) for run in runs]
    return total(kinds, threads, members).total / len(kinds)


def total(kinds: Sequence[tuple[PlacedRun, int]], threads: int, members: int | None = 1) -> Times:
    """The times of all runs. kinds: runs, with how many there are of each. members: as in Queue."""
    measured_K4 = _seconds(kinds, threads, members)
    seconds_K3 = measured_K4[:, :3]
    of_all = [count for _, count in kinds] @ seconds_K3
    return Times(
        *of_all.tolist(), longest=float(seconds_K3.sum(1).max()), busy=float(measured_K4[:, 3].max())
    )


def _seconds(kinds: Sequence[tuple[PlacedRun, int]], threads: int, members: int | None) -> np.ndarray:
    """(K, 4) seconds of one run of each kind, its share where several are trained as one, and how busy the
    machine was, as in Times: the cheapest and the costliest are timed, the others interpolated by their
    FLOPs."""
    flops = [run.step_flops for run, _ in kinds]
    cheapest, dearest = min(flops), max(flops)
    timed = {}
    with with_threads(threads):
        for f in {cheapest, dearest}:
            run = kinds[flops.index(f)][0]
            timed[f] = _time(run, as_one(run, kinds, members))
    measured_K4 = np.empty((len(kinds), 4))
    for row, (run, _), f in zip(measured_K4, kinds, flops, strict=True):
        share = (f - cheapest) / (dearest - cheapest) if dearest > cheapest else 0.0
        both = zip(timed[cheapest], timed[dearest], strict=True)
        step_s, token_s, busy = (a + share * (b - a) for a, b in both)
        meanwhile, at_end = _evaluated(run)
        row[:] = run.config.train.steps * step_s, meanwhile * token_s, at_end * token_s, busy
    return measured_K4


def _evaluated(run: PlacedRun) -> tuple[int, int]:
    """The number of tokens that a run evaluates during training, and at its end."""
    train = run.config.train
    validation, test = (run.corpus.splits[split].size or 0 for split in ("validation", "test"))
    each = min(train.eval_tokens or validation, validation)
    at_end = test + (validation if each < validation else 0)
    averaged = validation + test if train.average else 0
    return (1 - (-train.steps // train.eval_every)) * each, at_end + averaged


def as_one(run: PlacedRun, kinds: Sequence[tuple[PlacedRun, int]], members: int | None) -> int:
    """How many of these runs are trained as one with this one."""
    most = most_as_one(run, members)
    if most == 1 or why_alone(run):
        return 1
    waiting = sum(count for one, count in kinds if kind(one) == kind(run))
    return min(most, waiting, that_fit(run))


def _time(run: PlacedRun, members: int) -> tuple[float, float, float]:
    """Seconds per training step, and per evaluated token, of each of so many runs as one, and how much longer
    a step took than its processor time (1 where several threads or a GPU compute). If that would take long,
    smaller runs are timed and their seconds scaled up by the ratio of their work."""
    small = _smaller(run, members)
    steps, seconds = endless_steps(small, members), []
    group = build_group([small] * members)  # before the clock starts
    computing = time.process_time()
    while len(seconds) < STEPS and sum(seconds) <= LONG_S:
        seconds.append(seconds_each(steps, 1))
    computing = time.process_time() - computing
    is_alone = torch.get_num_threads() == 1 and small.device.type == "cpu"
    context, most = small.spec.context, MOST_WORK[small.device.type]
    windows = max(1, min(WINDOWS, int(most / _work_a_token(small) / context / members)))
    split, most = run.corpus.splits["validation"], windows * context
    began = time.perf_counter()
    scores(group, split, context=context, most=most)
    token_s = (time.perf_counter() - began) / min(most, split.size or most)
    return (
        statistics.median(seconds[WARM_UP:] or seconds) * _work(run) / _work(small) / members,
        token_s * _work_a_token(run) / _work_a_token(small) / members,
        max(1.0, sum(seconds) / computing) if is_alone and computing else 1.0,
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


def _in_bfloat16(run: PlacedRun) -> PlacedRun:
    train = replace(run.config.train, precision="bfloat16")
    linear, attention = linear_of(train, run.device), attention_of(train, run.device)
    return replace(run, config=replace(run.config, train=train), linear=linear, attention=attention)
