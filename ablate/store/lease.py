"""Leases: the directory of an attempt is named TOKEN.SIGN by the process that works on it, TOKEN by none.

The sign is a file in store/.alive, one for each process, which holds a lock on it. The system frees the lock
when the process ends, however it ends: on its own machine a process lives if and only if the lock is held,
whatever clocks say. On any other, and on a disk without locks, it lives by its heartbeat: a thread keeps
updating the time of the file, by the clock of the file system.

A machine is known by its boot: two may have one name, while containers have names of their own and share a
kernel and its locks. A forked process closes the file, as the lock would outlive its owner.
"""

import contextlib
import fcntl
import functools
import math
import os
import re
import secrets
import socket
import tempfile
import threading
import time
from pathlib import Path

from ablate.config.rules import ConfigError
from ablate.files.atomic import is_gone
from ablate.files.owned import delete, rename_onto_free
from ablate.phrases import duration


def seconds(variable: str, usual: float) -> float:
    """A time in seconds that an environment variable may set. Raises ConfigError."""
    given = os.environ.get(variable) or str(usual)
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", given) or not float(given):
        raise ConfigError(f"{variable}={given}: not a number of seconds; give one above 0, or unset it")
    return float(given)


# A lease expires after this long without a heartbeat; the same for all who share a store.
EXPIRES_S = seconds("ABLATE_LEASE_EXPIRES_S", 120)
HEARTBEAT_S = min(5.0, EXPIRES_S / 4)
ALIVE = ".alive"

_sign: tuple[Path, int] | None = None  # of this process, in the store that it works on, and its descriptor


def name(store: Path) -> str:
    """A new name for an attempt of this process, which shows from here on that it lives, whatever else it
    computes. store: the directory of the runs. Raises OSError."""
    global _sign
    signs = (store / ALIVE).resolve()
    while not (_sign and _sign[0].parent == signs and _sign[0].exists()):  # another may just have swept it
        _close_sign()
        signs.mkdir(parents=True, exist_ok=True)
        sweep(store)
        path = signs / f"{os.getpid()}-{secrets.token_hex(4)}-{_boot()}@{socket.gethostname()}"
        _sign = path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with contextlib.suppress(OSError):  # a disk without locks
            fcntl.flock(_sign[1], fcntl.LOCK_EX)
        threading.Thread(target=_beat, args=(path,), daemon=True).start()
    return f"{secrets.token_hex(4)}.{_sign[0].name}"


def release(attempt: Path) -> None:
    """Give up the lease of an attempt."""
    with contextlib.suppress(OSError):
        rename_onto_free(attempt, attempt.with_name(attempt.name.partition(".")[0]))


def bury(store: Path, pid: int | None) -> None:
    """Remove the signs of a process of this machine that has ended: on a disk without locks it would seem to
    live on for a while. A lock that is held says that it has not."""
    for path in (store / ALIVE).glob(f"{pid}-*-{_boot()}@{socket.gethostname()}"):
        with contextlib.suppress(OSError):
            if not _is_locked(path):
                delete(path)


def sweep(store: Path) -> None:
    """Remove the signs of processes of this machine that have ended, for which other machines would wait."""
    for path in (store / ALIVE).glob(f"*-{_boot()}@*"):
        with contextlib.suppress(OSError):
            if _is_locked(path) is False:
                delete(path)


def is_live(attempt: Path) -> bool:
    """Whether the process that has the lease of this attempt is still working on it."""
    sign = _sign_of(attempt)
    _, boot, _ = _about(sign)
    try:
        if boot == _boot() and (is_locked := _is_locked(sign)) is not None:
            return is_locked
        return bool(boot) and _age(sign) < EXPIRES_S
    except OSError as error:
        return not is_gone(error)  # if it can't be read at the moment, leave the attempt alone


def holder(attempt: Path) -> str:
    """What to say of the process that has the lease of this attempt: who it is, when it was heard of, and the
    way out if it is gone. A heartbeat that is dated ahead, as where a clock was set back, says nothing: it is
    dated now, so that the process behind it is dead unless another one follows."""
    sign, heard = _sign_of(attempt), ""
    pid, _, host = _about(sign)
    with contextlib.suppress(OSError):
        if (age := _age(sign)) < -HEARTBEAT_S:
            os.utime(sign)
        elif age >= 0:
            heard = f", last heard of {duration(age)} ago"
    return f"process {pid} on {host} is training this run{heard} (if it is gone, delete {sign})"


def _is_locked(sign: Path) -> bool | None:
    """Whether a process of this machine holds it; None on a disk without locks. Raises OSError if it can't be
    read."""
    with sign.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return None
    return False


def _sign_of(attempt: Path) -> Path:
    return attempt.parents[1] / ALIVE / attempt.name.partition(".")[2]


def _about(sign: Path) -> tuple[str, str, str]:
    """The process, the boot and the name of its machine, as the sign is named by them."""
    pid, _, rest = sign.name.partition("-")
    boot, _, host = rest.partition("-")[2].rpartition("@")
    return pid, boot, host


def _age(sign: Path) -> float:
    """Seconds since the last heartbeat; below 0 if that is dated ahead. Raises OSError."""
    return _clock(sign.parent) - sign.stat().st_mtime


def _clock(directory: Path) -> float:
    """The current time on the clock that heartbeats are written with. If nothing can be written, no other
    process can take a run over either, so −∞: no lease expires."""
    with contextlib.suppress(OSError), tempfile.TemporaryFile(prefix=".clock-", dir=directory) as file:
        return os.fstat(file.fileno()).st_mtime
    return -math.inf


@functools.cache
def _boot() -> str:
    """What identifies this machine since its last boot; the name of the host, where only Linux tells."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
    return socket.gethostname()


def _beat(path: Path) -> None:
    while _sign and _sign[0] == path:
        time.sleep(HEARTBEAT_S)
        with contextlib.suppress(OSError):  # a network may be unreachable for a while
            os.utime(path)


def _close_sign() -> None:
    global _sign
    if _sign:
        os.close(_sign[1])
    _sign = None


os.register_at_fork(after_in_child=_close_sign)
