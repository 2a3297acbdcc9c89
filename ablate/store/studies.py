"""Read study.json, and change it so that two commands never undo each other's changes.

A change turns one version into the next, such as .versions/8/study.json, whose directory only one process can
create: one that comes second applies its change to the result of the first. study.json itself is a copy of
the last version, for people and for copying a store; if a user edits or restores it, that counts. Loads no
torch.
"""

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ablate.config.rules import ConfigError
from ablate.files.atomic import explained, make_once, names, write_atomically
from ablate.store.record import StudyRecord, as_plain, read_record
from ablate.store.run_files import garbled, read_json

COPIED_S = 60  # a version is copied within this time; if study.json is newer than that, a user changed it
CHANGES_S = 10  # how long to wait for other processes that are changing it
VERSION = "version"  # a key of study.json, missing in old ones


def read_study(directory: Path) -> StudyRecord | None:
    """The record of the study in this directory; None if there is none. Raises StoreError if it can't be
    read."""
    return _current(directory)[1]


def change_study(directory: Path, change: Callable[[StudyRecord | None], StudyRecord]) -> StudyRecord:
    """Replace the record by change(record); `change` is called again if another command was faster. Raises
    StoreError, and whatever `change` raises to refuse."""
    while True:
        version, before = _current(directory)
        after = change(before)
        if after == before:
            return after
        plain = {**as_plain(after), VERSION: version + 1}
        with explained(directory):
            text = json.dumps(plain, indent=2, sort_keys=True) + "\n"
            made = make_once(_version(directory, version + 1), {"study.json": text.encode()})
            # A number below the newest does not count: it was free again, and the change would be lost.
            if _publish(directory) == version + 1 and made:
                return after


def _current(directory: Path) -> tuple[int, StudyRecord | None]:
    """The number of the last version, and its record."""
    path, plain, newest = directory / "study.json", None, 0
    for newest in _while_it_changes(directory):
        with contextlib.suppress(FileNotFoundError):  # by now there is a newer one
            plain = _read_copy(path, _version(directory, newest), newest)
            break
    if plain is None:
        return newest, None
    version = plain.pop(VERSION, 0)
    try:
        return max(newest, version), read_record(plain)
    except ConfigError as error:
        raise garbled(path, str(error)) from error


def _read_copy(path: Path, version: Path, newest: int) -> dict[str, Any] | None:
    """The content of study.json, or of the newest version if it is not copied yet; None if there is neither.
    Raises FileNotFoundError if there is a newer version by now."""
    try:
        plain = read_json(path, set())
        if plain.get(VERSION, 0) >= newest or path.stat().st_ctime > version.stat().st_ctime + COPIED_S:
            return plain
    except FileNotFoundError:
        if not newest:
            return None
    return read_json(version / "study.json", set())


def _publish(directory: Path) -> int:
    """Copy the newest version to study.json and delete older ones; returns its number."""
    for newest in _while_it_changes(directory):
        with contextlib.suppress(FileNotFoundError):  # by now there is a newer one
            write_atomically(
                directory / "study.json", (_version(directory, newest) / "study.json").read_bytes()
            )
            if newest == _newest(directory):
                for number in _numbers(directory):
                    if number < newest:
                        shutil.rmtree(_version(directory, number), ignore_errors=True)
                return newest
    raise AssertionError


def _while_it_changes(directory: Path) -> Iterator[int]:
    """Yield the newest version again and again, for retries. Raises StoreError when CHANGES_S have passed, so
    that no concurrent change can be the reason."""
    until = time.monotonic() + CHANGES_S
    while time.monotonic() < until:
        yield _newest(directory)
        time.sleep(0.01)
    versions = directory / ".versions"
    raise garbled(versions, f"its newest, {_newest(directory)}, holds no study.json")


def _version(directory: Path, number: int) -> Path:
    return directory / ".versions" / str(number)


def _newest(directory: Path) -> int:
    return max(_numbers(directory), default=0)


def _numbers(directory: Path) -> list[int]:
    return [int(name) for name in names(directory / ".versions") if name.isdecimal()]
