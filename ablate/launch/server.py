"""The process that workers are forked from, which loads PyTorch while the study is still being read.

It computes nothing, so it has nothing that a fork can't copy (threads of a matrix product, a CUDA context).
On systems without such a server, as on Windows, each worker starts from scratch.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import types
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

PRELOADED = ["ablate.launch.pool"]
COUNTS_OF_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def start() -> None:
    """Start the server. To be called early, since the first worker waits for it."""
    if _has_server():
        forkserver.set_forkserver_preload(PRELOADED)
        resource_tracker.ensure_running()  # first, as its start would unblock Ctrl-C again
        with as_workers_begin():
            forkserver.ensure_running()


def context() -> "ForkServerContext | SpawnContext":
    """The multiprocessing context for starting workers."""
    if _has_server():
        return multiprocessing.get_context("forkserver")
    return multiprocessing.get_context("spawn")


@contextlib.contextmanager
def as_workers_begin() -> Iterator[None]:
    """Set what a process started inside the block inherits: thread counts, which libraries read when they
    load, and a blocked SIGINT, since Ctrl-C reaches the whole process group and the parent decides."""
    before = {name: os.environ.get(name) for name in COUNTS_OF_THREADS}
    os.environ.update(dict.fromkeys(COUNTS_OF_THREADS, "1"))
    if _has_server():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        if _has_server():
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def without_main() -> Iterator[None]:
    """Hide __main__ from a new process, which would otherwise import it and might start the program again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _has_server() -> bool:
    return "forkserver" in multiprocessing.get_all_start_methods()
