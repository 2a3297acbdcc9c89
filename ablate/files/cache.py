"""A cache of files that are costly to make, kept between runs and shared by processes.

An entry is a directory of files under a key. It is written elsewhere on the same disk and then renamed into
place, so that no process ever sees half of one, even if several write it or a writer is killed.
"""

import json
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from ablate.files import owned

DAY = 86_400  # seconds


def find(key: str) -> tuple[Path, Any] | None:
    """The entry's directory and the data that its writer returned; None if it is not there, or no longer
    whole."""
    return _whole(directory() / key)


def publish(key: str, write: Callable[[Path], Any]) -> tuple[Path, Any]:
    """Make an entry by `write(empty directory) -> plain data about it`, unless another process does so first.

    Raises OSError, such as for a full disk.
    """
    place = directory() / key
    _sweep()
    with scratch() as part:
        about = write(part)
        sizes = {file.name: file.stat().st_size for file in part.iterdir()}
        owned.create(part / "meta.json", json.dumps({"sizes": sizes, "about": about}))
        while not owned.rename_onto_free(part, place):
            if entry := _whole(place):
                return entry  # another process was faster: use its entry, drop ours
            with suppress(FileNotFoundError):  # another process may move it, too
                owned.put_aside(place, directory() / owned.DAMAGED)
        return place, about


def scratch() -> AbstractContextManager[Path]:
    """A temporary directory on the cache's disk, removed at the end with all that is left in it."""
    return owned.scratch(directory())


def directory() -> Path:
    """The cache directory: $ABLATE_CACHE, else the user's cache directory on this system."""
    import platformdirs

    try:
        own = os.environ.get("ABLATE_CACHE") or platformdirs.user_cache_dir("ablate")
        return Path(own).expanduser().absolute()
    except RuntimeError:  # a user without a home directory
        return Path(os.devnull, "ablate")  # which nobody can write


def _whole(place: Path) -> tuple[Path, Any] | None:
    """The entry, if its files are there and as long as they were written."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        meta = json.loads((place / "meta.json").read_text(encoding="utf-8"))
        if all((place / name).stat().st_size == size for name, size in meta["sizes"].items()):
            return place, meta["about"]
    return None


def _sweep() -> None:
    """Remove temporary directories, also those of killed writers, that were not touched for a day."""
    for part in directory().glob("part-*"):
        with suppress(OSError):
            if max(path.lstat().st_mtime for path in (part, *part.iterdir())) < time.time() - DAY:
                owned.drop(part)
