"""Train runs: one in this process, or many in long-lived worker processes that keep PyTorch and the corpus
loaded.

If a worker dies, only its own run fails, and the worker is replaced. Runs that are under way when the parent
ends can be resumed.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ablate.compute import device
from ablate.config.rules import ConfigError
from ablate.execution import grouping
from ablate.execution.execute import execute, execute_group, reason_of, record_failure
from ablate.execution.run import Run
from ablate.export.trackers import tracked
from ablate.launch.processes import Worker, wait_for
from ablate.launch.queue import AGAIN_S, Queue
from ablate.phrases import counted, error_line
from ablate.store import lease
from ablate.store.run_folder import Busy, OfAnotherKind
from ablate.store.store import Store
from ablate.training.events import Evaluation, Listener, News

STARTS = 3  # attempts to start a worker that ends before it is ready


def train_or_wait(run: Run, listener: Listener) -> None:
    """Train one run in this process; if another process is working on it, wait. Raises ConfigError if it
    can't begin."""
    waits = False
    while True:
        try:
            execute(run, listener)
            return
        except Busy as error:
            if not waits:
                listener(f"{error}; waiting")
            waits = True
            time.sleep(AGAIN_S)


class WorkerPool:
    """Worker processes, each of which trains a run, or several as one.

    workers: how many there are at most. threads: of PyTorch in each. members: how many runs of a kind are
    trained as one, as in Queue. timeout_s: the longest time of a run. listen: gives the listener of the run
    with this name; evaluations: whether it is told of them. request_runs: further runs for so many workers
    that have none, called whenever a run has ended.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        *,
        workers: int,
        threads: int,
        members: int | None,
        timeout_s: float | None,
        listen: Callable[[str], Listener],
        evaluations: bool,
        request_runs: Callable[[int], Sequence[Run]],
    ) -> None:
        self.workers, self.timeout_s, self.listen = workers, timeout_s, listen
        self.request_runs = request_runs
        self.refused: dict[str, str] = {}  # by the name of a run, why it could not even begin
        self._queue = Queue(runs, Store(), lambda run: listen(run.name)(None), members=members, apart=workers)
        self._task = partial(train_given, threads, evaluations)
        self._gpus = device.each({run.device for run in runs})  # which the workers take in turn
        self._staff: list[Worker] = []
        self._since: dict[str, float] = {}  # when a run was first found to be others'
        self._told: set[str] = set()  # the runs of others whose line was printed
        self._lost_starts: Counter[int] = Counter()  # by place among the workers, one after the other
        self._ended = 0  # runs
        self._grown_at = (-1, 0)  # `_ended`, and the spare workers, when runs were last added

    def train(self) -> dict[str, str]:
        """Train every run; returns `refused`. A failed run has a row in the store like any other. Raises
        ConfigError if workers can't start."""
        try:
            while self._queue or self._busy or self._grow(self.workers):
                self._grow(0 if self._queue.has_free else self.workers - self._busy)
                while len(self._staff) < min(self.workers, self._busy + self._queue.groups):
                    self._staff.append(self._hired(len(self._staff)))
                for worker in self._staff:
                    if worker.idle and (group := self._queue.next()):
                        worker.give(group)
                wait_for(self._staff)
                for place, worker in enumerate(self._staff):
                    self._attend(worker)
                    if reason := worker.end(self.timeout_s):
                        self._attend(worker)  # its last messages
                        given = worker.given
                        self._lost(place, worker, reason)
                        self._stop(worker, given)
                        self._staff[place] = self._hired(place)
        finally:
            for worker in self._staff:
                self._stop(worker, worker.given)
        return self.refused

    @property
    def _busy(self) -> int:
        return sum(bool(worker.given) for worker in self._staff)

    def _hired(self, place: int) -> Worker:
        gpus = self._gpus
        return Worker(self._task, {"CUDA_VISIBLE_DEVICES": gpus[place % len(gpus)]} if gpus else {})

    def _grow(self, spare: int) -> bool:
        """Add runs for so many workers that have none, unless nothing has changed since the last time;
        returns whether there are more."""
        if (now := (self._ended, spare)) == self._grown_at:
            return False
        self._grown_at = now
        runs = self.request_runs(spare)
        self._queue.extend(runs)
        return bool(runs)

    def _attend(self, worker: Worker) -> None:
        for name, news in worker.messages():
            if isinstance(news, int):
                self._queue.put_back(worker.keep(news), fit=news)
                continue
            if name is None and isinstance(news, str) and worker.given:
                self._halve(worker, news)
                worker.given = []
            for run in [*worker.given]:
                if name in (None, run.name):
                    self._hear(worker, run, news)

    def _hear(self, worker: Worker, run: Run, news: News) -> None:
        """What is new of a run that a worker trains."""
        if isinstance(news, OfAnotherKind) and self._waits(run.name) > lease.EXPIRES_S:
            news = ConfigError(str(news))  # none has come for it
        self.listen(run.name)(news)
        if isinstance(news, Busy | OfAnotherKind):
            if self._waits(run.name) and run.name not in self._told:
                self._told.add(run.name)
                self.listen(run.name)(f"{news}; waiting")
            self._queue.later(run)
        elif isinstance(news, ConfigError):
            self.refused[run.name] = str(news)
        if not isinstance(news, str | Evaluation):
            worker.given = [one for one in worker.given if one is not run]
            self._ended += 1

    def _waits(self, name: str) -> float:
        """For how many seconds this run has been others' so far; 0 the first time."""
        now = time.monotonic()
        return now - self._since.setdefault(name, now)

    def _lost(self, place: int, worker: Worker, reason: str) -> None:
        """Record that a worker process is gone, and with it its run, if it had one."""
        self._lost_starts[place] = 0 if worker.was_ready else self._lost_starts[place] + 1
        if self._lost_starts[place] == STARTS:
            raise ConfigError(f"a worker process could not start, {STARTS} times: {reason}")
        if len(worker.given) > 1:
            self._halve(worker, reason)
        elif worker.given:
            (run,) = worker.given
            try:
                self._hear(worker, run, record_failure(run, reason))
            except ConfigError as error:  # Busy: another command was faster, or the server alone is gone
                self._hear(worker, run, error)

    def _halve(self, worker: Worker, reason: str) -> None:
        """Have each half of the runs that a worker trained as one tried again, until the one at fault is
        alone."""
        first = worker.given[0].name
        line = f"{first} and others: {counted(len(worker.given), 'run')} as one: {reason}; halved"
        self.listen(first)(line)
        self._queue.halve(worker.given)

    def _stop(self, worker: Worker, given: Sequence[Run]) -> None:
        """Kill a worker and release its leases of what it was given, so that no other machine has to wait for
        them to expire."""
        worker.stop()
        if pid := worker.process.pid:
            for run in given:
                Store().run(run.name).release(pid)


