"""Files that were costly to make, kept between runs and shared by processes.

An entry is a directory of files under a key. It is written beside its place and then renamed
into it, so that nobody sees half of one, whoever else is writing and whenever a writer is killed.
"""

import atexit
import functools
import json
import logging
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ablate.config.identity import digest
from ablate.files.atomic import rename_onto_free

DAY = 86_400  # seconds

log = logging.getLogger(__name__)


def find(key: str) -> tuple[Path, dict[str, Any]] | None:
    """The entry's directory and what its writer said of it; None if it is missing or damaged."""
    return _whole(directory() / key) or _whole(writable() / key)


def publish(key: str, write: Callable[[Path], dict[str, Any]]) -> tuple[Path, dict[str, Any]]:
    """The entry, written by `write(empty directory) -> plain data about it`, or by another process meanwhile.

    Raises OSError, as when the disk is full.
    """
    place = writable() / key
    _sweep()
    with scratch() as part:
        about = write(part)
        sizes = {file.name: file.stat().st_size for file in part.iterdir()}
        (part / "meta.json").write_text(json.dumps({"sizes": sizes, "about": about}), encoding="utf-8")
        while not rename_onto_free(part, place):
            if entry := _whole(place):
                return entry  # another was faster: use that, and drop ours
            with scratch() as trash, suppress(OSError):  # damaged: out of the way, as others may do too
                os.rename(place, trash / "damaged")
        return place, about


def recall(stamp: Any) -> Any:
    """What was remembered for `stamp`; None if nothing readable was, or the stamp is None."""
    for root in (directory, writable) if stamp is not None else ():
        with suppress(OSError, ValueError):
            return json.loads(_memo(root(), stamp).read_text(encoding="utf-8"))


def remember(stamp: Any, value: Any) -> None:
    """Keep plain data under a stamp. A memo that can't be written is no loss."""
    if stamp is None:
        return
    with suppress(OSError), scratch() as part:
        (part / "memo").write_text(json.dumps(value), encoding="utf-8")
        memo = _memo(writable(), stamp)
        memo.parent.mkdir(exist_ok=True)
        os.replace(part / "memo", memo)


@contextmanager
def scratch() -> Iterator[Path]:
    """A new directory on the cache's disk. What is still in it afterwards is removed."""
    part = writable() / f"part-{os.getpid()}-{secrets.token_hex(8)}"
    part.mkdir(parents=True)  # a cache may be deleted at any time
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def keep_for_now(part: Path, name: str) -> Path:
    """Keep a scratch directory until nothing has touched it for a day; returns its place, one a name."""
    _sweep()
    place = writable() / f"part-{name}"
    with suppress(OSError):  # it is there
        os.rename(part, place)
    os.utime(place)
    return place


def directory() -> Path:
    """The cache: $ABLATE_CACHE, else the place that the system has for such things."""
    import platformdirs

    return (
        Path(os.environ.get("ABLATE_CACHE") or platformdirs.user_cache_dir("ablate")).expanduser().absolute()
    )


def writable() -> Path:
    """The cache or, where it can't be written, a temporary directory of this process."""
    return _writable(directory())


@functools.cache
def _writable(wanted: Path) -> Path:
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="part-", dir=wanted):
            return wanted
    except OSError as error:
        temporary = Path(tempfile.mkdtemp(prefix="ablate-"))
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        log.warning(
            "%s: the cache can't be written (%s); using a temporary one in %s; ABLATE_CACHE=… names another",
            wanted,
            error.strerror,
            temporary.parent,
        )
        return temporary


def _memo(root: Path, stamp: Any) -> Path:
    return root / "memo" / f"{digest(stamp)}.json"


def _whole(place: Path) -> tuple[Path, dict[str, Any]] | None:
    """The entry, if all its files have the sizes that they were written with."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        meta = json.loads((place / "meta.json").read_text(encoding="utf-8"))
        if all((place / name).stat().st_size == size for name, size in meta["sizes"].items()):
            return place, meta["about"]
    return None


def _sweep() -> None:
    """Remove what is kept for now, and what killed writers left, once nothing in it was touched for a day."""
    for part in writable().glob("part-*"):
        with suppress(OSError):
            if max(path.stat().st_mtime for path in (part, *part.iterdir())) < time.time() - DAY:
                shutil.rmtree(part, ignore_errors=True)
