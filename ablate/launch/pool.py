"""Train runs: one in this process, or many in long-lived worker processes that keep PyTorch and the corpus
loaded.

If a worker dies, only its own run fails, and the worker is replaced. Runs that are under way when the parent
ends can be resumed.

Of commands that work on the same list, each begins at a different place, and jumps to another when it meets
another command. It skips runs that are finished in the store. Runs that another process is working on it
tries again last: by then they are finished, or their process is gone.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from ablate.compute import device
from ablate.config.rules import ConfigError
from ablate.execution.events import Event, Finished, Listener, PutBack, Skipped
from ablate.execution.execute import execute, execute_group, record_failure
from ablate.execution.run import Run
from ablate.export.trackers import tracked
from ablate.launch.processes import READY, Worker, wait_for
from ablate.launch.queue import AGAIN_S, Queue
from ablate.phrases import counted, error_line
from ablate.store import lease
from ablate.store.run_folder import Busy, OfAnotherKind
from ablate.store.store import Store

STARTS = 3  # attempts to start a worker that ends before it is ready
LAST_WORDS = (Finished, Skipped, PutBack, ConfigError)
# The listener for the events of the run with this name
Listen = Callable[[str], Listener]
RequestRuns = Callable[[int], Sequence[Run]]  # further runs for so many workers that have none


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


def train_all(
    runs: Sequence[Run],
    *,
    workers: int,
    threads: int,
    timeout_s: float | None,
    listen: Listen,
    members: int | None,
    request_runs: RequestRuns,
) -> dict[str, str]:
    """Train every run in worker processes; returns, by name, the reason for each run that could not even
    begin.

    A failed run has a row in the store like any other. members: how many runs of a kind are trained as one,
    as in Queue. request_runs: called whenever a run has ended. Raises ConfigError if workers can't start.
    """
    gpus = device.each({run.device for run in runs})  # which the workers take in turn
    queue = Queue(runs, Store(), lambda run: listen(run.name)(Skipped()), members=members)
    pool = _Pool(queue, listen, request_runs)
    own = [{"CUDA_VISIBLE_DEVICES": gpus[number % len(gpus)]} if gpus else {} for number in range(workers)]

    def hire(number: int) -> Worker:
        return Worker(partial(try_next, threads), environment=own[number])

    staff = [hire(number) for number in range(min(workers, queue.groups))]
    try:
        while pool.goes_on(staff) or pool.grow(workers):
            busy = sum(bool(worker.given) for worker in staff)
            pool.grow(0 if queue.has_free else workers - busy)
            if busy == len(staff) < workers and queue.has_free:
                staff.append(hire(len(staff)))
            for worker in staff:
                if worker.idle and (group := queue.next()):
                    worker.give(group, [queue.runs[index] for index in group])
            wait_for(staff)
            for number, worker in enumerate(staff):
                pool.attend(number, worker)
                if reason := worker.end(timeout_s):
                    pool.attend(number, worker)  # its last messages
                    pool.lost(number, worker, reason)
                    pool.stop(worker)
                    staff[number] = hire(number)
    finally:
        for worker in staff:
            pool.stop(worker)
    return pool.refused


@dataclass
class _Pool:
    """The runs still to be trained, and the outcome of the others."""

    queue: Queue
    listen: Listen
    request_runs: RequestRuns
    refused: dict[str, str] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)  # when a run was first found to be others'
    told: set[str] = field(default_factory=set)  # the runs of others whose line was printed
    lost_starts: Counter[int] = field(default_factory=Counter)  # by worker, since it was last ready
    ended: int = 0  # runs
    grown_at: tuple[int, int] = (-1, 0)  # `ended`, and the spare workers, when runs were last added

    def grow(self, spare: int) -> bool:
        """Add runs for so many workers that have none, unless nothing has changed since the last time;
        returns whether there are more."""
        if (now := (self.ended, spare)) == self.grown_at:
            return False
        self.grown_at = now
        if runs := self.request_runs(spare):
            self.queue.extend(runs)
        return bool(runs)

    def goes_on(self, workers: list[Worker]) -> bool:
        return bool(self.queue) or any(worker.given for worker in workers)

    def attend(self, number: int, worker: Worker) -> None:
        """Handle the messages of a worker. number: its place among them."""
        for message in worker.messages():
            if message is READY:
                self.lost_starts[number] = 0
                continue
            name, event = message
            for index in [*worker.given]:
                if name in (None, self.queue.runs[index].name):
                    self.hear(worker, index, event)

    def hear(self, worker: Worker, index: int, event: Event) -> None:
        """Handle an event of a run that a worker is training."""
        name = self.queue.runs[index].name
        if isinstance(event, OfAnotherKind) and self.waits(name) > lease.EXPIRES_S:
            event = ConfigError(str(event))  # none has come for it
        self.listen(name)(event)
        match event:
            case Busy() | OfAnotherKind():
                if self.waits(name) and name not in self.told and not self.queue.has_free:
                    self.told.add(name)
                    self.listen(name)(f"{event}; waiting")
                self.queue.later(index)
            case PutBack(fit):
                self.queue.put_back(index, fit)
            case ConfigError():
                self.refused[name] = str(event)
        if isinstance(event, LAST_WORDS):
            worker.given.remove(index)
            self.ended += 1

    def waits(self, name: str) -> float:
        """For how many seconds this run has been others' so far; 0 the first time."""
        now = time.monotonic()
        return now - self.since.setdefault(name, now)

    def lost(self, number: int, worker: Worker, reason: str) -> None:
        """Record that a worker process is gone, and with it its run, if it had one. Of several that it
        trained as one, each half is tried again, until the one at fault is alone."""
        if len(worker.given) > 1:
            first = self.queue.runs[worker.given[0]].name
            line = f"{first} and others: {counted(len(worker.given), 'run')} as one: {reason}; halved"
            self.listen(first)(line)
            self.queue.halve(worker.given)
        elif worker.given:
            (index,) = worker.given
            try:
                self.hear(worker, index, Finished(record_failure(self.queue.runs[index], reason)))
            except ConfigError as error:  # Busy: another command was faster, or the server alone is gone
                self.hear(worker, index, error)
        elif not worker.idle:
            self.lost_starts[number] += 1
            if self.lost_starts[number] == STARTS:
                raise ConfigError(f"a worker process could not start, {STARTS} times: {reason}")

    def stop(self, worker: Worker) -> None:
        """Kill a worker and release its leases, so that no other machine has to wait for them to expire."""
        worker.stop()
        if pid := worker.process.pid:
            for index in worker.given:
                self.queue.store.run(self.queue.runs[index].name).release(pid)


