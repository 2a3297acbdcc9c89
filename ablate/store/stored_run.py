"""One run in the store: its result, and the attempts at it.

NAME/                  the result: what is not below .part is complete
.NAME.part/2/1f0c9b/   the second attempt, under way or cut off; the one with the highest number counts

To begin is to make the next number, which one process can and all others can't. Each writes into a directory
that is its own, and never anybody else's; whose number is no longer the highest finds nothing there at its
next write. To finish is to rename that directory onto the free name: who comes second drops what it made. So
a run that is made twice, as when a computer was asleep and another took its run over, costs time and changes
no byte. To read moves nothing, and nobody removes what another may still be at.
"""

import contextlib
import itertools
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from ablate.files.atomic import (
    GONE,
    NEW,
    explained,
    is_gone,
    make_once,
    names,
    rename_onto_free,
    take_away,
)
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
    checkpoints,
    is_sealed,
    metrics_text,
    read_checkpoint,
    read_finished,
    read_started,
    stamp,
    taken_over,
    weights_on_the_way,
)

# Bytes are equal only between runs that agree in these, so only then does one go on where another was.
RESUMABLE = (
    *("run_id", "device", "engine", "linear", "attention", "compile", "threads"),
    *("torch", "code", "parts"),
)
PART = ".part"
OVER = ".over"  # marks a number whose attempt was discarded: it is not free
ATTEMPT = re.compile("[0-9a-f]{8}")  # what else lies there is the file system's, or somebody's


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
        return self._latest_of(self._numbers())

    def _numbers(self) -> list[int]:
        """Those that were given, the highest first."""
        return sorted((int(name) for name in names(self.attempts) if name.isdecimal()), reverse=True)

    def _attempts_of(self, number: int) -> list[Path]:
        """One, or none any more."""
        directory = self.attempts / str(number)
        return [directory / name for name in names(directory) if ATTEMPT.fullmatch(name)]

    def _latest_of(self, numbers: list[int]) -> Path | None:
        return next((path for number in numbers for path in self._attempts_of(number)), None)

    @contextlib.contextmanager
    def attempt(self, config: Mapping[str, Any], row: Row, *, known: Stamp) -> Iterator[RunWriter]:
        """A new attempt, which goes on where one of the same bytes was cut off (RunWriter.start). Left before
        it is finished, it stays as an interrupted one.

        known: of the result that it is to replace, empty where there is none. Raises Busy if another process
        is at the run or has made another result, Damaged if what was cut off can't be trusted.
        """
        with explained(self.attempts):
            numbers = self._numbers()
            before = self._latest_of(numbers)
            start = self._cut_off(before, row, known) if before else None
            if self.stamp() != known:
                raise self._is_finished()
            asked_for = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
            files = {"config.yaml": asked_for.encode(), "result.json": as_json(row)}
            files["metrics.csv"] = metrics_text(start.metrics if start else []).encode()
            files |= dict([checkpoint_file(start)]) if start else {}
            files |= _on_the_way(before, start.step) if before and start else {}
            files |= _logged(before) if before else {}
            number = self.attempts / str(max(numbers, default=0) + 1)
            path = number / secrets.token_hex(4)
            files["claim.json"] = claim.claim(path)  # the last to be written: its age counts
            try:
                made = make_once(number, {f"{path.name}/{name}": data for name, data in files.items()})
                if not made and not path.exists():  # a network may say no to what it has done
                    raise Busy(f"{number}: another process has just begun this run")
                if self.stamp() != known:  # it was finished meanwhile, and its attempts with it
                    self._discard(path)
                    self._clear(number)
                    raise self._is_finished()
                for earlier in (path for n in numbers for path in self._attempts_of(n)):
                    self._discard(earlier)
                writer = RunWriter(path, start)
            except BaseException:  # Ctrl-C too
                claim.release(path)
                with contextlib.suppress(OSError):
                    os.rmdir(self.attempts)  # if there is nothing else
                raise
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

    def give_up(self, writer: RunWriter) -> Path:
        """Leave the result of before, and put this attempt aside; returns where it lies. Raises Busy, and
        StoreError."""
        number = writer.path.parent
        with writer.here():
            writer.path = self.put_aside(writer.path)
        self._clear(number)
        return writer.path

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

    def remove(self) -> None:
        """Take the result and every attempt away; a process that is at one finds nothing there at its next
        write. Raises StoreError."""
        with explained(self.directory):
            for path in (self.directory, self.attempts):
                with contextlib.suppress(FileNotFoundError):
                    shutil.rmtree(take_away(path, path.parent))

    def release(self, pid: int) -> None:
        """Give back what a process of this machine was at, which has ended."""
        with contextlib.suppress(OSError):
            if latest := self.latest():
                claim.release_ended(latest, pid)

    def _cut_off(self, before: Path, row: Row, known: Stamp) -> Checkpoint | None:
        """Of an attempt that was cut off, the checkpoint that leads to the bytes of `row`."""
        if claim.is_live(before):
            raise Busy(f"{before}: another process is training this run")
        try:
            began = read_started(before)
            if any(began.get(column) != row.get(column) for column in RESUMABLE):
                return None
            if is_sealed(before):  # cut off after its last word
                for path in checkpoints(before):
                    path.unlink()
                self._publish(before, known)
                raise self._is_finished()
            return read_checkpoint(before)
        except FileNotFoundError:  # its process lives after all, and has just dropped one for the next
            return None

    def _publish(self, attempt: Path, known: Stamp) -> None:
        """An attempt with its last word becomes the result, in the place of the one that is known."""
        number = attempt.parent
        try:
            while not rename_onto_free(attempt, self.directory):
                if self.stamp() == known:
                    old = take_away(self.directory, number)
                    if stamp(old) == known:
                        continue
                    rename_onto_free(old, self.directory)  # it was replaced at this moment
                self._discard(attempt)
                self._clear(number)
                raise self._is_finished()
        except OSError as error:
            if is_gone(error):
                raise taken_over(attempt) from None
            raise
        self._clear(number)

    def _discard(self, attempt: Path) -> None:
        """Its process finds nothing there from now on, and nobody gets its number."""
        with contextlib.suppress(OSError):
            (attempt.parent / OVER).touch()
            shutil.rmtree(take_away(attempt, attempt.parent), ignore_errors=True)

    def _clear(self, last: Path) -> None:
        """The run is finished: numbers up to `last` are of no use any more. Those that hold an attempt stay,
        since its process may be alive; one that is just about to begin has to ask again."""
        with contextlib.suppress(OSError):
            last.rmdir()  # mostly there is no more
            self.attempts.rmdir()
            return
        with contextlib.suppress(OSError):
            numbers = [self.attempts / str(n) for n in self._numbers() if n <= int(last.name)]
            for old in (
                *self.attempts.glob(f"{NEW}*"),
                *(old for n in numbers for old in n.glob(f"{GONE}*")),
            ):
                shutil.rmtree(old, ignore_errors=True)
            for number in numbers:
                with contextlib.suppress(OSError):
                    (number / OVER).unlink(missing_ok=True)
                    number.rmdir()
            self.attempts.rmdir()

    def _is_finished(self) -> Busy:
        return Busy(f"{self.directory}: another process has just finished this run")


def _logged(attempt: Path) -> dict[str, bytes]:
    """What was logged goes on, also where a run begins anew."""
    with contextlib.suppress(OSError):
        return {"log.txt": (attempt / "log.txt").read_bytes()}
    return {}


def _on_the_way(attempt: Path, step: int) -> dict[str, bytes]:
    """The weights that were kept up to this step."""
    kept = weights_on_the_way(attempt)
    return {path.name: path.read_bytes() for at, path in kept.items() if at <= step}


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
