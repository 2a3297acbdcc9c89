"""The folder of one run: its result, and the attempt to make it.

NAME/                    the result, which is always complete
.NAME.part/TOKEN.SIGN/   the attempt, under way or interrupted: there is at most one

A process begins an attempt by creating .NAME.part with it, in which only one process can succeed, or by
renaming the one that another has left (lease), which does not find it any more at its next write. It finishes
by renaming the attempt onto the free name of the run. So if a run is trained twice, as when a computer slept
and another took its run over, that costs time but changes no byte. Reading moves nothing.
"""

import contextlib
import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import yaml

from ablate.files import owned
from ablate.files.atomic import StoreError, digest, explained, file_digest, is_gone, make_once, names
from ablate.store import lease
from ablate.store.columns import METRICS_COLUMNS, Row, Status, csv_text
from ablate.store.run_files import (
    SEALED,
    Checkpoint,
    Damaged,
    Stamp,
    as_json,
    checkpoint_file,
    checkpoints,
    read_checkpoint,
    read_finished,
    read_started,
    sealed,
    stamp,
)

# Only attempts that agree in these columns have the same bytes, so only then does one resume another.
OF_A_MACHINE = ("device", "processor", "threads")
RESUMABLE = ("run_id", *OF_A_MACHINE, "torch", "code", "parts", "tokenizer_sha256")
PART = ".part"
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # the one takes a tenth of the other's time


class Busy(StoreError):
    """Another process is working on this run, or has taken it over."""


