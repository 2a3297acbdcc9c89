"""Train runs: one in this process, or many in long-lived worker processes that keep PyTorch and the corpus
loaded.

If a worker dies, only its own run fails, and the worker is replaced. Runs that are under way when the parent
ends can be resumed.

Of commands that work on the same list, each begins at a different place, and jumps to another when it meets
another command. It skips runs that are finished in the store. Runs that another process is working on it
tries again last: by then they are finished, or their process is gone.
"""

import math
import secrets
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ablate.compute import device
from ablate.config.rules import ConfigError
from ablate.execution.events import Event, Finished, Listener, Noticed, Refused, Skipped, Taken
from ablate.execution.execute import execute, record_failure
from ablate.execution.run import PlacedRun
from ablate.launch.processes import READY, Worker, wait_for
from ablate.phrases import error_line
from ablate.store.run_files import Busy, Stamp
from ablate.store.store import Store

LOOK_EVERY_S = 0.5  # time between looks at the store
AGAIN_S = 1.0  # time before trying again a run that another process is working on
STARTS = 3  # attempts to start a worker that ends before it is ready
LAST_WORDS = (Finished, Skipped, Taken, Refused)
# The listener for the events of the run with this name
Listen = Callable[[str], Listener]
RequestRuns = Callable[[int], Sequence[PlacedRun]]  # further runs for so many workers that have none


def train_or_wait(run: PlacedRun, listener: Listener, *, known: Stamp) -> None:
    """Train one run in this process; if another process is working on it, wait. Raises ConfigError if it
    can't begin.

    known: the stamp of the result that existed when the command began.
    """
    waits = False
    while True:
        try:
            execute(run, listener, known=known)
            return
        except Busy as error:
            if not waits:
                listener(Noticed(f"{error}; waiting"))
            waits = True
            time.sleep(AGAIN_S)


def train_all(
    runs: Sequence[PlacedRun],
    known: Mapping[str, Stamp],
    *,
    workers: int,
    threads: int,
    timeout_s: float | None,
    listen: Listen,
    gpus: Sequence[str] = (),
    leave_from: float | None = None,
    request_runs: RequestRuns = lambda spare: [],
) -> dict[str, str]:
    """Train every run in worker processes; returns, by name, the reason for each run that could not even
    begin.

    A failed run has a row in the store like any other. known: by name of the run, the stamp of the result
    that existed when the command began; `request_runs` adds those of its runs. gpus: for the workers to take
    in turn; none if they share what there is. leave_from: begin at this share of the list, and leave runs to
    others that are at them, as helpers do; None: begin anywhere, and wait for others. request_runs: called
    whenever a run has ended. Raises ConfigError if workers can't start.
    """
    queue = Queue(runs, Store(), lambda run: listen(run.name)(Skipped()), leave_from)
    pool = _Pool(queue, known, listen, leaves=leave_from is not None, request_runs=request_runs)
    own = [{"CUDA_VISIBLE_DEVICES": gpus[number % len(gpus)]} if gpus else {} for number in range(workers)]

    def hire(number: int) -> Worker:
        return Worker(try_next, threads=threads, environment=own[number])

    staff = [hire(number) for number in range(min(workers, len(runs)))]
    try:
        while pool.goes_on(staff) or pool.grow(workers):
            busy = sum(worker.index is not None for worker in staff)
            pool.grow(0 if queue.has_free else workers - busy)
            if busy == len(staff) < workers and queue.has_free:
                staff.append(hire(len(staff)))
            for worker in staff:
                if worker.idle and (index := queue.next()) is not None:
                    worker.give(index, (queue.runs[index], known[queue.runs[index].name]))
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


