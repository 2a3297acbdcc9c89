"""Deleting, overwriting and renaming: no other file does (tests/test_owned.py).

What is deleted is a path that follows from the name of a run, a study or an entry of the cache. It is renamed
first, to a name that nobody else gives, in which one process alone succeeds; of a link, the link is deleted.
"""

import contextlib
import errno
import itertools
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

DAMAGED = "damaged"  # the directory into which what is damaged is moved


def create(path: Path, content: str | bytes) -> None:
    """Write a file that is not there yet. Raises FileExistsError, OSError."""
    with path.open("xb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file so that at any time either the old or the whole new content is there. Its directory has to
    exist. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        create(temporary, content)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def delete(path: Path) -> None:
    """Delete a file, or a directory with nothing in it. Raises FileNotFoundError, OSError."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink()


def rename_onto_free(directory: Path, free: Path) -> bool:
    """Rename a file, or a directory that is not empty; False if the name is taken by a directory. Raises
    FileNotFoundError if it is gone, OSError."""
    try:
        os.rename(directory, free)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        return False
    return True


def put_aside(damaged: Path, into: Path) -> Path:
    """Move what is damaged to a free name in `into`; returns its new path. Raises FileNotFoundError if it is
    gone, OSError."""
    into.mkdir(parents=True, exist_ok=True)
    targets = (into / f"{damaged.name}-{number}" for number in itertools.count(1))
    return next(to for to in targets if not os.path.lexists(to) and rename_onto_free(damaged, to))


def take_away(directory: Path, into: Path) -> Path:
    """Move a directory away, even from a process that still writes in it and then no longer finds it; returns
    its new path in `into`. Raises FileNotFoundError if it is gone, OSError."""
    gone = into / f".gone-{secrets.token_hex(4)}"
    os.rename(directory, gone)
    return gone


def remove_tree(directory: Path, into: Path | None = None) -> None:
    """Delete a directory with all that is in it, of which nobody sees a part, as it is first taken away, by
    default to a name beside it. Raises as take_away."""
    drop(take_away(directory, into or directory.parent))


def drop(temporary: Path) -> None:
    """Delete a directory that nobody needs, as far as that is possible."""
    if temporary.is_symlink():
        temporary.unlink()
    shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def scratch(within: Path) -> Iterator[Path]:
    """A temporary directory, removed at the end with all that is left in it."""
    part = within / f".part-{os.getpid()}-{secrets.token_hex(8)}"
    part.mkdir(parents=True)
    try:
        yield part
    finally:
        drop(part)
