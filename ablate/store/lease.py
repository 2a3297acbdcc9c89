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
import time
from pathlib import Path
from typing import Any

from ablate.config.rules import ConfigError
from ablate.files.atomic import StoreError, is_gone
from ablate.files.owned import delete
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
ODD = (ValueError, KeyError, TypeError)  # a lease that ablate has not written
SAME_S = 2.0  # times that differ by less are of one event: some systems count boots in whole seconds

_mine: dict[Path, bool] = {}  # the attempts that this process works on: whether another took them away
_heart: threading.Thread | None = None
os.register_at_fork(after_in_child=_mine.clear)


def content() -> bytes:
    """The content of lease.json for this process."""
    pid = os.getpid()
    return (json.dumps({**_here(), "pid": pid, "started": _began(pid)}) + "\n").encode()


def hold(attempt: Path) -> None:
    """Keep showing, until `release`, that this process works on an attempt, whatever else it computes. Raises
    StoreError."""
    global _heart
    _mine[attempt] = False
    if _heart and _heart.is_alive():  # in a process that was forked it is not
        return
    try:
        _heart = threading.Thread(target=_beat, daemon=True)
        _heart.start()
    except RuntimeError as error:
        raise StoreError(
            "this machine starts no further thread; take fewer hydra.launcher.threads or"
            " hydra.launcher.workers"
        ) from error


def is_lost(attempt: Path) -> bool:
    """Whether another process took the attempt away."""
    return _mine.get(attempt, False)


def release(attempt: Path, now: Path | None = None) -> None:
    """Give up this process's lease of an attempt. now: its directory, if it was renamed."""
    _mine.pop(attempt, None)
    with contextlib.suppress(OSError):
        delete((now or attempt) / "lease.json")


def _beat() -> None:
    while True:
        time.sleep(HEARTBEAT_S)
        for attempt in [*_mine]:
            try:
                os.utime(attempt / "lease.json")
            except OSError as error:  # a network may be unreachable for a while
                if is_gone(error) and attempt in _mine:
                    _mine[attempt] = True


def is_live(directory: Path) -> bool:
    """Whether the process that holds the lease of this attempt is still working on it."""
    path = directory / "lease.json"
    try:
        content = json.loads(path.read_bytes())
        pid, started = int(content["pid"]), float(content["started"])
        if _is_of_here(content) and (now := _started(pid)) is not None:
            # If this process has given it up, its lease.json could not be removed.
            is_held = pid != os.getpid() or directory.name in [attempt.name for attempt in [*_mine]]
            return abs(now - started) < SAME_S and is_held
        return _age(directory) < EXPIRES_S
    except OSError as error:
        # If it can't be read at the moment, leave the attempt alone.
        return not is_gone(error)
    except ODD:
        return False


def holder(directory: Path) -> str:
    """What to say of the process that holds the lease of this attempt: who it is, when it was heard of, and
    the way out if it is gone."""
    path, who, heard = directory / "lease.json", "another process", ""
    with contextlib.suppress(OSError, *ODD):
        content = json.loads(path.read_bytes())
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


def release_ended(directory: Path, pid: int) -> None:
    """Remove the lease of a process of this machine that ended without releasing it."""
    with contextlib.suppress(OSError, *ODD):
        content = json.loads((directory / "lease.json").read_bytes())
        if _is_of_here(content) and content["pid"] == pid:
            release(directory)


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
    import psutil

    same_place = all(content[key] == _here()[key] for key in ("host", "pids"))
    return same_place and abs(float(content["boot"]) - psutil.boot_time()) < SAME_S  # by the clock as it is


def _age(directory: Path) -> float:
    """Seconds since the last heartbeat of an attempt; below 0 if that is dated ahead. Raises OSError."""
    return _clock(directory.parents[2]) - (directory / "lease.json").stat().st_mtime


def _clock(directory: Path) -> float:
    """The current time on the clock that heartbeats are written with. If nothing can be written, no other
    process can take a run over either, so −∞: no lease expires."""
    with contextlib.suppress(OSError), tempfile.TemporaryFile(prefix=".clock-", dir=directory) as file:
        return os.fstat(file.fileno()).st_mtime
    return -math.inf


@functools.cache
def _began(pid: int) -> float | None:
    """As _started, of this process, which is looked up once."""
    return _started(pid)


def _started(pid: int) -> float | None:
    """When a process began, in seconds since 1970, which tells it from a later one with the same pid; 0 if it
    has ended; None if it can't be looked up."""
    import psutil

    with contextlib.suppress(psutil.AccessDenied, PermissionError):
        try:
            process = psutil.Process(pid)
            return 0.0 if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
        except psutil.NoSuchProcess:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 0)  # where /proc shows only a user's own (hidepid), it may be another user's
            return 0.0
    return None
