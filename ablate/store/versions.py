"""A JSON file that several processes change, so that none of them ever undoes another's change.

A change turns one version into the next, such as .versions/8/study.json, whose directory only one process can
create: one that comes second applies its change to the result of the first. The file itself is a copy of the
last version, for people and for copying a store; if a user edits or restores it, that counts. Loads no torch.
"""

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

from ablate.files.atomic import explained, make_once, names, write_atomically
from ablate.store.run_files import garbled, read_json

COPIED_S = 60  # a version is copied within this time; if the file is newer than that, a user changed it
CHANGES_S = 10  # how long to wait for other processes that are changing it
VERSION = "version"  # a key of the file, missing in old ones

Content = dict[str, Any]
T = TypeVar("T")


class Versions(Generic[T]):
    """The versions of one file. parse: its value, from its content or, if there is no such file, None; plain:
    the content of a value. within: the directory that keeps them, by default beside the file."""

    def __init__(
        self,
        path: Path,
        parse: Callable[[Content | None], T],
        plain: Callable[[T], Content],
        within: Path | None = None,
    ) -> None:
        self.path = path
        self.parse = parse
        self.plain = plain
        self.within = within or path.parent / ".versions"

    def read(self) -> T:
        """The value of the last version. Raises StoreError if it can't be read."""
        return self._current()[1]

    def change(self, change: Callable[[T], T]) -> T:
        """Replace the value by change(value), which is called again if another process was faster. Raises
        StoreError, and whatever `change` raises to refuse."""
        while True:
            version, before = self._current()
            after = change(before)
            if after == before:
                return after
            with explained(self.path.parent):
                content = {**self.plain(after), VERSION: version + 1}
                text = json.dumps(content, indent=2, sort_keys=True) + "\n"
                made = make_once(self.within / str(version + 1), {self.path.name: text.encode()})
                # A number below the newest does not count: it was free again, and the change would be lost.
                if self._publish() == version + 1 and made:
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
            return version, self.parse(content)
        except (KeyError, TypeError, ValueError) as error:
            raise garbled(self.path, str(error)) from error

    def _read_copy(self, newest: int) -> Content | None:
        """The content of the file, or of the newest version if it is not copied yet; None if there is
        neither. Raises FileNotFoundError if there is a newer version by now."""
        version = self.within / str(newest)
        try:
            plain = read_json(self.path, set())
            if plain.get(VERSION, 0) >= newest:
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
                    for number in self._numbers():
                        if number < newest:
                            shutil.rmtree(self.within / str(number), ignore_errors=True)
                    return newest
        raise AssertionError

    def _while_it_changes(self) -> Iterator[int]:
        """Yield the newest version again and again, for retries. Raises StoreError when CHANGES_S have
        passed, so that no concurrent change can be the reason."""
        until = time.monotonic() + CHANGES_S
        while time.monotonic() < until:
            yield self._newest()
            time.sleep(0.01)
        raise garbled(self.within, f"its newest, {self._newest()}, holds no {self.path.name}")

    def _newest(self) -> int:
        return max(self._numbers(), default=0)

    def _numbers(self) -> list[int]:
        return [int(name) for name in names(self.within) if name.isdecimal()]
