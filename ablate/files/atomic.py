"""Files and directories that are complete or absent, with any number of writers; errors of the system as one
line.

It relies on two operations that are atomic on every file system, also over a network: renaming a file over
another, and renaming a directory onto a free name, in which only one of several processes succeeds (owned).
Loads no torch.
"""

import contextlib
import errno
import functools
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from ablate.config.rules import ConfigError, UnknownKey
from ablate.files import owned
from ablate.version import __version__

COPIED_S = 60  # a version is copied within this time; if the file is newer than that, a user changed it
CHANGES_S = 10  # how long to wait for other processes that are changing it
SETTLED_NS = 2_000_000_000  # how old a file is whose stamp tells any later change of it
VERSION = "version"  # a key of the file, missing in one that was written by hand

Content = dict[str, Any]
T = TypeVar("T")


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


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that at any time either the old or the whole new content is there. Creates its
    directory if needed. Raises StoreError."""
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        owned.replace_file(path, content)


def make_once(directory: Path, files: Mapping[str, bytes]) -> bool:
    """Create a directory with these files, at least one; False if it exists already. files: content by name,
    or by NAME/NAME, written in this order. Raises OSError."""
    try:
        with owned.scratch(directory.parent) as part:
            for directory_in in {(part / name).parent for name in files} - {part}:
                directory_in.mkdir()
            for name, data in files.items():
                owned.create(part / name, data)
            return owned.rename_onto_free(part, directory)
    except OSError as error:
        # pathlib's mkdir says that a directory exists if it goes between its two looks.
        vanished = isinstance(error, FileExistsError) and not os.path.lexists(error.filename)
        if not (vanished or is_gone(error)) or error.errno == errno.ENOTDIR:
            raise
        return False  # another process finished and removed the parent meanwhile


def digest(content: Any) -> str:
    """SHA-256 of plain data, whatever the order of its keys."""
    return hashlib.sha256(_canonical(content).encode()).hexdigest()


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def file_digest(path: Path) -> str:
    """16 hex digits over the bytes of a file, which this process reads once for as long as the file keeps its
    size, times and inode. Raises OSError."""
    stat = path.stat()
    stamp = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    is_settled = stat.st_mtime_ns < time.time_ns() - SETTLED_NS
    return (_digest_of if is_settled else _digest_of.__wrapped__)(path, stamp)


@functools.lru_cache(4096)
def _digest_of(path: Path, stamp: tuple[int, ...]) -> str:
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


@dataclass(frozen=True)
class Versions(Generic[T]):
    """A JSON file that several processes change, none of which ever undoes another's change.

    A change turns one version into the next, such as .versions/8/study.json, whose directory only one process
    can create: one that comes second applies its change to the result of the first. The file itself is a copy
    of the last version, for people and for copying a store; if a user edits or restores it, that counts.
    within: the directory of the versions. parse: its value, from its content; plain: the content of a value;
    empty: the value while there is no such file.
    """

    path: Path
    within: Path
    parse: Callable[[Content], T]
    plain: Callable[[Any], Content]
    empty: T

    def read(self) -> T:
        """The value of the last version. Raises StoreError if it can't be read."""
        return self._current()[1]

    def change(self, change: Callable[[T], T]) -> T:
        """Replace the value by change(value), which is called again if another process was faster, perhaps
        on a value that has the change already: so it does nothing else, and applied twice it does what it
        does once. Raises StoreError, and whatever `change` raises to refuse."""
        while True:
            taken = self._numbers()
            version, before = self._current()
            number = max([version, *taken]) + 1
            after = change(before)
            if after == before:
                return after
            with explained(self.path.parent):
                content = {**self.plain(after), VERSION: number}
                text = json.dumps(content, indent=2, sort_keys=True) + "\n"
                made = make_once(self.within / str(number), {self.path.name: text.encode()})
                # A number below the newest does not count: it was free again, and the change would be lost.
                if self._publish() == number and made:
                    return after

    def _current(self) -> tuple[int, T]:
        """The number of the last version, and its value."""
        content, newest = None, 0
        for newest in self._while_it_changes():
            with contextlib.suppress(FileNotFoundError):  # by now there is a newer one
                content = self._read_copy(newest)
                break
        version = max(newest, content.pop(VERSION, 0)) if content else newest
        try:
            return version, self.empty if content is None else self.parse(content)
        except UnknownKey as error:
            keys, _, _ = str(error).partition(":")
            raise StoreError(
                f"{self.path}: ablate {__version__} knows no key {keys}; if a newer one wrote it, install"
                " that; else correct it, or move it away"
            ) from error
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise garbled(self.path, str(error)) from error

    def _read_copy(self, newest: int) -> Content | None:
        """The content of the file, or of the newest version if it is not copied yet; None if there is
        neither. Raises FileNotFoundError if there is a newer version by now."""
        version = self.within / str(newest)
        try:
            plain = read_json(self.path, set())
            if not isinstance(at := plain.get(VERSION, 0), int):
                raise garbled(self.path, f"{VERSION} is no number")
            if at >= newest:
                return plain
            if self.path.stat().st_ctime > version.stat().st_ctime + COPIED_S:
                return plain
        except FileNotFoundError:
            if not newest:
                return None
        return read_json(version / self.path.name, set())

    def _publish(self) -> int:
        """Copy the newest version to the file and delete older ones; returns its number."""
        for newest in self._while_it_changes():
            with contextlib.suppress(FileNotFoundError):  # by now there is a newer one
                write_atomically(self.path, (self.within / str(newest) / self.path.name).read_bytes())
                if newest == self._newest():
                    self._drop_below(newest)
                    return newest
        raise AssertionError

    def _drop_below(self, newest: int) -> None:
        for version in (self.within / str(number) for number in self._numbers() if number < newest):
            on_the_way = (version, self.within, self.path.parent)
            if not any(path.is_symlink() for path in on_the_way):  # what lies beyond a link is not ours
                with contextlib.suppress(OSError):
                    owned.delete(version / self.path.name)
                    owned.delete(version)

    def _while_it_changes(self) -> Iterator[int]:
        """Yield the newest version again and again, for retries. Raises StoreError when CHANGES_S have
        passed, so that no concurrent change can be the reason."""
        until = time.monotonic() + CHANGES_S
        while time.monotonic() < until:
            yield self._newest()
            time.sleep(0.01)
        raise garbled(self.within, f"its newest, {self._newest()}, holds no {self.path.name}")

    def _newest(self) -> int:
        """The newest version, 0 without any: anything else of such a name lacks the file."""
        versions = (n for n in self._numbers() if os.path.lexists(self.within / str(n) / self.path.name))
        return max(versions, default=0)

    def _numbers(self) -> list[int]:
        """The numbers that are taken."""
        return [int(name) for name in names(self.within) if name.isdecimal()]
