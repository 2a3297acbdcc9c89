"""Worker processes, and the server that they are forked from: it loads PyTorch while a study is being read.

The server computes nothing, so it has nothing that a fork can't copy (threads of a matrix product, a CUDA
context). On macOS each worker starts from scratch, since what a fork copies of the system's libraries
(Accelerate, Metal) may not work. Workers end with the parent, however the parent ends.
"""

import contextlib
import functools
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ablate.compute.ambient import environment
from ablate.config.rules import ConfigError
from ablate.lazy import torch

if TYPE_CHECKING:
    from ablate.store.provenance import Plugin

PACKAGE = str(Path(__file__).parents[2])  # where ablate itself is imported from
WITHOUT_TORCH = ["ablate.launch.pool"]
PRELOADED = [*WITHOUT_TORCH, "ablate.execution.networks"]
SAFE_PATH = {"PYTHONSAFEPATH": "1"}  # a Python that starts does not look into the working directory
COUNTS_OF_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
LOOK_EVERY_S = 0.2  # time between looks at workers that nothing is heard of
READY = None  # the message of a worker that waits for items

_server = forkserver.ForkServer()
_server.set_forkserver_preload(PRELOADED)

Item = TypeVar("Item")
Result = TypeVar("Result")

# What a worker does with items: it is given a function to receive them, and one to send messages.
Task = Callable[[Callable[[], Any], Callable[[Any], None]], None]


def start_server(*, trains: bool = True) -> None:
    """To be called early, since the first worker waits for the server. trains: whether it loads PyTorch.
    Raises ConfigError where no process can be started."""
    if multiprocessing.current_process().daemon:
        raise ConfigError("a daemonic process can't start workers; add hydra/launcher=basic")
    if _has_server():
        from multiprocessing import resource_tracker

        with _as_workers_begin():
            resource_tracker.ensure_running()  # first, as its start unblocks Ctrl-C
        if not trains:
            _server.set_forkserver_preload(WITHOUT_TORCH)
        with _as_workers_begin():
            _server.ensure_running()


def map_in_workers(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int
) -> Iterator[tuple[int, Result]]:
    """(index, function(item)) of each item, in order of completion, in worker processes with one thread each;
    in this process if it would be a single one. Raises ConfigError if a process is lost."""
    if workers == 1:
        yield from enumerate(map(function, items))
        return
    staff = [Worker(functools.partial(_answer, function)) for _ in range(workers)]
    left = [*reversed([*enumerate(items)])]
    try:
        while left or any(worker.given for worker in staff):
            wait_for(staff)
            for worker in staff:
                lost = worker.end()
                yield from worker.messages()
                if lost:
                    raise ConfigError(f"a worker process is lost: {lost}")
                if worker.idle and left:
                    worker.give([left.pop()])
    finally:
        for worker in staff:
            worker.stop()


def wait_for(staff: "Sequence[Worker]") -> None:
    """Wait until one of these sends a message or ends, at most LOOK_EVERY_S."""
    wait([end for worker in staff for end in worker.ends], timeout=LOOK_EVERY_S)


