"""Files that are there whole or not at all, whoever else writes; what the system refuses as one line.

All of it rests on two things that every file system does at once, a network's too: a file that is renamed
over another, and a directory that is renamed onto a free name, which one process can and all others can't.
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

NEW = ".new-"  # begins the name of what is not whole yet
GONE = ".gone-"  # of what was taken away


class StoreError(ConfigError):
    """What is on disk does not allow what was asked for."""


def is_gone(error: OSError) -> bool:
    """Whether it says that there is no such file any more, as a network's file system does by ESTALE."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


def names(directory: Path) -> list[str]:
    """Of what lies there, sorted; none where there is no directory. Raises OSError."""
    try:
        return sorted(os.listdir(directory))
    except OSError as error:
        if is_gone(error):
            return []
        raise


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """What the system refuses within, as a StoreError."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise StoreError(
            f"{error.filename or path}: can't be written ({error.strerror or error});"
            f" {'make room there' if full else 'make it writable'}, or run ablate in another directory"
        ) from error


def write_atomically(path: Path, content: str | bytes) -> None:
    """Either the old file or the whole new one is there, whatever happens; its directory is made where it is
    missing. Raises StoreError."""
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)


def replace_file(path: Path, content: str | bytes) -> None:
    """The same in a directory that has to be there. Raises OSError."""
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
    """Make a directory with these files, of which there is at least one; False if somebody has made it
    before. files: by their names in it, or NAME/NAME, written in this order. Raises OSError."""
    part = directory.with_name(f"{NEW}{secrets.token_hex(4)}")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        if directory.parent.is_file():
            raise
        return False  # who ended with all of it took it away in the middle of this
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
    """Rename a directory that is not empty; False if somebody has that name. Raises FileNotFoundError if it
    is gone, OSError."""
    try:
        os.rename(directory, free)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        return False
    return True


def take_away(directory: Path, into: Path) -> Path:
    """Rename a directory that another process may still write in, which then finds nothing there; returns
    where it lies in `into`. Raises FileNotFoundError if it is gone, OSError."""
    return directory.rename(into / f"{GONE}{secrets.token_hex(4)}")


def sync(files: Iterable[Path]) -> None:
    """Have the system write them out, so that a power cut finds them whole."""
    for path in files:
        with path.open("rb+") as file:
            os.fsync(file.fileno())


def synced_digest(path: Path) -> str:
    """16 hex digits over the bytes of a file, which the system has then written out."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        return _digest(file)


def file_digest(path: Path) -> str:
    """16 hex digits over the bytes of a file."""
    with path.open("rb") as file:
        return _digest(file)


def _digest(file: IO[bytes]) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()[:16]  # pyright: ignore[reportArgumentType]
