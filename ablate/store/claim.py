"""Who is at an attempt: a claim.json in its directory, with the process that works there.

A process that can be looked up is alive or it is not. Any other shows by a heartbeat that it is: the time of
its claim.json, by the clock of the file system, wherever that is.
"""

import contextlib
import functools
import json
import math
import os
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any

from ablate.files.atomic import is_gone

HEARTBEAT_S = 5
EXPIRES_S = 120  # without a heartbeat

_mine = set[str]()  # the names of the attempts that this process is at


def claim(attempt: Path) -> bytes:
    """The content of its claim.json: from here on until it is released, this process is at it."""
    _mine.add(attempt.name)
    pid = os.getpid()
    return (json.dumps({**_here(), "pid": pid, "started": _started(pid)}) + "\n").encode()


def is_live(directory: Path) -> bool:
    """Whether the process that claimed this attempt is still at it."""
    path = directory / "claim.json"
    try:
        content = json.loads(path.read_bytes())
        pid, started = int(content["pid"]), content["started"]
        if started and {key: content.get(key) for key in _here()} == _here():
            now = _started(pid)
            if pid == os.getpid() and now == started:
                return directory.name in _mine  # else it could not be given back
            if now or not _exists(pid):
                return now == started
        return _clock(directory.parents[2]) - path.stat().st_mtime < EXPIRES_S
    except OSError as error:
        return not is_gone(error)  # what can't be read at this moment is left alone
    except (ValueError, KeyError, TypeError):
        return False


def release(directory: Path) -> None:
    """This process gives it back."""
    _mine.discard(directory.name)
    with contextlib.suppress(OSError):
        (directory / "claim.json").unlink()


def release_ended(directory: Path, pid: int) -> None:
    """Give back what a process of this machine had claimed, which has ended and could not."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        content = json.loads((directory / "claim.json").read_bytes())
        if {**_here(), "pid": pid}.items() <= content.items():
            release(directory)


class Heartbeat:
    """Shows that this process lives, whatever it computes meanwhile."""

    def __init__(self, directory: Path) -> None:
        self.lost = False  # somebody took the directory away
        self._claim = directory / "claim.json"
        self._ended = threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        while not (self.lost or self._ended.is_set()):
            try:
                os.utime(self._claim)
            except OSError as error:  # a network may be away for a while
                self.lost = is_gone(error) and not self._ended.is_set()
            self._ended.wait(HEARTBEAT_S)

    def end(self) -> None:
        self._ended.set()


@functools.cache
def _here() -> dict[str, Any]:
    """Where a process can be looked up by its number: this host since it began, seen from this container."""
    boot, pids = Path("/proc/sys/kernel/random/boot_id"), "/proc/self/ns/pid"
    here = {"host": socket.gethostname(), "boot": "", "pids": ""}
    with contextlib.suppress(OSError):
        here |= {"boot": boot.read_text(encoding="ascii").strip(), "pids": os.readlink(pids)}
    return here


def _clock(directory: Path) -> float:
    """Now, by the clock that heartbeats are written with; where nothing can be written, nobody can take a run
    either, and no claim expires."""
    with contextlib.suppress(OSError), tempfile.TemporaryFile(prefix=".clock-", dir=directory) as file:
        return os.fstat(file.fileno()).st_mtime
    return -math.inf


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _started(pid: int) -> str:
    """When a process began, in clock ticks since boot: another that has got its number began at another time.
    `ended` for one that only waits to be asked how; empty where Linux does not say, or there is none.

    See: Linux, Documentation/filesystems/proc.rst, fields 3 and 22 of /proc/PID/stat.
    """
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        state, *fields = stat.rpartition(")")[2].split()  # the name before it may hold anything
        return "ended" if state in "ZX" else fields[18]
    return ""