class Queue:
    """A queue of runs, by their index."""

    def __init__(
        self,
        runs: Sequence[PlacedRun],
        store: Store,
        made: Callable[[PlacedRun], object],
        start: float | None = None,
    ) -> None:
        """made: called with each run that another process has finished meanwhile. start: where to begin, as a
        share of the list; at random by default."""
        self.runs = [*runs]
        self.store = store
        self._made = made
        self._waiting = _alike(runs, store.interrupted())
        for alike in self._waiting:
            alike.rotate(-(secrets.randbelow(len(alike)) if start is None else int(start * len(alike))))
        self._later = deque[tuple[float, int]]()  # (time to try again, index)
        self._looked = -math.inf
        self._before = store.finished()  # to be trained again, or damaged: `execute` decides
        self._finished: set[str] = set()

    def __bool__(self) -> bool:
        return self.has_free or bool(self._later)

    @property
    def has_free(self) -> bool:
        """Whether there are runs that nobody was at so far."""
        return any(self._waiting)

    def next(self) -> int | None:
        """The run to try now; None if there is none at the moment, or none left."""
        if not self:
            return None
        self._look()
        for alike in self._waiting:
            while alike:
                if not self._is_made(index := alike.popleft()):
                    return index
        for _ in range(len(self._later)):
            when, index = self._later.popleft()
            if self._is_made(index):
                continue
            if when <= time.monotonic():
                return index
            self._later.append((when, index))
        return None

    def extend(self, runs: Sequence[PlacedRun]) -> None:
        """Append runs, which come in their order after all others."""
        self._waiting.append(deque(range(len(self.runs), len(self.runs) + len(runs))))
        self.runs += runs

    def later(self, index: int) -> None:
        """Postpone a run that another process is working on, and continue at another place of the list."""
        self._later.append((time.monotonic() + AGAIN_S, index))
        if alike := next(filter(None, self._waiting), None):
            alike.rotate(secrets.randbelow(len(alike)))

    def _look(self) -> None:
        if time.monotonic() - self._looked >= LOOK_EVERY_S:
            self._finished = self.store.finished() - self._before
            self._looked = time.monotonic()

    def _is_made(self, index: int) -> bool:
        """Whether another process has finished the run since this command began."""
        run = self.runs[index]
        if is_made := run.name in self._finished:
            self._made(run)
        return is_made


def _alike(runs: Sequence[PlacedRun], interrupted: set[str]) -> list[deque[int]]:
    """Groups of runs of similar cost, the costliest first, so that no long run is left for the end;
    interrupted runs come before all others."""
    alike: dict[tuple[bool, int], deque[int]] = {}
    for index, run in enumerate(runs):
        key = run.name in interrupted, math.frexp(run.cost)[1]
        alike.setdefault(key, deque()).append(index)
    return [alike[key] for key in sorted(alike, reverse=True)]


@dataclass
class _Pool:
    """The runs still to be trained, and the outcome of the others. leaves: whether it leaves runs to others
    that are at them."""

    queue: Queue
    known: Mapping[str, Stamp]
    listen: Listen
    leaves: bool
    request_runs: RequestRuns = lambda spare: []
    refused: dict[str, str] = field(default_factory=dict)
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
        busy = any(worker.index is not None for worker in workers)
        return busy or (self.queue.has_free if self.leaves else bool(self.queue))

    def attend(self, number: int, worker: Worker) -> None:
        """Handle the messages of a worker. number: its place among them."""
        for message in worker.messages():
            if message is READY:
                self.lost_starts[number] = 0
            else:
                self.hear(worker, message)

    def hear(self, worker: Worker, event: Event) -> None:
        """Handle an event of the run that a worker is training."""
        index = worker.index
        assert index is not None
        name = self.queue.runs[index].name
        self.listen(name)(event)
        match event:
            case Taken():
                self.queue.later(index)
            case Refused(reason):
                self.refused[name] = reason
        if isinstance(event, LAST_WORDS):
            worker.index = None
            self.ended += 1

    def lost(self, number: int, worker: Worker, reason: str) -> None:
        """Record that a worker process is gone, and with it its run, if it had one."""
        if worker.index is not None:
            try:
                run = self.queue.runs[worker.index]
                row = record_failure(run, reason, known=self.known[run.name])
                self.hear(worker, Finished(row))
            except Busy:  # another command was faster; or the server is gone but its worker not yet
                self.hear(worker, Taken())
            except ConfigError as error:
                self.hear(worker, Refused(str(error)))
        elif not worker.idle:
            self.lost_starts[number] += 1
            if self.lost_starts[number] == STARTS:
                raise ConfigError(f"a worker process could not start, {STARTS} times: {reason}")

    def stop(self, worker: Worker) -> None:
        """Kill a worker and release its lease, so that no other machine has to wait for it to expire."""
        worker.stop()
        if worker.index is not None and worker.process.pid:
            self.queue.store.run(self.queue.runs[worker.index].name).release(worker.process.pid)


def try_next(receive: Callable[[], tuple[PlacedRun, Stamp]], listener: Listener) -> None:
    """Train the next run. The listener gets its events, the last of which is Finished, Skipped, Taken or
    Refused.

    receive: gives the run, with the stamp of the result that existed when the command began; it may raise
    ConfigError, as it opens the corpus in this process.
    """
    try:
        run, known = receive()
        execute(run, listener, known=known)
        if device.is_lost(run.device):
            sys.exit(1)  # another worker takes this one's place
    except Busy:
        listener(Taken())
    except ConfigError as error:
        listener(Refused(str(error)))
    except Exception as error:  # what the machine refuses, outside of training
        listener(Refused(error_line(error, {})))
