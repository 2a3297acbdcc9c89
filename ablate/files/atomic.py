"""Atomic writing of files and directories, safe with several writers; errors of the system as one line.

It relies on two operations that are atomic on every file system, also over a network: renaming a file over
another, and renaming a directory onto a free name, in which only one of several processes succeeds.
Loads no torch.
"""

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

from ablate.config.rules import ConfigError

NEW = ".new-"  # prefix of a directory that is not complete yet
GONE = ".gone-"  # prefix of a directory that was taken away


class StoreError(ConfigError):
    """The state of the disk does not allow the request."""


def is_gone(error: OSError) -> bool:
    """Whether the error means that the file no longer exists; network file systems report this as ESTALE."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


def names(directory: Path) -> list[str]:
    """The names in a directory, sorted; empty if there is no such directory. Raises OSError."""
    try:
        return sorted(os.listdir(directory))
    except OSError as error:
        if is_gone(error):
            return []
        raise


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn OSErrors inside the block into StoreErrors."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise StoreError(
            f"{error.filename or path}: can't be written ({error.strerror or error});"
            f" {'make room there' if full else 'make it writable'}, or run ablate in another directory"
        ) from error


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that at any time either the old or the whole new content is there. Creates its
    directory if needed. Raises StoreError."""
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)


def replace_file(path: Path, content: str | bytes) -> None:
    """As write_atomically, but the directory has to exist. Raises OSError."""
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def make_once(directory: Path, files: Mapping[str, bytes]) -> bool:
    """Create a directory with these files, at least one; False if it exists already. files: content by name,
    or by NAME/NAME, written in this order. Raises OSError."""
    part = directory.with_name(f"{NEW}{secrets.token_hex(4)}")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        if directory.parent.is_file():
            raise
        return False  # another process finished and removed the parent meanwhile
    try:
        part.mkdir()
        for parent in {(part / name).parent for name in files} - {part}:
            parent.mkdir()
        for name, data in files.items():
            (part / name).write_bytes(data)
        if rename_onto_free(part, directory):
            return True
    except OSError as error:
        if not is_gone(error):  # as above
            shutil.rmtree(part, ignore_errors=True)
            raise
    shutil.rmtree(part, ignore_errors=True)
    return False


def rename_onto_free(directory: Path, free: Path) -> bool:
    """Rename a directory that is not empty; False if the name is taken. Raises FileNotFoundError if the
    directory is gone, OSError."""
    try:
        os.rename(directory, free)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        return False
    return True


def take_away(directory: Path, into: Path) -> Path:
    """Move a directory away, even from a process that still writes in it and then no longer finds it; returns
    its new path in `into`. Raises FileNotFoundError if it is gone, OSError."""
    return directory.rename(into / f"{GONE}{secrets.token_hex(4)}")


def sync(files: Iterable[Path]) -> None:
    """Flush the files to disk (fsync), so that they survive a power cut."""
    for path in files:
        with path.open("rb+") as file:
            os.fsync(file.fileno())


def synced_digest(path: Path) -> str:
    """16 hex digits over the bytes of a file, after flushing it to disk (fsync)."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        return _digest(file)


def file_digest(path: Path) -> str:
    """16 hex digits over the bytes of a file."""
    with path.open("rb") as file:
        return _digest(file)


def _digest(file: IO[bytes]) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()[:16]  # pyright: ignore[reportArgumentType]
