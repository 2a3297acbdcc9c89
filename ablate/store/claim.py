"""Claims: a claim.json in the directory of an attempt names the process that works on it.

A process on this machine is looked up by its pid. Any other proves that it is alive by a heartbeat: it keeps
updating the modification time of its claim.json, by the clock of the file system.
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

# A claim expires after this long without a heartbeat; the same for all who share a store.
EXPIRES_S = float(os.environ.get("ABLATE_CLAIM_EXPIRES_S", "120"))
HEARTBEAT_S = min(5.0, EXPIRES_S / 4)

_mine = set[str]()  # the names of the attempts that this process works on


def claim(attempt: Path) -> bytes:
    """Claim an attempt for this process, until `release`; returns the content of its claim.json."""
    _mine.add(attempt.name)
    pid = os.getpid()
    return (json.dumps({**_here(), "pid": pid, "started": _started(pid)}) + "\n").encode()


def is_live(directory: Path) -> bool:
    """Whether the process that claimed this attempt is still working on it."""
    path = directory / "claim.json"
    try:
        content = json.loads(path.read_bytes())
        pid, started = int(content["pid"]), content["started"]
        if started and {key: content.get(key) for key in _here()} == _here():
            now = _started(pid)
            if pid == os.getpid() and now == started:
                return directory.name in _mine  # if not, its claim.json could not be removed
            if now or not _exists(pid):
                return now == started
        return _clock(directory.parents[2]) - path.stat().st_mtime < EXPIRES_S
    except OSError as error:
        return not is_gone(error)  # if it can't be read at the moment, leave the attempt alone
    except (ValueError, KeyError, TypeError):
        return False


def host(directory: Path) -> str:
    """The machine whose process claimed this attempt; empty if none did."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return json.loads((directory / "claim.json").read_bytes())["host"]
    return ""


def release(directory: Path) -> None:
    """Give up this process's claim on an attempt."""
    _mine.discard(directory.name)
    with contextlib.suppress(OSError):
        (directory / "claim.json").unlink()


def release_ended(directory: Path, pid: int) -> None:
    """Remove the claim of a process of this machine that ended without releasing it."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        content = json.loads((directory / "claim.json").read_bytes())
        if {**_here(), "pid": pid}.items() <= content.items():
            release(directory)


class Heartbeat:
    """A thread that keeps showing that this process is alive, whatever else it computes."""

    def __init__(self, directory: Path) -> None:
        self.lost = False  # whether another process took the directory away
        self._claim = directory / "claim.json"
        self._ended = threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        while not (self.lost or self._ended.is_set()):
            try:
                os.utime(self._claim)
            except OSError as error:  # a network may be unreachable for a while
                self.lost = is_gone(error) and not self._ended.is_set()
            self._ended.wait(HEARTBEAT_S)

    def end(self) -> None:
        self._ended.set()


@functools.cache
def _here() -> dict[str, Any]:
    """Where a pid is valid: this host, since its last boot, in this container's pid namespace."""
    boot, pids = Path("/proc/sys/kernel/random/boot_id"), "/proc/self/ns/pid"
    here = {"host": socket.gethostname(), "boot": "", "pids": ""}
    with contextlib.suppress(OSError):
        here |= {"boot": boot.read_text(encoding="ascii").strip(), "pids": os.readlink(pids)}
    return here


def _clock(directory: Path) -> float:
    """The current time on the clock that heartbeats are written with. If nothing can be written, no other
    process can take a run over either, so −∞: no claim expires."""
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
    """When a process began, in clock ticks since boot, which tells it from a later one with the same pid.
    `ended` for a zombie; empty if there is no such process or this is not Linux.

    See: Linux, Documentation/filesystems/proc.rst, fields 3 and 22 of /proc/PID/stat.
    """
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        state, *fields = stat.rpartition(")")[2].split()  # the name in parentheses may contain anything
        return "ended" if state in "ZX" else fields[18]
    return ""