def train_given(
    threads: int,
    evaluations: bool,
    receive: Callable[[], Sequence[Run]],
    send: Callable[[tuple[str | None, News | int]], None],
) -> None:
    """Train the next runs. The messages are news with the name of their run, None for all that have not
    ended: how many of these are trained, as no more fit, or as a text why they fail as one.

    threads: of PyTorch. evaluations: whether they are sent. receive: gives the runs; it may raise
    ConfigError, as it opens the corpus in this process.
    """

    def tell(run: Run, news: News) -> None:
        if evaluations or not isinstance(news, Evaluation):
            send((run.name, _plain(news)))

    runs = list[Run]()
    try:
        runs = [*receive()]
        device.use_threads(runs[0].device, threads)
        fit = grouping.that_fit(runs[0]) if len(runs) > 1 else 1
        if fit < len(runs):
            send((None, fit))
            runs = runs[:fit]
        outcomes = execute_group(runs, lambda run: tracked(run.name, partial(tell, run)))
        for run, outcome in zip(runs, outcomes, strict=True):
            if isinstance(outcome, ConfigError):
                tell(run, outcome)
    except ConfigError as error:
        send((None, _plain(error)))
    except Exception as error:  # of a group, or what the machine refuses, outside of training
        if not runs:
            send((None, ConfigError(error_line(error, {}))))
        elif len(runs) > 1:
            send((None, reason_of(error, runs[0])))
        elif not device.is_lost(runs[0].device):
            send((None, ConfigError(reason_of(error, runs[0]))))
    # Outside of the block, whose error keeps the group and its memory.
    if runs and device.is_lost(runs[0].device):
        sys.exit(1)  # another worker takes this one's place
    if runs:
        device.release_memory(runs[0].device)


def _plain(news: Any) -> Any:
    """The news as they can be sent to another process: an error without what only this one knows of it."""
    if not isinstance(news, ConfigError):
        return news
    return (type(news) if isinstance(news, Busy | OfAnotherKind) else ConfigError)(str(news))
