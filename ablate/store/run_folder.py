"""The folder of one run: its result, and the attempts to make it.

NAME/                  the result, which is always complete
.NAME.part/2/1f0c9b/   the second attempt, under way or interrupted; the highest number counts

A process begins an attempt by creating the directory of the next number, in which only one process can
succeed. It writes only into a directory of its own; if it has been superseded by a higher number, it no
longer finds that directory at its next write. It finishes by renaming the directory onto the free name. So if
a run is trained twice, as when a computer slept and another took its run over, that costs time but changes no
byte. Reading moves nothing, and no process removes a directory that another may still work in.
"""

import contextlib
import functools
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import yaml

from ablate.files import owned
from ablate.files.atomic import (
    StoreError,
    digest,
    explained,
    file_digest,
    is_gone,
    make_once,
    names,
)
from ablate.store import lease
from ablate.store.columns import METRICS_COLUMNS, Row, csv_text
from ablate.store.run_files import (
    SEALED,
    Checkpoint,
    Damaged,
    Stamp,
    as_json,
    checkpoint_file,
    checkpoints,
    is_sealed,
    read_checkpoint,
    read_finished,
    read_started,
    stamp,
)

# Only attempts that agree in these columns have the same bytes, so only then does one resume another.
OF_A_MACHINE = ("device", "processor", "threads")
RESUMABLE = ("run_id", *OF_A_MACHINE, "torch", "code", "parts", "tokenizer_sha256")
PART = ".part"
OVER = ".over"  # marks a number whose attempt was discarded, so that it stays taken
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # the one takes a tenth of the other's time


class Busy(StoreError):
    """Another process is working on this run, or has taken it over."""


class OfAnotherKind(StoreError):
    """An interrupted attempt at this run has a checkpoint that can't be resumed here to the same bytes."""


