"""One run in the store: its result, and the attempts at it.

NAME/                  the result: what is not below .part is complete
.NAME.part/2/1f0c9b/   the second attempt, under way or cut off; the one with the highest number counts

To begin is to make the next number, which one process can and all others can't. Each writes into a directory
that is its own, and never anybody else's; whose number is no longer the highest finds nothing there at its
next write. To finish is to rename that directory onto the free name: who comes second drops what it made. So
a run that is made twice, as when a computer was asleep and another took its run over, costs time and changes
no byte. To read moves nothing.
"""

import contextlib
import itertools
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from ablate.files.atomic import explained, make_once, rename_onto_free, take_away
from ablate.store import claim
from ablate.store.columns import Row
from ablate.store.run_files import (
    Busy,
    Checkpoint,
    Damaged,
    RunWriter,
    Stamp,
    as_json,
    checkpoint_file,
    is_sealed,
    metrics_text,
    read_checkpoint,
    read_finished,
    read_started,
    stamp,
)

# Bytes are equal only between runs that agree in these, so only then does one go on where another was.
RESUMABLE = ("run_id", "device", "engine", "linear", "threads", "torch", "code", "parts")
PART = ".part"
OVER = ".over"  # marks a number whose attempt was discarded


class StoredRun:
    """The run of this name below `root`."""

    def __init__(self, root: Path, name: str) -> None:
        self.directory = root / "store" / name
        self.attempts = root / "store" / f".{name}{PART}"
        self.damaged = root / "damaged"

    def stamp(self) -> Stamp:
        """What tells this result from any other; empty while there is none."""
        return stamp(self.directory)

    def read(self) -> Row | None:
        """The row of a finished run (done, failed or diverged), or None. Raises Damaged."""
        try:
            return read_finished(self.directory, thorough=True) if self.directory.exists() else None
        except Damaged:
            if self.directory.exists():
                raise
            return None  # it is being replaced at this moment

    def latest(self) -> Path | None:
        """The attempt that counts."""
        return self._attempt_of(self._numbers())

    def _numbers(self) -> list[int]:
        """Those that were given, the highest first."""
        return sorted(
            (int(path.name) for path in _listdir(self.attempts) if path.name.isdecimal()), reverse=True
        )

    def _attempt_of(self, numbers: list[int]) -> Path | None:
        for number in numbers:
            for path in _listdir(self.attempts / str(number)):
                if path.name != OVER:
                    return path
        return None

    @contextlib.contextmanager
    def attempt(self, config: Mapping[str, Any], row: Row, *, known: Stamp) -> Iterator[RunWriter]:
        """A new attempt, which goes on where one of the same bytes was cut off (RunWriter.start). Left before
        it is finished, it stays as an interrupted one.

        known: of the result that it is to replace, empty where there is none. Raises Busy if another process
        is at the run or has made another result, Damaged if what was cut off can't be trusted.
        """
        with explained(self.attempts):
            numbers = self._numbers()
            before = self._attempt_of(numbers)
            start = self._cut_off(before, row, known) if before else None
            if self.stamp() != known:
                raise self._is_finished()
            asked_for = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
            files = {
                "config.yaml": asked_for.encode(),
                "result.json": as_json(row),
                "claim.json": claim.claim(),
            }
            files["metrics.csv"] = metrics_text(start.metrics if start else []).encode()
            files |= dict([checkpoint_file(start)]) if start else {}
            files |= _logged(before) if before else {}
            number = self.attempts / str(max(numbers, default=0) + 1)
            path = number / secrets.token_hex(4)
            if not make_once(number, {f"{path.name}/{name}": data for name, data in files.items()}):
                raise Busy(f"{number}: another process has just begun this run")
            if self.stamp() != known:  # it was finished meanwhile, and its attempts with it
                self._discard(path)
                self._clear(number)
                raise self._is_finished()
            if before:
                self._discard(before)
        writer = RunWriter(path, start)
        try:
            yield writer
        finally:
            writer.end()

    def finish(self, writer: RunWriter, row: Row, *, known: Stamp) -> None:
        """The run is over, with this row. known: as for `attempt`. Raises Busy if another process was
        faster."""
        writer.seal(row)
        with explained(self.directory):
            self._publish(writer.path, known)
        writer.path = self.directory  # with the claim in it, so that nobody publishes it before

    def put_aside(self, path: Path) -> Path:
        """Move the result, or an attempt, to damaged/, where nothing reads it again; returns where it lies.
        Raises FileNotFoundError if it is gone."""
        self.damaged.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            target = self.damaged / f"{self.directory.name}-{number}"
            if not target.exists() and rename_onto_free(path, target):
                return target
        raise AssertionError

    def put_aside_if_damaged(self, path: Path) -> Path | None:
        """None if it is whole, gone, or being written: another process was faster."""
        damaged = _result_is_damaged if path == self.directory else _attempt_is_damaged
        with explained(path), contextlib.suppress(FileNotFoundError):
            if not damaged(path):
                return None
            aside = self.put_aside(path)
            if damaged(aside) or not rename_onto_free(aside, path):
                return aside  # else it was replaced at this moment, and stands again
        return None

    def release(self, pid: int) -> None:
        """Give back what a process of this machine was at, which has ended."""
        if latest := self.latest():
            claim.release_ended(latest, pid)

    def _cut_off(self, before: Path, row: Row, known: Stamp) -> Checkpoint | None:
        """Of an attempt that was cut off, the checkpoint that leads to the bytes of `row`."""
        if claim.is_live(before):
            raise Busy(f"{before}: another process is training this run; wait for it, or stop it")
        if is_sealed(before):  # cut off after its last word
            self._publish(before, known)
            raise self._is_finished()
        try:
            began = read_started(before)
            agrees = all(began.get(column) == row.get(column) for column in RESUMABLE)
            return read_checkpoint(before) if agrees else None
        except FileNotFoundError:  # its process lives after all, and has just dropped one for the next
            return None

    def _publish(self, attempt: Path, known: Stamp) -> None:
        """An attempt with its last word becomes the result."""
        try:
            while not rename_onto_free(attempt, self.directory):
                if self.stamp() != known:
                    self._discard(attempt)
                    self._clear(attempt.parent)
                    raise self._is_finished()
                take_away(self.directory, self.attempts)
        except FileNotFoundError:
            raise self._is_finished() from None
        self._clear(attempt.parent)

    def _discard(self, attempt: Path) -> None:
        """Its process finds nothing there from now on, and nobody gets its number."""
        with contextlib.suppress(OSError):
            (attempt.parent / OVER).touch()
            shutil.rmtree(take_away(attempt, self.attempts), ignore_errors=True)

    def _clear(self, number: Path) -> None:
        """The run is finished: there is nothing more to attempt."""
        try:
            os.rmdir(number)
            os.rmdir(self.attempts)
        except OSError:  # what it replaced lies there, or an attempt that came too late
            shutil.rmtree(self.attempts, ignore_errors=True)

    def _is_finished(self) -> Busy:
        return Busy(f"{self.directory}: another process has just finished this run")


def _logged(attempt: Path) -> dict[str, bytes]:
    """What was logged goes on, also where a run begins anew."""
    with contextlib.suppress(OSError):
        return {"log.txt": (attempt / "log.txt").read_bytes()}
    return {}


def _attempt_is_damaged(path: Path) -> bool:
    if claim.is_live(path):
        return False
    try:
        read_started(path)
        read_checkpoint(path)
    except Damaged:
        return True
    return False


def _result_is_damaged(path: Path) -> bool:
    """Looked at twice: it may be replaced between two of its files."""
    return all(path.exists() and not is_sealed(path) for _ in range(2))


def _listdir(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
