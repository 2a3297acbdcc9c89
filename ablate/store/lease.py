"""Leases: a lease.json in the directory of an attempt names the process that works on it.

A process on this machine is looked up by its pid. Any other proves that it is alive by a heartbeat: it keeps
updating the modification time of its lease.json, by the clock of the file system.
"""

import contextlib
import functools
import json
import math
import os
import re
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any, Self

from ablate.config.rules import ConfigError
from ablate.files.atomic import NO_FILE, StoreError, is_gone
from ablate.files.owned import delete
from ablate.files.reading import parsed, read_bytes
from ablate.phrases import duration, one_line


def seconds(variable: str, usual: float) -> float:
    """A time in seconds that an environment variable may set. Raises ConfigError."""
    given = os.environ.get(variable) or str(usual)
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", given) or not float(given):
        raise ConfigError(f"{variable}={given}: not a number of seconds; give one above 0, or unset it")
    return float(given)


# A lease expires after this long without a heartbeat; the same for all who share a store.
EXPIRES_S = seconds("ABLATE_LEASE_EXPIRES_S", 120)
HEARTBEAT_S = min(5.0, EXPIRES_S / 4)
ODD = (ValueError, KeyError, TypeError, OverflowError)  # a lease that ablate has not written
SAME_S = 2.0  # times that differ by less are of one event: some systems count boots in whole seconds

_mine = set[str]()  # the names of the attempts that this process works on


def take(attempt: Path) -> bytes:
    """Take the lease of an attempt for this process, until `release`; returns the content of lease.json."""
    _mine.add(attempt.name)
    pid = os.getpid()
    return (json.dumps({**_here(), "pid": pid, "started": _started(pid)}) + "\n").encode()


def is_live(directory: Path) -> bool:
    """Whether the process that holds the lease of this attempt is still working on it."""
    path = directory / "lease.json"
    try:
        content = parsed(read_bytes(path))
        pid, started = int(content["pid"]), float(content["started"])
        if _is_of_here(content) and (now := _started(pid)) is not None:
            # If this process has given it up, its lease.json could not be removed.
            return abs(now - started) < SAME_S and (pid != os.getpid() or directory.name in _mine)
        return _age(directory) < EXPIRES_S
    except OSError as error:
        # If it can't be read at the moment, leave the attempt alone.
        return not is_gone(error) and error.errno not in NO_FILE
    except ODD:
        return False


def holder(directory: Path) -> str:
    """What to say of the process that holds the lease of this attempt: who it is, when it was heard of, and
    the way out if it is gone."""
    path, who, heard = directory / "lease.json", "another process", ""
    with contextlib.suppress(OSError, *ODD):
        content = parsed(read_bytes(path))
        who = one_line(f"process {content['pid']} on {content['host']}")
        if 0 <= (age := _age(directory)) < math.inf:
            heard = f", last heard of {duration(age)} ago"
    return f"{who} is training this run{heard} (if it is gone, delete {path})"


def count_from_now(directory: Path) -> None:
    """A heartbeat that is dated ahead, as where a clock was set back, says nothing: date it now, so that the
    process behind it is dead unless another one follows."""
    with contextlib.suppress(OSError):
        if _age(directory) < -HEARTBEAT_S:
            os.utime(directory / "lease.json")


def release(directory: Path) -> None:
    """Give up this process's lease of an attempt."""
    _mine.discard(directory.name)
    with contextlib.suppress(OSError):
        delete(directory / "lease.json")


def release_ended(directory: Path, pid: int) -> None:
    """Remove the lease of a process of this machine that ended without releasing it."""
    with contextlib.suppress(OSError, *ODD):
        content = parsed(read_bytes(directory / "lease.json"))
        if _is_of_here(content) and content["pid"] == pid:
            release(directory)


class Heartbeat:
    """A thread that keeps showing that this process is alive, whatever else it computes. It does so for all
    leases that are added, as those of a group, until the block ends."""

    def __init__(self) -> None:
        self._lost: dict[Path, bool] = {}  # by lease
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        try:
            threading.Thread(target=self._beat, daemon=True).start()
        except RuntimeError as error:
            raise StoreError(
                "this machine starts no further thread; take fewer hydra.launcher.threads or"
                " hydra.launcher.workers"
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def add(self, directory: Path) -> None:
        self._lost[directory / "lease.json"] = False

    def drop(self, directory: Path) -> None:
        self._lost.pop(directory / "lease.json", None)

    def is_lost(self, directory: Path) -> bool:
        """Whether another process took the directory away."""
        return self._lost.get(directory / "lease.json", False)

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_S):
            for lease in [*self._lost]:
                try:
                    os.utime(lease)
                except OSError as error:  # a network may be unreachable for a while
                    if is_gone(error) and lease in self._lost:
                        self._lost[lease] = True


@functools.cache
def _here() -> dict[str, Any]:
    """Where a pid is valid: this host, since its last boot, in this container's pid namespace."""
    import psutil

    pids = ""
    with contextlib.suppress(OSError):  # only Linux has them
        pids = os.readlink("/proc/self/ns/pid")
    return {"host": socket.gethostname(), "pids": pids, "boot": psutil.boot_time()}


def _is_of_here(content: dict[str, Any]) -> bool:
    """Whether the pid of a lease is one of this machine. Not if its clock was set since: then the times at
    which it was booted and at which the process began can't be compared."""
    here = _here()
    same_place = all(content[key] == here[key] for key in ("host", "pids"))
    return same_place and abs(float(content["boot"]) - here["boot"]) < SAME_S


def _age(directory: Path) -> float:
    """Seconds since the last heartbeat of an attempt; below 0 if that is dated ahead. Raises OSError."""
    return _clock(directory.parents[2]) - (directory / "lease.json").stat().st_mtime


def _clock(directory: Path) -> float:
    """The current time on the clock that heartbeats are written with. If nothing can be written, no other
    process can take a run over either, so −∞: no lease expires."""
    with contextlib.suppress(OSError), tempfile.TemporaryFile(prefix=".clock-", dir=directory) as file:
        return os.fstat(file.fileno()).st_mtime
    return -math.inf


def _started(pid: int) -> float | None:
    """When a process began, in seconds since 1970, which tells it from a later one with the same pid; 0 if it
    has ended; None if it can't be looked up."""
    import psutil

    try:
        process = psutil.Process(pid)
        return 0.0 if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None if _is_hidden(pid) else 0.0
    except psutil.AccessDenied:
        return None


def _is_hidden(pid: int) -> bool:
    """Whether there is such a process of another user, where /proc shows only a user's own (hidepid)."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        return False
    return False