class Worker:
    """A worker process, seen from the parent. task: done with all items that it is given at a time. given:
    those that have not ended. was_ready: whether it ever took items."""

    def __init__(self, task: Task, environment: Mapping[str, str] | None = None) -> None:
        from ablate.execution import plugins

        start_server()
        self.given: list[Any] = []
        self.idle = self.was_ready = False
        self._since, self._count = 0.0, 0
        forked = multiprocessing.get_context("forkserver") if _has_server() else None
        context = forked or multiprocessing.get_context("spawn")
        self._pipe, child = context.Pipe()
        given = (child, task, {**os.environ, **(environment or {})}, plugins.used())
        self.process = context.Process(target=_work, args=given, daemon=True)
        with _as_workers_begin(), _apart():
            try:
                self.process.start()
            except (EOFError, ConnectionError):  # the server was lost while it forked: another one does
                self.process.start()
        child.close()
        self.ends = [self._pipe, self.process.sentinel]  # what `wait_for` waits for: a message, or its end

    def give(self, items: Sequence[Any]) -> None:
        self.given, self.idle = [*items], False
        self._since, self._count = time.monotonic(), len(items)
        with contextlib.suppress(OSError):  # it has just died, which `end` will report
            self._pipe.send(items)

    def keep(self, count: int) -> list[Any]:
        """The worker does the first of what it was given; returns the others."""
        self.given, others = self.given[:count], self.given[count:]
        self._count = count
        return others

    def messages(self) -> Iterator[Any]:
        """New messages of the worker; ends early if it died while sending one."""
        with contextlib.suppress(EOFError, OSError):
            while self._pipe.poll():
                message = self._pipe.recv()
                if message is READY:
                    self.given, self.idle, self.was_ready = [], True, True
                else:
                    yield message

    def end(self, timeout_s: float | None = None) -> str | None:
        """The reason why the process ended; None if it is alive. Kills one that exceeds the timeout, which is
        of each of the items that it was given."""
        if self.process.is_alive():
            spent = (time.monotonic() - self._since) / max(self._count, 1)
            if not self.given or timeout_s is None or spent < timeout_s:
                return None
            self.stop()
            return f"took longer than hydra.launcher.timeout={timeout_s:g} seconds"
        code = self.process.exitcode or 0
        if code >= 0:
            return f"its process ended with exit code {code}"
        name = signal.Signals(-code).name
        return f"its process was ended by {name}" + ("; out of memory?" if name == "SIGKILL" else "")

    def stop(self) -> None:
        """Kill the process; a run that it trains stays as an interrupted one."""
        self.process.kill()
        self.process.join()


# --- in the worker --------------------------------------------------------------------------------


def _work(pipe: Connection, task: Task, environment: Mapping[str, str], own: "Sequence[Plugin]") -> None:
    os.environ.clear()
    os.environ.update(environment)  # the parent's current one; the server's dates from its start
    # Ctrl-C reaches the whole process group, SIGTERM in SLURM the whole job: the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from ablate.execution import plugins

    plugins.install(own)

    def send(message: Any) -> None:
        try:
            pipe.send(message)
        except OSError:  # the parent is gone, or took this process for dead: that is no failure of a run
            os._exit(1)

    with contextlib.suppress(EOFError):
        while True:
            send(READY)
            task(pipe.recv, send)


def _answer(function: Callable[[Any], Any], receive: Callable[[], Any], send: Callable[[Any], None]) -> None:
    ((index, item),) = receive()
    torch.set_num_threads(1)
    send((index, function(item)))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


# --- how a process begins -------------------------------------------------------------------------


@contextlib.contextmanager
def _as_workers_begin() -> Iterator[None]:
    """Set what a process started inside the block inherits: thread counts, which libraries read when they
    load; a blocked SIGINT, since Ctrl-C reaches the whole process group and the parent decides; and a path on
    which modules of the working directory come last, or a random.py there would be taken for Python's own."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    path, is_unset = [*sys.path], multiprocessing.get_start_method(allow_none=True) is None
    sys.path.sort(key=lambda entry: entry == "" and os.getcwd() != PACKAGE)
    try:
        with environment(**SAFE_PATH, **dict.fromkeys(COUNTS_OF_THREADS, "1")):
            yield
    finally:
        sys.path[:] = path
        if is_unset:  # a start asks for the default method, which settles it for the whole program
            multiprocessing.set_start_method(None, force=True)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """Hide __main__ from a new process, which would otherwise import it and might start the program again;
    and have it forked by a server of our own, since the rest of this program may have another."""
    main, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    theirs = forkserver.connect_to_new_process
    forkserver.connect_to_new_process = _server.connect_to_new_process
    try:
        yield
    finally:
        sys.modules["__main__"], forkserver.connect_to_new_process = main, theirs


def _has_server() -> bool:
    return sys.platform != "darwin"
