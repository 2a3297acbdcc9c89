"""A cache of files that are costly to make, kept between runs and shared by processes.

An entry is a directory of files under a key. It is written elsewhere on the same disk and then renamed into
place, so that no process ever sees half of one, even if several write it or a writer is killed.
"""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ablate.files import owned


def find(key: str) -> tuple[Path, Any] | None:
    """The entry's directory and the data that its writer returned; None if it is not there, or no longer
    whole."""
    return _whole(directory() / key)


def publish(key: str, write: Callable[[Path], Any]) -> tuple[Path, Any]:
    """Make an entry by `write(empty directory) -> plain data about it`, unless another process does so first.

    Raises OSError, such as for a full disk.
    """
    place = directory() / key
    with owned.scratch(directory()) as part:
        about = write(part)
        sizes = {file.name: file.stat().st_size for file in part.iterdir()}
        owned.create(part / "meta.json", json.dumps({"sizes": sizes, "about": about}))
        while not owned.rename_onto_free(part, place):
            if entry := _whole(place):
                return entry  # another process was faster: use its entry, drop ours
            with suppress(FileNotFoundError):  # another process may remove it, too
                owned.remove_tree(place)
        return place, about


def directory() -> Path:
    """The cache directory: $ABLATE_CACHE, else the user's cache directory on this system."""
    import platformdirs

    own = os.environ.get("ABLATE_CACHE") or platformdirs.user_cache_dir("ablate")
    return Path(own).expanduser().absolute()


def _whole(place: Path) -> tuple[Path, Any] | None:
    """The entry, if its files are there and as long as they were written."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        meta = json.loads((place / "meta.json").read_text(encoding="utf-8"))
        if all((place / name).stat().st_size == size for name, size in meta["sizes"].items()):
            return place, meta["about"]
    return None