class RunFolder:
    """The run of this name below `root`. What writes works within `attempt`: it raises StoreError if the disk
    refuses, and Busy once another process has taken the run over, after which nothing can be written here.

    path: of the attempt. start: the checkpoint from which it goes on. finished, seen: the result that was
    there when the attempt began, and its stamp; is_over: whether it counts.
    """

    def __init__(self, root: Path, name: str) -> None:
        self.directory = self.path = root / "store" / name
        self.attempts = root / "store" / f".{name}{PART}"
        self.damaged = root / owned.DAMAGED
        self.start: Checkpoint | None = None
        self.finished: Row | None = None
        self.seen: Stamp = []
        self.is_over = False

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
        """The attempt that is under way or was interrupted; None without one."""
        return next((self.attempts / name for name in names(self.attempts)), None)

    def last_step(self) -> int:
        """The step of the checkpoint of an interrupted attempt, or of a failed run; 0 without one."""
        latest = self.latest()
        with contextlib.suppress(StoreError, OSError):  # another command may just go on with it
            if kept := read_checkpoint(latest if latest and checkpoints(latest) else self.directory):
                return kept.step
        return 0

    # --- begin --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def attempt(
        self,
        config: Mapping[str, Any],
        row: Row,
        files: Mapping[str, bytes],
        tell: Callable[[str], object],
        *,
        is_over: Callable[[Row, Stamp], bool] = lambda row, stamp: False,
        anew: bool = False,
        ended: bool = False,
    ) -> Iterator[Self]:
        """Begin an attempt, which goes on from an interrupted or failed one that would give the same bytes.
        If the block ends before `finish`, the attempt stays as an interrupted one.

        files: what it has besides config and row, by name. tell: is told of what is damaged, a result or an
        earlier attempt, which is put aside. is_over: whether a result counts, by its stamp: then nothing is
        begun, and all of that result stays. anew: whether a checkpoint that can't be resumed here is dropped.
        ended: whether it is taken from a process that has ended, on whose machine it was made: `row` says so
        then. Raises Busy if another process is working on the run, StoreError if there is a checkpoint that
        can't be resumed here.
        """
        with explained(self.attempts):
            self._take(row)
        try:
            with self._here():
                self._look(row, is_over, anew, ended, tell)
                if self.is_over:
                    self.drop()
                else:
                    asked_for = "".join(_as_yaml(key, json.dumps(value)) for key, value in config.items())
                    metrics = csv_text(self.start.metrics if self.start else [], METRICS_COLUMNS)
                    texts = {"config.yaml": asked_for, "metrics.csv": metrics}
                    self._fill({**files, **texts, "result.json": as_json(row)})
            yield self
        finally:
            lease.release(self.path)

    def _take(self, row: Row) -> None:
        """Have the attempt: that which a process left, or a new one with nothing but its row."""
        before = self.latest()
        if before and lease.is_live(before):
            raise Busy(f"{self.directory.name}: {lease.holder(before)}")
        self.path = self.attempts / lease.name(self.attempts.parent)
        try:
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                if before:
                    owned.rename_onto_free(before, self.path)
                else:
                    make_once(self.attempts, {f"{self.path.name}/result.json": as_json(row)})
            if not self.path.exists():  # a network may report failure after success
                raise Busy(f"{self.directory.name}: another process has just begun this run")
        except BaseException:  # an interruption, too: this process may go on, and would wait for itself
            lease.release(self.path)
            raise

    def _look(
        self,
        row: Row,
        is_over: Callable[[Row, Stamp], bool],
        anew: bool,
        ended: bool,
        tell: Callable[[str], object],
    ) -> None:
        """See what is there. From here on no other process publishes a result, unless it takes this attempt
        away first."""
        try:
            if complete := sealed(self.path):  # interrupted before it was published
                self._publish(complete)
                self._take(row)
            self.finished, self.seen = self.read(), self.stamp()
            self.is_over = self.finished is not None and is_over(self.finished, self.seen)
            self.start = None if self.is_over else self._resumable(row, anew, ended)
        except Damaged as error:
            aside = owned.put_aside(error.path.parent, self.damaged)
            tell(f"{error}; it is in {aside} now")
            if not self.path.exists():  # it was the attempt
                self._take(row)
            self._look(row, is_over, anew, ended, tell)

    def _resumable(self, row: Row, anew: bool, ended: bool) -> Checkpoint | None:
        """The checkpoint of the attempt, or else of a failed run, if resuming it gives the bytes of `row`."""
        source = self.path if checkpoints(self.path) else self.directory
        if not (checkpoint := read_checkpoint(source)):
            return None
        try:
            began = read_started(source)
        except FileNotFoundError as error:
            raise Damaged(source / "result.json", "missing or damaged") from error
        row |= {column: began.get(column) for column in OF_A_MACHINE if ended}
        changed = [column for column in RESUMABLE if began.get(column) != row.get(column)]
        if changed and not anew:
            differs = "; ".join(f"{key} was {began.get(key)}, is {row.get(key)}" for key in changed)
            way_out = "the command that made it goes on from it where it was made"
            if changed == ["threads"] and (count := began.get("threads")):
                way_out = f"hydra.launcher.threads={count} goes on from it"
            raise StoreError(
                f"{self.directory.name}: its checkpoint after step {checkpoint.step} was made otherwise"
                f" ({differs}) and is kept: {way_out}, force=stale begins anew"
            )
        return None if changed else checkpoint

    def _fill(self, files: Mapping[str, str | bytes]) -> None:
        """Have these files in the attempt, with its log and the checkpoint from which it goes on, which lies
        there at no time beside a row that it was not made with."""
        own = checkpoints(self.path) if self.start else []
        for name in {*os.listdir(self.path)} - {*files, "log.txt", *(path.name for path in own)}:
            path = self.path / name
            if path.is_dir():  # a result that was taken in before this was to be published
                owned.put_aside(path, self.damaged)
            else:
                owned.delete(path)
        for name, content in files.items():
            owned.replace_file(self.path / name, content)
        for path in checkpoints(self.directory) if self.start and not own else ():
            owned.rename_onto_free(path, self.path / path.name)

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

    def finish(self, row: Row) -> None:
        """Make the attempt, with this row, the result of the run."""
        self.seal(row)
        with self._here():
            self._publish(row)

    def _publish(self, row: Row) -> None:
        """Make the sealed attempt the result, in place of the one before, which is taken into it: as long as
        the attempt is there, no other can have been published since it began. Raises FileNotFoundError if it
        is gone."""
        for path in checkpoints(self.path) if row["status"] != Status.FAILED else ():
            owned.delete(path)  # only now, as the disk could have been full
        while not owned.rename_onto_free(self.path, self.directory):
            if not self.stamp():  # there is no result in it
                owned.put_aside(self.directory, self.damaged)
                continue
            with contextlib.suppress(FileNotFoundError):  # one of the two is gone
                owned.take_away(self.directory, self.path)
        for before in self.directory.glob(".gone-*"):  # also of a process that was killed here
            owned.drop(before)
        self._clear()

    def drop(self) -> None:
        """Give the attempt up, as there is a result to keep."""
        with contextlib.suppress(OSError):
            owned.remove_tree(self.path, self.attempts.parent)
        self._clear()

    def _clear(self) -> None:
        with contextlib.suppress(OSError):  # another process may just have begun an attempt
            owned.delete(self.attempts)

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
                raise Busy(f"{self.path}: another process has taken this run over") from error
            raise


@functools.lru_cache(256)
def _as_yaml(key: str, value: str) -> str:
    """An entry of config.yaml, from JSON: most are the same in all runs of a process."""
    return yaml.dump({key: json.loads(value)}, Dumper=DUMPER, sort_keys=False, allow_unicode=True)
