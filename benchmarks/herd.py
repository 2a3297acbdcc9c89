"""Many processes on one store, like many machines: what gets lost, and how much they slow each other down.

    python benchmarks/herd.py                  1,000 runs of a second, 16 processes
    python benchmarks/herd.py --latency 5      with 5 ms more for each operation on the store

Runs are replaced by sleeps; the queue and the store are those of `ablate run`. Each process has its own host
name, in a UTS namespace where the system has them. Exits with 1 if a run is made twice or lost.
"""

import argparse
import contextlib
import ctypes
import functools
import io
import multiprocessing
import os
import queue
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ablate.launch.pool import Queue
from ablate.store import lease
from ablate.store.run_files import Busy
from ablate.store.store import Store

PROCESSES = multiprocessing.get_context("fork")
NEW_UTS_NAMESPACE = 0x04000000  # CLONE_NEWUTS, see Linux, include/uapi/linux/sched.h
ROW = {"status": "running", "code": "c", "torch": "t", "seed": 0}
METRICS = {"tokens": 1, "lr": 0.1, "train_loss": 1.0, "val_loss": 1.0, "grad_norm": 1.0, "seconds": 1.0}


def on_a_host_of_its_own(number: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with contextlib.suppress(OSError):
        if libc.unshare(NEW_UTS_NAMESPACE) == 0:
            socket.sethostname(f"node{number}")
    if socket.gethostname() != f"node{number}":
        socket.gethostname = lambda: f"node{number}"
    lease._here.cache_clear()


def slow_file_system(seconds: float) -> None:
    """Every operation that names a file waits first."""

    def slowed(operation: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(operation)
        def waits(*arguments: Any, **options: Any) -> Any:
            time.sleep(seconds)
            return operation(*arguments, **options)

        return waits

    for name in (
        "stat",
        "lstat",
        "open",
        "mkdir",
        "rmdir",
        "rename",
        "replace",
        "unlink",
        "listdir",
        "scandir",
        "utime",
    ):
        setattr(os, name, slowed(getattr(os, name)))
    io.open = slowed(io.open)


def name_of(number: int) -> str:
    return f"run-{number:08x}"


def row(name: str) -> dict[str, Any]:
    return {**ROW, "run_id": name.removeprefix("run-") * 2}


def attempt(store: Store, name: str) -> Any:
    return store.run(name).attempt({"seed": 0}, row(name), known=[])


def done(name: str) -> dict[str, Any]:
    return {**row(name), "status": "done"}


def gathered(herd: list[Any], said: Any) -> list[Any]:
    """What each of them answers; they begin here. Raises AssertionError where one ends without an answer."""
    for process in herd:
        process.start()
    answers = []
    while len(answers) < len(herd):
        try:
            answers.append(said.get(timeout=1))
        except queue.Empty:
            assert not any(process.exitcode for process in herd), "a process ended with an error"
    for process in herd:
        process.join()
    return answers


def sharing(root: Path, number: int, arguments: argparse.Namespace, start: Any, said: Any) -> None:
    on_a_host_of_its_own(number)
    if arguments.latency:
        slow_file_system(arguments.latency / 1000)
    store, made, in_runs = Store(root), list[str](), 0.0
    runs: list[Any] = [SimpleNamespace(name=name_of(n), cost=1.0) for n in range(arguments.runs)]
    start.wait()
    began = time.perf_counter()
    left = Queue(runs, store, made=lambda run: None)
    while left:
        if not (group := left.next()):
            time.sleep(0.1)
            continue
        (index,) = group
        name = runs[index].name
        try:
            with attempt(store, name) as writer:
                run_began = time.perf_counter()
                time.sleep(arguments.seconds)
                in_runs += time.perf_counter() - run_began
                made.append(name)
                writer.metrics({**METRICS, "step": number})
                store.run(name).finish(writer, done(name), known=[])
        except Busy:
            left.later(index)
    said.put((made, in_runs, time.perf_counter() - began))


def share_a_sweep(arguments: argparse.Namespace) -> bool:
    with tempfile.TemporaryDirectory() as directory:
        start, said = PROCESSES.Barrier(arguments.processes), PROCESSES.Queue()
        herd = [
            PROCESSES.Process(target=sharing, args=(Path(directory), number, arguments, start, said))
            for number in range(arguments.processes)
        ]
        answers = gathered(herd, said)
        made = Counter(name for names, _, _ in answers for name in names)
        rows = Store(Path(directory)).rows()
        left = [path.name for path in (Path(directory) / "store").glob(".*.part")]
    in_runs, elapsed = (sum(answer[i] for answer in answers) for i in (1, 2))
    twice = sum(count > 1 for count in made.values())
    finished = sum(row["status"] in ("done", "stale") for row in rows)
    print(
        f"{arguments.runs} runs, {arguments.processes} processes: {finished} finished, {twice} made twice,"
        f" {len(left)} attempts left over; {in_runs / elapsed:.1%} of the time in runs"
        f" ({max(answer[2] for answer in answers):.1f} s)",
        flush=True,
    )
    return finished == arguments.runs and not twice and not left


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a run")
    parser.add_argument("--latency", type=float, default=0.0, help="ms, of each operation on the store")
    sys.exit(0 if share_a_sweep(parser.parse_args()) else 1)


if __name__ == "__main__":
    main()