def try_next(
    threads: int,
    receive: Callable[[], Sequence[Run]],
    send: Callable[[tuple[str | None, Event]], None],
) -> None:
    """Train the next runs, as one. The messages are events with the name of their run, None for all that are
    left; the last one of each run is one of LAST_WORDS.

    threads: of PyTorch. receive: gives the runs; it may raise ConfigError, as it opens the corpus in this
    process.
    """

    def tell(run: Run, event: Event) -> None:
        send((run.name, event))

    runs: Sequence[Run] = []
    try:
        runs = receive()
        device.use_threads(runs[0].device, threads)
        fit = _fit(runs)
        for run in runs[fit:]:
            tell(run, PutBack(fit))
        outcomes = execute_group(runs[:fit], lambda run: tracked(run.name, partial(tell, run)))
        for run, outcome in zip(runs[:fit], outcomes, strict=True):
            if isinstance(outcome, ConfigError):
                tell(run, _plain(outcome))
    except ConfigError as error:
        send((None, _plain(error)))
    except Exception as error:  # what the machine refuses, outside of training
        if not (runs and device.is_lost(runs[0].device)):
            send((None, ConfigError(error_line(error, {}))))
    if runs and device.is_lost(runs[0].device):
        sys.exit(1)  # another worker takes this one's place, and tries each half of a group


def _plain(error: ConfigError) -> ConfigError:
    """The error as it can be sent to another process."""
    kind = type(error) if isinstance(error, Busy | OfAnotherKind) else ConfigError
    return kind(str(error))


def _fit(runs: Sequence[Run]) -> int:
    """How many of these runs, of one kind, can be trained as one."""
    if len(runs) == 1:
        return 1
    from ablate.execution.grouping import that_fit, why_alone  # which runs alone don't need

    return 1 if why_alone(runs[0]) else min(len(runs), that_fit(runs[0]))
