"""Train runs in long-lived worker processes that keep PyTorch and the corpus loaded.

If a worker dies, only its own run fails, and the worker is replaced. Workers end with the parent, however the
parent ends; their runs can be resumed.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig
from ablate.execution import plugins
from ablate.execution.events import Elsewhere, Event, Finished, Listener, Refused, Skipped, Taken
from ablate.execution.execute import record_failure
from ablate.execution.plugins import Plugin
from ablate.execution.prepare import prepare
from ablate.launch import server
from ablate.launch.queue import Item, Queue
from ablate.launch.worker import work
from ablate.store.run_files import Busy
from ablate.store.store import Store

LOOK_EVERY_S = 0.2  # how often timeouts are checked
STARTS = 3  # attempts to start a worker that ends before it is ready
LAST_WORDS = (Finished, Skipped, Taken, Refused)
READY = "ready"  # the first message of a worker


@dataclass(frozen=True)
class Job(Item):
    """One run to train: its item for the queue, and its config."""

    config: RunConfig


# The listener for the events of a job on worker 0, 1, …
Watcher = Callable[[int, Job], Listener]


def run_jobs(
    jobs: Sequence[Job],
    *,
    workers: int,
    threads: int,
    timeout_s: float | None,
    watcher: Watcher,
    gpus: Sequence[str] = (),
    leave_from: float | None = None,
) -> dict[int, str]:
    """Train every run; returns, by index into `jobs`, the reason for each run that could not even begin.

    A failed run has a row in the store like any other. gpus: those for the workers to take in turn; none if
    they share what there is. leave_from: begin at this share of the list, and leave runs to others that are
    at them, as helpers do; None: begin anywhere, and wait for others. Raises ConfigError if workers can't
    start.
    """
    pool = _Jobs(jobs, watcher, Queue(jobs, Store(), leave_from), leaves=leave_from is not None)
    own = [{"CUDA_VISIBLE_DEVICES": gpus[number % len(gpus)]} if gpus else {} for number in range(workers)]
    staff = [_Worker(number, threads, own[number]) for number in range(min(workers, len(jobs)))]
    try:
        while pool.goes_on(staff):
            for worker in staff:
                if worker.idle and (index := pool.next(worker)) is not None:
                    worker.give(index, jobs[index])
            wait([w.pipe for w in staff] + [w.process.sentinel for w in staff], timeout=LOOK_EVERY_S)
            for worker in staff:
                pool.attend(worker)
                if reason := worker.end(timeout_s):
                    pool.attend(worker)  # its last messages
                    pool.lost(worker, reason)
                    pool.stop(worker)
                    staff[worker.number] = _Worker(worker.number, threads, worker.own)
    finally:
        for worker in staff:
            pool.stop(worker)
    return pool.refused


class _Jobs:
    """The runs still to be trained, and the outcome of the others."""

    def __init__(self, jobs: Sequence[Job], watcher: Watcher, queue: Queue, *, leaves: bool) -> None:
        self.jobs = jobs
        self.watcher = watcher
        self.queue = queue
        self.leaves = leaves
        self.refused: dict[int, str] = {}
        self.lost_starts = Counter[int]()  # failed starts by worker, since it was last ready

    def goes_on(self, workers: list["_Worker"]) -> bool:
        busy = any(worker.index is not None for worker in workers)
        return busy or (self.queue.has_free if self.leaves else bool(self.queue))

    def next(self, worker: "_Worker") -> int | None:
        index = self.queue.next()
        while self.queue.made:
            made = self.queue.made.pop()
            self.watcher(worker.number, self.jobs[made])(Elsewhere())
        return index

    def attend(self, worker: "_Worker") -> None:
        """Handle the messages of a worker."""
        for message in worker.messages():
            if message == READY:
                self.lost_starts[worker.number] = 0
            else:
                self.hear(worker, message)

    def hear(self, worker: "_Worker", event: Event) -> None:
        """Handle an event of the run that a worker is training."""
        index = worker.index
        assert index is not None
        self.watcher(worker.number, self.jobs[index])(event)
        match event:
            case Taken():
                self.queue.later(index)
            case Refused(reason):
                self.refused[index] = reason
        if isinstance(event, LAST_WORDS):
            worker.index = None

    def lost(self, worker: "_Worker", reason: str) -> None:
        """Record that a worker process is gone, and with it its run, if it had one."""
        if worker.index is not None:
            try:
                job = self.jobs[worker.index]
                row = record_failure(prepare(job.config), reason, known=job.known)
                self.hear(worker, Finished(row))
            except Busy:  # another command was faster; or the server is gone but its worker not yet
                self.hear(worker, Taken(reason))
            except ConfigError as error:
                self.hear(worker, Refused(str(error)))
        elif not worker.idle:
            self.lost_starts[worker.number] += 1
            if self.lost_starts[worker.number] == STARTS:
                raise ConfigError(f"a worker process could not start, {STARTS} times: {reason}")

    def stop(self, worker: "_Worker") -> None:
        """Kill a worker and release its claim, so that no other machine has to wait for it to expire."""
        worker.stop()
        if worker.index is not None and worker.process.pid:
            self.queue.store.run(self.jobs[worker.index].name).release(worker.process.pid)


@dataclass
class _Worker:
    """One worker process, seen from the parent."""

    number: int
    threads: int
    own: Mapping[str, str]  # environment variables
    index: int | None = None  # of its current job
    idle: bool = field(default=False, init=False)
    since: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        context, environment = server.context(), {**os.environ, **self.own}
        self.pipe, child = context.Pipe()
        given = (child, self.threads, environment, plugins.used())
        self.process = context.Process(target=_work, args=given, daemon=True)
        with server.as_workers_begin(), server.without_main():
            self.process.start()
        child.close()

    def give(self, index: int, job: Job) -> None:
        self.index, self.idle, self.since = index, False, time.monotonic()
        with contextlib.suppress(OSError):  # it has just died, which `end` will report
            self.pipe.send((job.config, job.known))

    def messages(self) -> Iterator[Any]:
        """New messages of the worker; ends early if it died while sending one."""
        with contextlib.suppress(EOFError, OSError):
            while self.pipe.poll():
                message = self.pipe.recv()
                self.idle = message == READY or isinstance(message, LAST_WORDS)
                yield message

    def end(self, timeout_s: float | None) -> str | None:
        """The reason why the process ended; None if it is alive. Kills one that exceeds the timeout."""
        if self.process.is_alive():
            if self.index is None or timeout_s is None or time.monotonic() - self.since < timeout_s:
                return None
            self.process.kill()
            self.process.join()
            return f"took longer than hydra.launcher.timeout={timeout_s:g} seconds"
        code = self.process.exitcode or 0
        if code >= 0:
            return f"its process ended with exit code {code}"
        name = signal.Signals(-code).name
        return f"its process was ended by {name}" + ("; out of memory?" if name == "SIGKILL" else "")

    def stop(self) -> None:
        """Kill the process; its run stays as an interrupted one."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


# --- in the worker ------------------------------------------------------------------------------


def _work(pipe: Connection, threads: int, environment: Mapping[str, str], own: Sequence[Plugin]) -> None:
    os.environ.update(environment)  # the parent's current one; the server's dates from its start
    # Ctrl-C reaches the whole process group, SIGTERM in SLURM the whole job: the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch

    torch.set_num_threads(threads)
    plugins.install(own)
    with contextlib.suppress(EOFError, BrokenPipeError):
        pipe.send(READY)
        work(iter(pipe.recv, None), pipe.send)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
