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
from multiprocessing.connection import wait
from typing import Any

from ablate.compute import device
from ablate.config.rules import ConfigError
from ablate.execution.execute import execute, execute_group, record_failure
from ablate.execution.run import Run
from ablate.export import tracked
from ablate.launch.processes import Worker
from ablate.launch.queue import AGAIN_S, Queue
from ablate.phrases import counted
from ablate.store import lease
from ablate.store.run_folder import Busy
from ablate.store.store import Store
from ablate.training.events import Evaluation, Listener, News

LOOK_EVERY_S = 0.2  # time between looks at workers that nothing is heard of


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
    trained as one, as in Queue. listen: gives the listener of the run with this name, which is told of all
    but evaluations. request_runs: further runs for so many workers that have none, called whenever a run has
    ended.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        *,
        workers: int,
        threads: int,
        members: int | None,
        listen: Callable[[str], Listener],
        request_runs: Callable[[int], Sequence[Run]],
    ) -> None:
        self.workers, self.listen = workers, listen
        self.request_runs = request_runs
        self.refused: dict[str, str] = {}  # by the name of a run, why it could not even begin
        self._queue = Queue(runs, Store().interrupted(), members=members, apart=workers)
        self._task = partial(train_given, threads)
        self._gpus = device.each({run.device for run in runs})  # which the workers take in turn
        self._staff: list[Worker] = []
        self._met: Counter[str] = Counter()  # how often a run was found to be others'
        self._ended = 0  # runs
        self._grown_at = (-1, 0)  # `_ended`, and the spare workers, when runs were last added

    def train(self) -> dict[str, str]:
        """Train every run; returns `refused`. A failed run has a row in the store like any other. Raises
        ConfigError if workers can't start."""
        try:
            while self._queue or self._busy or self._grow(self.workers):
                self._grow(0 if self._queue.groups else self.workers - self._busy)
                while len(self._staff) < min(self.workers, self._busy + self._queue.groups):
                    self._staff.append(self._hired(len(self._staff)))
                for worker in self._staff:
                    if worker.idle and (group := self._queue.next()):
                        worker.give(group)
                wait([end for worker in self._staff for end in worker.ends], timeout=LOOK_EVERY_S)
                for place, worker in enumerate(self._staff):
                    self._attend(worker)
                    if not worker.process.is_alive():
                        self._attend(worker)  # its last messages
                        self._lost(worker)
                        worker.stop()
                        self._staff[place] = self._hired(place)
        finally:
            for worker in self._staff:
                worker.stop()
            lease.sweep(Store().root / "store")
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
            for run in [*worker.given]:
                if name in (None, run.name):
                    self._hear(worker, run, news)

    def _hear(self, worker: Worker, run: Run, news: News) -> None:
        """What is new of a run that a worker trains."""
        self.listen(run.name)(news)
        if isinstance(news, Busy):
            self._met[run.name] += 1
            if self._met[run.name] == 2:
                self.listen(run.name)(f"{news}; waiting")
            self._queue.later(run)
        elif isinstance(news, ConfigError):
            self.refused[run.name] = str(news)
        if not isinstance(news, str | Evaluation):
            worker.given = [one for one in worker.given if one is not run]
            self._ended += 1

    def _lost(self, worker: Worker) -> None:
        """Record that a worker process is gone, and with it its run, if it had one. Of several that it
        trained as one, each half of those that have not ended is tried again, until the one at fault is
        alone."""
        given, reason = worker.given, worker.reason()
        lease.bury(Store().root / "store", worker.process.pid)
        if not worker.was_ready:
            raise ConfigError(f"a worker process could not start: {reason}")
        if given and worker.members > 1:
            first, middle = given[0].name, (len(given) + 1) // 2
            together = f"{first} and others: {counted(worker.members, 'run')} as one"
            self.listen(first)(f"{together}: {reason}; halved")
            self._queue.put_back(given[:middle], given[middle:])
        elif given:
            try:
                self._hear(worker, given[0], record_failure(given[0], reason))
            except ConfigError as error:  # Busy: another command was faster, or the server alone is gone
                self._hear(worker, given[0], error)


def train_given(
    threads: int, receive: Callable[[], Sequence[Run]], send: Callable[[tuple[str | None, News]], None]
) -> None:
    """Train the next runs. The messages are news with the name of their run, None for all of them.

    threads: of PyTorch. receive: gives the runs; it may raise ConfigError, as it opens the corpus in this
    process. What goes wrong with several as one is raised, and ends this process.
    """

    def tell(run: Run, news: News) -> None:
        if not isinstance(news, Evaluation):
            send((run.name, _plain(news)))

    try:
        runs = [*receive()]
    except ConfigError as error:
        send((None, _plain(error)))
        return
    device.use_threads(runs[0].device, threads)
    execute_group(runs, lambda run: tracked(run.name, partial(tell, run)))
    if device.is_lost(runs[0].device):
        sys.exit(1)  # another worker takes this one's place


def _plain(news: Any) -> Any:
    """The news as they can be sent to another process: an error without what only this one knows of it."""
    if not isinstance(news, ConfigError):
        return news
    return (Busy if isinstance(news, Busy) else ConfigError)(str(news))
