"""Worker processes, and the server that they are forked from: it loads PyTorch while a study is being read.

The server computes nothing, so it has nothing that a fork can't copy (threads of a matrix product, a CUDA
context). Workers end with the parent, however the parent ends.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

from ablate.compute.ambient import environment
from ablate.config.rules import ConfigError
from ablate.lazy import torch
from ablate.phrases import error_line, out_of_memory
from ablate.store.provenance import Plugin, plugin_files

PACKAGE = str(Path(__file__).parents[2])  # where ablate itself is imported from
PRELOADED = ["ablate.launch.pool", "ablate.execution.networks"]  # the second loads PyTorch
SAFE_PATH = {"PYTHONSAFEPATH": "1"}  # a Python that starts does not look into the working directory
COUNTS_OF_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
READY = None  # the message of a worker that waits for items

Item = TypeVar("Item")
Result = TypeVar("Result")

# What a worker does with items: it is given a function to receive them, and one to send messages, which are
# no texts. What it raises ends the process.
Task = Callable[[Callable[[], Any], Callable[[Any], None]], None]


def start_server(*, trains: bool = True) -> None:
    """To be called early, since the first worker waits for the server. trains: whether it loads PyTorch.
    Raises ConfigError where no process can be started."""
    if multiprocessing.current_process().daemon:
        raise ConfigError("a daemonic process can't start workers; add hydra/launcher=basic")
    from multiprocessing import resource_tracker

    with _as_workers_begin():
        resource_tracker.ensure_running()  # first, as its start unblocks Ctrl-C
    with _as_workers_begin():
        forkserver.set_forkserver_preload(PRELOADED if trains else PRELOADED[:1])
        forkserver.ensure_running()


def map_in_workers(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int
) -> Iterator[Result]:
    """function(item) of each item, in worker processes with one thread each; in this process if it would be a
    single one. Raises ConfigError if a process is lost."""
    if workers == 1:
        yield from map(function, items)
        return
    staff, results, rest = list[Worker](), dict[int, Result](), enumerate(items)
    try:
        for _ in range(workers):
            staff.append(Worker(partial(_each, function)))
        for place in range(len(items)):
            while place not in results:
                wait([end for worker in staff for end in worker.ends])
                for worker in staff:
                    results.update(worker.messages())
                    if not worker.process.is_alive():
                        raise ConfigError(f"a worker process is lost: {worker.reason()}")
                    if worker.idle and (item := next(rest, None)):
                        worker.give([item])
            yield results.pop(place)
    finally:
        for worker in staff:
            worker.stop()


class Worker:
    """A worker process, seen from the parent. task: done with all items that it is given at a time, of which
    there were `members`. given: those that have not ended. was_ready: whether it ever took items."""

    def __init__(self, task: Task, environment: Mapping[str, str] | None = None) -> None:
        from ablate.execution import plugins

        start_server()
        self.given: list[Any] = []
        self.members = 0
        self.idle = self.was_ready = False
        self._last_words = ""
        context = multiprocessing.get_context("forkserver")
        self._pipe, child = context.Pipe()
        given = (child, task, {**os.environ, **(environment or {})}, plugins.used())
        self.process = context.Process(target=_work, args=given, daemon=True)
        with _as_workers_begin():
            self.process.start()
        child.close()
        self.ends = [self._pipe, self.process.sentinel]  # what one waits for: a message, or its end

    def give(self, items: Sequence[Any]) -> None:
        self.given, self.members, self.idle = [*items], len(items), False
        with contextlib.suppress(OSError):  # it has just died, which `reason` tells
            self._pipe.send(items)

    def messages(self) -> Iterator[Any]:
        """New messages of the worker; ends early if it died while sending one."""
        with contextlib.suppress(EOFError, OSError):
            while self._pipe.poll():
                message = self._pipe.recv()
                if message is READY:
                    self.given, self.idle, self.was_ready = [], True, True
                elif isinstance(message, str):
                    self._last_words = message
                else:
                    yield message

    def reason(self) -> str:
        """Why the process has ended."""
        code = self.process.exitcode or 0
        if code >= 0:
            return self._last_words or f"its process ended with exit code {code}"
        name = signal.Signals(-code).name
        return f"its process was ended by {name}" + ("; out of memory?" if name == "SIGKILL" else "")

    def stop(self) -> None:
        """Kill the process; a run that it trains stays as an interrupted one."""
        self.process.kill()
        self.process.join()


# --- in the worker --------------------------------------------------------------------------------


def _begin(environment: Mapping[str, str], own: Sequence[Plugin]) -> None:
    os.environ.clear()
    os.environ.update(environment)  # the parent's current one; the server's dates from its start
    # Ctrl-C reaches the whole process group, SIGTERM in SLURM the whole job: the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from ablate.execution import plugins

    plugins.install(own)


def _work(pipe: Connection, task: Task, environment: Mapping[str, str], own: Sequence[Plugin]) -> None:
    def send(message: Any) -> None:
        try:
            pipe.send(message)
        except OSError:  # the parent is gone, or took this process for dead: that is no failure of a run
            os._exit(1)

    try:
        _begin(environment, own)
        while True:
            send(READY)
            task(pipe.recv, send)
    except Exception as error:
        send(out_of_memory(error) or error_line(error, plugin_files()))
        sys.exit(1)


def _each(
    function: Callable[[Item], Result],
    receive: Callable[[], Sequence[tuple[int, Item]]],
    send: Callable[[tuple[int, Result]], None],
) -> None:
    """Send function(item) of each item, with its place, computed with one thread."""
    torch.set_num_threads(1)
    for place, item in receive():
        send((place, function(item)))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


# --- how a process begins -------------------------------------------------------------------------


@contextlib.contextmanager
def _as_workers_begin() -> Iterator[None]:
    """Set what a process started inside the block inherits: thread counts, which libraries read when they
    load; a blocked SIGINT, since Ctrl-C reaches the whole process group and the parent decides; a path on
    which modules of the working directory come last, or a random.py there would be taken for Python's own;
    and no __main__, which it would otherwise import, and might start the program again."""
    main, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    path = [*sys.path]
    sys.path.sort(key=lambda entry: entry == "" and os.getcwd() != PACKAGE)
    try:
        with environment(**SAFE_PATH, **dict.fromkeys(COUNTS_OF_THREADS, "1")):
            yield
    finally:
        sys.path[:], sys.modules["__main__"] = path, main
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
