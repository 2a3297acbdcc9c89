"""What study.json holds: read, and changed so that two commands never undo each other's changes.

A change is made to one version and becomes the next, .versions/8/study.json, whose directory one process can
make and all others can't: who comes second changes what the first has made. study.json itself is a copy of
the last version, for people and for whoever copies a store; what somebody edits there holds. Loads no torch.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from ablate.config.rules import ConfigError
from ablate.files.atomic import explained, make_once, write_atomically
from ablate.store.record import StudyRecord, as_plain, read_record
from ablate.store.run_files import read_json, unreadable

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
    path = directory / "study.json"
    while True:
        newest = _newest(directory)
        try:
            plain = read_json(path, set())
        except FileNotFoundError:
            plain = None
        try:
            if plain is None or plain.get(VERSION, 0) < newest:  # its copy is not there yet
                plain = read_json(_version(directory, newest) / "study.json", set()) if newest else None
            break
        except FileNotFoundError:  # there is a newer one by now
            continue
    if plain is None:
        return newest, None
    version = plain.pop(VERSION, 0)
    try:
        return max(newest, version), read_record(plain)
    except ConfigError as error:
        raise unreadable(path, str(error)) from error


def _publish(directory: Path) -> int:
    """Copy the newest version, drop those before it; returns its number."""
    while True:
        newest = _newest(directory)
        try:
            content = (_version(directory, newest) / "study.json").read_bytes()
        except FileNotFoundError:
            continue
        write_atomically(directory / "study.json", content)
        if newest == _newest(directory):
            for number in _numbers(directory):
                if number < newest:
                    shutil.rmtree(_version(directory, number), ignore_errors=True)
            return newest


def _version(directory: Path, number: int) -> Path:
    return directory / ".versions" / str(number)


def _newest(directory: Path) -> int:
    return max(_numbers(directory), default=0)


def _numbers(directory: Path) -> list[int]:
    try:
        return [int(path.name) for path in (directory / ".versions").iterdir() if path.name.isdecimal()]
    except (FileNotFoundError, NotADirectoryError):
        return []
