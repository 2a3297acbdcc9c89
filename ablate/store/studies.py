"""What study.json holds: read, and changed so that two commands never undo each other's changes.

A change is made to one version and becomes the next, .versions/8/study.json, whose directory one process can
make and all others can't: who comes second changes what the first has made. study.json itself is a copy of
the last version, for people and for whoever copies a store; what somebody edits there, or puts back, holds.
Loads no torch.
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

COPIED_S = 60  # a version is copied within that time; an older study.json of later is somebody's
CHANGES_S = 10  # for what others change at the same time
VERSION = "version"  # a key of study.json; those of before it have none


def read_study(directory: Path) -> StudyRecord | None:
    """The record of the study in this directory; None where there is none. Raises StoreError if it can't be
    read."""
    return _current(directory)[1]


def change_study(directory: Path, change: Callable[[StudyRecord | None], StudyRecord]) -> StudyRecord:
    """Make of the record what `change` makes of it; it is asked again where another command was faster.
    Raises StoreError, and what `change` raises to refuse."""
    while True:
        version, before = _current(directory)
        after = change(before)
        if after == before:
            return after
        plain = {**as_plain(after), VERSION: version + 1}
        with explained(directory):
            text = json.dumps(plain, indent=2, sort_keys=True) + "\n"
            made = make_once(_version(directory, version + 1), {"study.json": text.encode()})
            # A number below the newest is of no use: it was free again, and this change would be lost.
            if _publish(directory) == version + 1 and made:
                return after


def _current(directory: Path) -> tuple[int, StudyRecord | None]:
    """The number of the last version, and what it holds."""
    path, plain, newest = directory / "study.json", None, 0
    for newest in _while_it_changes(directory):
        with contextlib.suppress(FileNotFoundError):  # there is a newer one by now
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
    """study.json, or the newest version where its copy is not there yet; None where there is neither. Raises
    FileNotFoundError where there is a newer version by now."""
    try:
        plain = read_json(path, set())
        if plain.get(VERSION, 0) >= newest or path.stat().st_ctime > version.stat().st_ctime + COPIED_S:
            return plain
    except FileNotFoundError:
        if not newest:
            return None
    return read_json(version / "study.json", set())


def _publish(directory: Path) -> int:
    """Copy the newest version, drop those before it; returns its number."""
    for newest in _while_it_changes(directory):
        with contextlib.suppress(FileNotFoundError):  # there is a newer one by now
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
    """The newest version, again and again. Raises StoreError if it can't be read for so long that nobody
    changes it."""
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
