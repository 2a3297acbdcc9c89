"""One run in the store: its result, and the attempts to make it.

NAME/                  the result, which is always complete
.NAME.part/2/1f0c9b/   the second attempt, under way or interrupted; the highest number counts

A process begins an attempt by creating the directory of the next number, in which only one process can
succeed. It writes only into a directory of its own; if it has been superseded by a higher number, it no
longer finds that directory at its next write. It finishes by renaming the directory onto the free name; a
process that comes second drops its attempt. So if a run is trained twice, as when a computer slept and
another took its run over, that costs time but changes no byte. Reading moves nothing, and no process removes
a directory that another may still work in.
"""

import contextlib
import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ablate.files import owned
from ablate.files.atomic import StoreError, explained, is_gone, make_once, names
from ablate.files.owned import Mark
from ablate.store import lease
from ablate.store.columns import METRICS_COLUMNS, Row, csv_text
from ablate.store.lease import Heartbeat
from ablate.store.run_files import (
    Busy,
    Checkpoint,
    Damaged,
    OfAnotherKind,
    RunWriter,
    Stamp,
    as_json,
    checkpoint_file,
    checkpoints,
    is_sealed,
    read_checkpoint,
    read_finished,
    read_started,
    stamp,
    taken_over,
)

# Only attempts that agree in these columns have the same bytes, so only then does one resume another.
OF_A_MACHINE = ("device", "processor", "threads")
RESUMABLE = ("run_id", *OF_A_MACHINE, "torch", "code", "parts", "tokenizer_sha256")
PART = ".part"
OVER = ".over"  # marks a number whose attempt was discarded, so that it stays taken
RESULT = Mark(r"[^.].*", "result.json")
ATTEMPTS = Mark(rf"\..+\{PART}")
ATTEMPT = Mark("[0-9a-f]{8}")  # anything else there is not ablate's

log = logging.getLogger(__name__)