class RunFolder:
    """The run of this name below `root`. What writes works within `attempt`: it raises StoreError if the disk
    refuses, and Busy once another process has taken the run over, after which nothing can be written here.

    path: of the attempt. start: the checkpoint from which it goes on. finished, seen: the result that was
    there when the attempt began, and its stamp.
    """

    def __init__(self, root: Path, name: str) -> None:
        self.directory = self.path = root / "store" / name
        self.attempts = root / "store" / f".{name}{PART}"
        self.damaged = root / owned.DAMAGED
        self.start: Checkpoint | None = None
        self.finished: Row | None = None
        self.seen: Stamp = []

    # --- read ---------------------------------------------------------------------------------------

    def stamp(self) -> Stamp:
        """Identifies the current result; empty if there is none."""
        return stamp(self.directory)

    def read(self, *, thorough: bool = True) -> Row | None:
        """The row of a finished run (done, failed or diverged), or None. thorough: as for read_finished.
        Raises Damaged."""
        try:
            return read_finished(self.directory, thorough=thorough) if self.directory.exists() else None
        except Damaged:
            if self.directory.exists():
                raise
            return None  # it is just being replaced

    def latest(self) -> Path | None:
        """The attempt with the highest number, which is the one that counts; None without any."""
        return next((path for number in self._numbers() for path in self._attempts_of(number)), None)

    def _numbers(self) -> list[int]:
        """The numbers of attempts, highest first."""
        return sorted((int(name) for name in names(self.attempts) if name.isdecimal()), reverse=True)

    def _attempts_of(self, number: int) -> list[Path]:
        """The attempt with this number, if it still exists: at most one."""
        directory = self.attempts / str(number)
        return [directory / name for name in names(directory) if not name.startswith(".")]

    # --- begin --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def attempt(
        self,
        config: Mapping[str, Any],
        row: Row,
        files: Mapping[str, bytes] = MappingProxyType({}),
        *,
        anew: bool = False,
        resumes: bool = True,
    ) -> Iterator[Self]:
        """Begin an attempt, which goes on from an interrupted one that would give the same bytes. If the
        block ends before `finish`, the attempt stays as an interrupted one.

        files: what it has besides config and row, by name. anew: whether a checkpoint that can't be resumed
        here is dropped. resumes: if not, it begins at the start, and an interrupted attempt stays beside it.
        Raises Busy if another process is working on the run, OfAnotherKind if an interrupted attempt has a
        checkpoint that can't be resumed here, Damaged if that or the result can't be trusted.
        """
        asked_for = "".join(_as_yaml(key, json.dumps(value)) for key, value in config.items())
        files = {**files, "config.yaml": asked_for.encode(), "result.json": as_json(row)}
        with explained(self.attempts):
            self._begin(files, row, anew, resumes)
        try:
            yield self
        finally:
            lease.release(self.path)

    def _begin(self, files: dict[str, bytes], row: Row, anew: bool, resumes: bool) -> None:
        numbers, before = self._numbers(), self.latest()
        start = self._cut_off(before, row, anew) if before else None
        self.start = start if resumes else None
        files["metrics.csv"] = csv_text(self.start.metrics if self.start else [], METRICS_COLUMNS).encode()
        files |= dict([checkpoint_file(self.start)]) if self.start else {}
        with contextlib.suppress(OSError):  # the log goes on, even if the run begins anew
            files |= {"log.txt": (before / "log.txt").read_bytes()} if before else {}
        files["lease.json"] = lease.content(self.attempts.parent)
        number = self.attempts / str(max(numbers, default=0) + 1)
        path = self.path = number / secrets.token_hex(4)
        try:
            made = make_once(number, {f"{path.name}/{name}": data for name, data in files.items()})
            if not made and not path.exists():  # a network may report failure after success
                raise Busy(f"{number}: another process has just begun this run")
            for earlier in (path for n in numbers for path in self._attempts_of(n) if resumes):
                self._discard(earlier)
            # From here on no other process publishes a result, unless it takes this attempt away first.
            self.finished, self.seen = self.read(), self.stamp()
        except BaseException:  # also Ctrl-C
            lease.release(path)
            with contextlib.suppress(OSError):
                owned.delete(self.attempts)  # if it is empty
            raise

    def _cut_off(self, before: Path, row: Row, anew: bool) -> Checkpoint | None:
        """The checkpoint of an interrupted attempt, if resuming it gives the bytes of `row`; None if not."""
        if lease.is_live(before):
            line = f"{self.directory.name}: {lease.holder(before)}"
            lease.count_from_now(before)
            raise Busy(line)
        try:
            began = read_started(before)
            changed = [column for column in RESUMABLE if began.get(column) != row.get(column)]
            # Interrupted after it was complete, before it was published?
            if {*changed} <= {*OF_A_MACHINE} and is_sealed(before):
                for path in checkpoints(before):
                    owned.delete(path)
                self._publish(before)
                return None
            checkpoint = read_checkpoint(before)
            if changed and checkpoint and not anew:
                differs = "; ".join(f"{key} was {began.get(key)}, is {row.get(key)}" for key in changed)
                way_out = "the command that made it goes on from it where it was made"
                if changed == ["threads"] and (count := began.get("threads")):
                    way_out = f"hydra.launcher.threads={count} goes on from it"
                raise OfAnotherKind(
                    f"{self.directory.name}: its checkpoint after step {checkpoint.step} was made otherwise"
                    f" ({differs}) and is kept: {way_out}, force=stale begins anew"
                )
            return None if changed else checkpoint
        except FileNotFoundError:  # its process lives after all, or another one was faster
            return None

    # --- write --------------------------------------------------------------------------------------

    def metrics(self, row: Row) -> None:
        """Add a row to metrics.csv."""
        self._append("metrics.csv", csv_text([row], METRICS_COLUMNS, header=False))

    def log(self, text: str) -> None:
        self._append("log.txt", text.rstrip("\n") + "\n")

    def write(self, name: str, content: str | bytes) -> None:
        with self._here():
            owned.replace_file(self.path / name, content)

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write this checkpoint, then delete the one before."""
        name, data = checkpoint_file(checkpoint)
        with self._here():
            before = [other for other in checkpoints(self.path) if other.name != name]
            owned.replace_file(self.path / name, data)
            for other in before:
                owned.delete(other)

    # --- end ----------------------------------------------------------------------------------------

    def seal(self, row: Row) -> None:
        """Write the final row with its seal; the run is over."""
        with self._here():
            written = os.listdir(self.path)
            files = {name: file_digest(self.path / name) for name in SEALED if name in written}
            self.write("result.json", as_json({**row, "files": files, "seal": digest([row, files])}))
            for path in checkpoints(self.path):  # only now, as the disk could have been full
                owned.delete(path)

    def finish(self, row: Row) -> None:
        """Make the attempt, with this row, the result of the run."""
        self.seal(row)
        with explained(self.directory):
            try:
                self._publish(self.path)
            except FileNotFoundError:
                raise self._taken_over() from None
        self.path = self.directory  # the lease is still in it, so that no other process publishes it

    def _publish(self, attempt: Path) -> None:
        """Make a sealed attempt the result, in place of the one before: as long as the attempt is there, no
        other can have been published since it began. Raises FileNotFoundError if it is gone."""
        number = attempt.parent
        while not owned.rename_onto_free(attempt, self.directory):
            if not self.stamp():  # there is no result in it
                owned.put_aside(self.directory, self.damaged)
                continue
            before = owned.take_away(self.directory, number)
            if not attempt.exists():  # taken away just now, by the process that made this result
                owned.rename_onto_free(before, self.directory)
        self._clear(number)

    def drop(self) -> None:
        """Give the attempt up, as there is a result to keep."""
        self._discard(self.path)
        self._clear(self.path.parent)

    def give_up(self) -> Path:
        """Keep the earlier result and move this attempt to damaged/; returns its new path."""
        number = self.path.parent
        with self._here():
            self.path = owned.put_aside(self.path, self.damaged)
        self._clear(number)
        return self.path

    def put_aside_if_damaged(self, path: Path) -> Path | None:
        """Move the result or an attempt to damaged/, where it is never read again, if it is damaged, which is
        looked at anew, as it may just have been replaced; returns its new path."""
        with explained(path), contextlib.suppress(FileNotFoundError):
            try:
                if path == self.directory:
                    self.read()
                elif not lease.is_live(path):
                    read_started(path)
                    read_checkpoint(path)
            except Damaged:
                return owned.put_aside(path, self.damaged)
        return None

    def remove(self) -> None:
        """Remove the result and every attempt; a process that works on one notices at its next write. Raises
        StoreError."""
        with explained(self.directory):
            for directory in (self.directory, self.attempts):
                with contextlib.suppress(FileNotFoundError):
                    owned.remove_tree(directory)

    def _append(self, name: str, text: str) -> None:
        with self._here(), (self.path / name).open("ab") as file:
            file.write(text.encode(errors="backslashreplace"))

    @contextlib.contextmanager
    def _here(self) -> Iterator[None]:
        """Turn OSErrors inside the block into StoreErrors, or into Busy if the attempt is gone."""
        try:
            with explained(self.path):
                yield
        except StoreError as error:
            if isinstance(error.__cause__, OSError) and is_gone(error.__cause__):
                raise self._taken_over() from error
            raise

    def _taken_over(self) -> Busy:
        return Busy(f"{self.path}: another process has taken this run over")

    def _discard(self, attempt: Path) -> None:
        """Remove an attempt, so that its process no longer finds it; its number stays taken."""
        with contextlib.suppress(OSError, StoreError):
            (attempt.parent / OVER).touch()
            owned.drop(owned.take_away(attempt, attempt.parent))

    def _clear(self, last: Path) -> None:
        """Remove the numbers up to `last`, as the run is finished. Numbers that hold an attempt stay, since
        its process may be alive; a process that is just beginning an attempt has to try again."""
        with contextlib.suppress(OSError, StoreError):
            numbers = [self.attempts / str(n) for n in self._numbers() if n <= int(last.name)]
            gone = (path for number in numbers for path in number.glob(f"{owned.GONE}*"))
            for left in (*self.attempts.glob(owned.LEFT), *gone):
                owned.drop(left)
            for path in (at for number in numbers for at in (number / OVER, number)):
                with contextlib.suppress(OSError):
                    owned.delete(path)
            owned.delete(self.attempts)


@functools.lru_cache(256)
def _as_yaml(key: str, value: str) -> str:
    """An entry of config.yaml, from JSON: most are the same in all runs of a process."""
    return yaml.dump({key: json.loads(value)}, Dumper=DUMPER, sort_keys=False, allow_unicode=True)
