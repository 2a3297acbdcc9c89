"""Files and directories that are complete or absent, with any number of writers; errors of the system as one
line.

It relies on two operations that are atomic on every file system, also over a network: renaming a file over
another, and renaming a directory onto a free name, in which only one of several processes succeeds (owned).
Loads no torch.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ablate.config.rules import ConfigError
from ablate.files import owned

log = logging.getLogger(__name__)

LONG_S = 2.0  # from which on a wait is said
SETTLED_NS = 2_000_000_000  # how old a file is whose stamp tells any later change of it

Content = dict[str, Any]


class StoreError(ConfigError):
    """The state of the disk does not allow the request."""


def is_gone(error: OSError) -> bool:
    """Whether the error means that the file no longer exists; network file systems report this as ESTALE."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


def names(directory: Path) -> list[str]:
    """The names in a directory, sorted; empty if there is no such directory. Raises StoreError."""
    try:
        return sorted(os.listdir(directory))
    except OSError as error:
        if is_gone(error):
            return []
        raise out_of_reach(directory, error) from error


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn OSErrors inside the block into StoreErrors."""
    try:
        yield
    except OSError as error:
        named = path if error.filename2 else error.filename or path  # no temporary name of a rename
        raise StoreError(
            f"{named}: can't be written ({error.strerror or error}); mend that, or run ablate in another"
            " directory"
        ) from error


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Have other processes that ask for this lock wait meanwhile; who waits for long is told. Where the file
    system has no locks, nobody waits. Raises StoreError if there can be no such file."""
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("ab")
    with lock:
        with said_if_long(f"{path}: another process has it; waiting"), contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def said_if_long(line: str) -> Iterator[None]:
    """Say this line once the block takes long."""
    timer = threading.Timer(LONG_S, log.warning, [line])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that at any time either the old or the whole new content is there. Creates its
    directory if needed. Raises StoreError."""
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        owned.replace_file(path, content)


def make_once(directory: Path, files: Mapping[str, bytes]) -> bool:
    """Create a directory with these files, at least one; False if it exists already. files: content by name,
    or by NAME/NAME. Raises OSError."""
    with owned.scratch(directory.parent) as part:
        for name, data in files.items():
            (part / name).parent.mkdir(exist_ok=True)
            owned.create(part / name, data)
        return owned.rename_onto_free(part, directory)


def digest(content: Any) -> str:
    """SHA-256 of plain data, whatever the order of its keys."""
    return hashlib.sha256(_canonical(content).encode()).hexdigest()


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def file_stamp(path: Path) -> tuple[int, ...] | None:
    """What changes whenever the file does; None while it may change again within one tick of the file
    system's clock. Raises OSError."""
    stat = path.stat()
    if stat.st_mtime_ns > time.time_ns() - SETTLED_NS:
        return None
    # Which file it is and when it was touched: a link may lead to another, and cp -p keeps the time.
    return stat.st_size, stat.st_mtime_ns, stat.st_dev, stat.st_ino, stat.st_ctime_ns


def file_digest(path: Path) -> str:
    """16 hex digits over the bytes of a file. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


# --- JSON files -----------------------------------------------------------------------------------


class Garbled(StoreError):
    """A file is not what ablate wrote."""


def read_json(path: Path, keys: set[str]) -> Content:
    """The mapping in a JSON file, with at least these keys. Raises FileNotFoundError, Garbled, or StoreError
    if it can't be read at the moment."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        if is_gone(error):
            raise FileNotFoundError(path) from None
        raise out_of_reach(path, error) from error
    except (ValueError, RecursionError) as error:
        raise garbled(path, str(error)) from error
    if isinstance(content, dict) and keys <= content.keys():
        return content
    raise garbled(path, "something is missing in it")


def out_of_reach(path: Path, error: Exception) -> StoreError:
    """The error for a file that may be intact: no network, too many open files, or no permission."""
    reason = getattr(error, "strerror", None) or error
    return StoreError(f"{path}: can't be read ({reason}); mend that, and run the same command")


def garbled(path: Path, reason: str) -> Garbled:
    """The error for a file of ablate's that is damaged or was edited."""
    return Garbled(f"{path}: can't be read ({reason}); restore it, or move {path.parent} away to begin anew")
