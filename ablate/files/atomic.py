"""Files that are there whole or not at all, and what the system refuses as one line. Loads no torch."""

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from ablate.config.rules import ConfigError


class StoreError(ConfigError):
    """What is on disk does not allow what was asked for."""


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
    """Either the old file or the whole new one is there, whatever happens. Raises StoreError."""
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(data)
            temporary.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise


def sync(directory: Path) -> None:
    """Have the system write the files of a directory out, so that a power cut finds them whole."""
    for path in filter(Path.is_file, directory.iterdir()):
        with path.open("rb+") as file:
            os.fsync(file.fileno())


def file_digest(path: Path) -> str:
    """16 hex digits over the bytes of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