class StoredRun:
    """The run of this name below `root`."""

    def __init__(self, root: Path, name: str) -> None:
        self.directory = root / "store" / name
        self.attempts = root / "store" / f".{name}{PART}"
        self.damaged = root / owned.DAMAGED

    def stamp(self) -> Stamp:
        """Identifies the current result; empty if there is none."""
        return stamp(self.directory)

    def read(self) -> Row | None:
        """The row of a finished run (done, failed or diverged), or None. Raises Damaged."""
        try:
            return read_finished(self.directory, thorough=True) if self.directory.exists() else None
        except Damaged:
            if self.directory.exists():
                raise
            return None  # it is just being replaced

    def latest(self) -> Path | None:
        """The attempt with the highest number, which is the one that counts; None without any."""
        return self._latest_of(self._numbers())

    def _numbers(self) -> list[int]:
        """The numbers of attempts, highest first."""
        return sorted((int(name) for name in names(self.attempts) if name.isdecimal()), reverse=True)

    def _attempts_of(self, number: int) -> list[Path]:
        """The attempt with this number, if it still exists: at most one. What lies beyond a link is none."""
        directory = self.attempts / str(number)
        found = [] if directory.is_symlink() else map(directory.joinpath, names(directory))
        return [path for path in found if ATTEMPT.is_on(path) and not path.is_symlink()]

    def _latest_of(self, numbers: list[int]) -> Path | None:
        return next((path for number in numbers for path in self._attempts_of(number)), None)

    @contextlib.contextmanager
    def attempt(
        self,
        config: Mapping[str, Any],
        row: Row,
        *,
        known: Stamp,
        heartbeat: Heartbeat | None = None,
        anew: bool = False,
    ) -> Iterator[RunWriter]:
        """Begin an attempt, which resumes an interrupted one that would give the same bytes
        (RunWriter.start). If the block ends before `finish`, the attempt stays as an interrupted one.

        known: the stamp of the result to replace, empty if there is none. heartbeat: of the group that it is
        part of; its own by default. anew: whether a checkpoint that can't be resumed here is dropped. Raises
        Busy if another process is working on the run or has made another result, OfAnotherKind if an
        interrupted attempt has a checkpoint that can't be resumed here, Damaged if one can't be trusted.
        """
        with contextlib.nullcontext(heartbeat) if heartbeat else Heartbeat() as beating:
            writer = self._begun(config, row, known, beating, anew)
            try:
                yield writer
            finally:
                writer.end()

    def _begun(
        self, config: Mapping[str, Any], row: Row, known: Stamp, heartbeat: Heartbeat, anew: bool
    ) -> RunWriter:
        with explained(self.attempts):
            if self.attempts.is_symlink():
                raise StoreError(f"{self.attempts}: a link, and attempts lie beside results; move it away")
            numbers = self._numbers()
            before = self._latest_of(numbers)
            start = self._cut_off(before, row, known, anew) if before else None
            if self.stamp() != known:
                raise self._is_finished()
            asked_for = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
            files = {"config.yaml": asked_for.encode(), "result.json": as_json(row)}
            files["metrics.csv"] = csv_text(start.metrics if start else [], METRICS_COLUMNS).encode()
            files |= dict([checkpoint_file(start)]) if start else {}
            files |= _logged(before) if before else {}
            number = self.attempts / str(max(numbers, default=0) + 1)
            path = number / secrets.token_hex(4)
            files["lease.json"] = lease.take(path)  # written last, since its age counts
            try:
                made = make_once(number, {f"{path.name}/{name}": data for name, data in files.items()})
                if not made and not path.exists():  # a network may report failure after success
                    raise Busy(f"{number}: another process has just begun this run")
                if self.stamp() != known:  # the run was finished meanwhile and its attempts removed
                    self._discard(path)
                    self._clear(number)
                    raise self._is_finished()
                for earlier in (path for n in numbers for path in self._attempts_of(n)):
                    self._discard(earlier)
                return RunWriter(path, start, heartbeat)
            except BaseException:  # also Ctrl-C
                lease.release(path)
                with contextlib.suppress(OSError):
                    owned.delete(self.attempts)  # if it is empty
                raise

    def finish(self, writer: RunWriter, row: Row, *, known: Stamp) -> None:
        """Make the attempt, with this row, the result of the run. known: as for `attempt`. Raises Busy if
        another process was faster."""
        writer.seal(row)
        with explained(self.directory):
            self._publish(writer.path, known)
        writer.path = self.directory  # the lease is still in it, so that no other process publishes it

    def give_up(self, writer: RunWriter) -> Path:
        """Keep the earlier result and move this attempt to damaged/; returns its new path. Raises Busy,
        StoreError."""
        number = writer.path.parent
        with writer.here():
            writer.path = self.put_aside(writer.path)
        self._clear(number)
        return writer.path

    def put_aside(self, path: Path) -> Path:
        """Move the result or an attempt to damaged/, where it is never read again; returns its new path.
        Raises FileNotFoundError if it is gone."""
        return owned.put_aside(path, self.damaged)

    def put_aside_if_damaged(self, path: Path) -> Path | None:
        """put_aside, if it is damaged; None if it is intact, gone or being written by another process."""
        damaged = _result_is_damaged if path == self.directory else _attempt_is_damaged
        with explained(path), contextlib.suppress(FileNotFoundError):
            if not damaged(path):
                return None
            aside = self.put_aside(path)
            if damaged(aside) or not owned.rename_onto_free(aside, path):
                return aside  # otherwise it had just been replaced, and is back in place
        return None

    def remove(self) -> None:
        """Remove the result, unless it is damaged and is put aside, and every attempt; a process that works
        on one notices at its next write. Raises ConfigError."""
        with explained(self.directory):
            with contextlib.suppress(FileNotFoundError):
                try:
                    read_finished(self.directory)
                    owned.remove_tree(self.directory, RESULT)
                except Damaged:
                    aside = self.put_aside(self.directory)
                    log.warning("%s: damaged, so it is not deleted; it is in %s", self.directory.name, aside)
            with contextlib.suppress(FileNotFoundError):
                owned.remove_tree(self.attempts, ATTEMPTS)

    def release(self, pid: int) -> None:
        """Release the lease of a process of this machine that has ended."""
        with contextlib.suppress(OSError, StoreError):
            if latest := self.latest():
                lease.release_ended(latest, pid)

    def _cut_off(self, before: Path, row: Row, known: Stamp, anew: bool) -> Checkpoint | None:
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
                self._publish(before, known)
                raise self._is_finished()
            checkpoint = read_checkpoint(before)
            if changed and checkpoint and not anew:
                raise self._of_another_kind(checkpoint.step, changed, began, row)
            return None if changed else checkpoint
        except FileNotFoundError:  # its process lives after all, and has just replaced its checkpoint
            return None

    def _of_another_kind(self, step: int, changed: Sequence[str], began: Row, row: Row) -> OfAnotherKind:
        differs = "; ".join(f"{key} was {began.get(key)}, is {row.get(key)}" for key in changed)
        way_out = "the command that made it goes on from it where it was made"
        if changed == ["threads"] and (count := began.get("threads")):
            way_out = f"hydra.launcher.threads={count} goes on from it"
        return OfAnotherKind(
            f"{self.directory.name}: its checkpoint after step {step} was made otherwise ({differs}) and is"
            f" kept: {way_out}, force=stale begins anew"
        )

    def _publish(self, attempt: Path, known: Stamp) -> None:
        """Make a sealed attempt the result, replacing the known one."""
        number = attempt.parent
        try:
            while not owned.rename_onto_free(attempt, self.directory):
                if self.stamp() == known:
                    if not known:  # there is no result in it
                        self.put_aside(self.directory)
                        continue
                    old = owned.take_away(self.directory, number, RESULT)
                    if stamp(old) == known:
                        continue
                    owned.rename_onto_free(old, self.directory)  # it had just been replaced: put it back
                self._discard(attempt)
                self._clear(number)
                raise self._is_finished()
        except OSError as error:
            if is_gone(error):
                raise taken_over(attempt) from None
            raise
        self._clear(number)

    def _discard(self, attempt: Path) -> None:
        """Remove an attempt, so that its process no longer finds it; its number stays taken."""
        with contextlib.suppress(OSError, StoreError):
            (attempt.parent / OVER).touch()
            owned.drop(owned.take_away(attempt, attempt.parent, ATTEMPT))

    def _clear(self, last: Path) -> None:
        """Remove the numbers up to `last`, as the run is finished. Numbers that hold an attempt stay, since
        its process may be alive; a process that is just beginning an attempt has to try again."""
        with contextlib.suppress(OSError, StoreError):
            numbers = [self.attempts / str(n) for n in self._numbers() if n <= int(last.name)]
            numbers = [number for number in numbers if not number.is_symlink()]
            for old in (
                *self.attempts.glob(f"{owned.PART}*"),
                *(old for n in numbers for old in n.glob(f"{owned.GONE}*")),
            ):
                owned.drop(old)
            for number in numbers:
                for path in (number / OVER, number):
                    with contextlib.suppress(OSError):
                        owned.delete(path)
            owned.delete(self.attempts)

    def _is_finished(self) -> Busy:
        return Busy(f"{self.directory}: another process has just finished this run")


def _logged(attempt: Path) -> dict[str, bytes]:
    """The log of an earlier attempt, which is continued even if the run starts again from the beginning."""
    with contextlib.suppress(OSError):
        return {"log.txt": (attempt / "log.txt").read_bytes()}
    return {}


def _attempt_is_damaged(path: Path) -> bool:
    if lease.is_live(path):
        return False
    try:
        read_started(path)
        read_checkpoint(path)
    except Damaged:
        return True
    return False


def _result_is_damaged(path: Path) -> bool:
    """Whether the result is damaged. Checked twice, as it may be replaced while its files are being read."""
    return all(path.exists() and not is_sealed(path) for _ in range(2))
