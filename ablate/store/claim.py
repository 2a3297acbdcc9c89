"""Who is at a run: a claim.json in its directory, with the process that works there."""

import contextlib
import json
import os
import socket
import tempfile
from pathlib import Path

EXPIRES_S = 120  # a claim that can't be looked up here, and whose heartbeat is older, is dead


def claim(directory: Path) -> None:
    """Say that this process is at `directory`."""
    pid = os.getpid()
    content = {"host": socket.gethostname(), "boot": _boot_id(), "pid": pid, "started": _started(pid)}
    (directory / "claim.json").write_text(json.dumps(content) + "\n", encoding="utf-8")


def heartbeat(directory: Path) -> None:
    os.utime(directory / "claim.json")


def release(directory: Path) -> None:
    (directory / "claim.json").unlink(missing_ok=True)


def is_live(directory: Path) -> bool:
    """Whether the process that claimed `directory` is still there."""
    try:
        content = json.loads((directory / "claim.json").read_text(encoding="utf-8"))
        if content["host"] == socket.gethostname() and os.name == "posix":
            pid = int(content["pid"])
            same = (content["boot"], content["started"]) == (_boot_id(), _started(pid))
            return same and _is_running(pid)
        return _file_time(directory) - (directory / "claim.json").stat().st_mtime < EXPIRES_S
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _file_time(directory: Path) -> float:
    """Now, by the clock that the heartbeat is written with: that of the file system, wherever it is."""
    with tempfile.TemporaryFile(dir=directory) as file:
        return os.fstat(file.fileno()).st_mtime


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _started(pid: int) -> str:
    """When a process began, in clock ticks since boot: another that has got its pid began at another time.
    Empty where Linux does not say, or there is no such process.

    See: Linux, Documentation/filesystems/proc.rst, field 22 of /proc/PID/stat.
    """
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return stat.rpartition(")")[2].split()[19]  # after the name, which may hold anything, comes field 3
    return ""


def _boot_id() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""
