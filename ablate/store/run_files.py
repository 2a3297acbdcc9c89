"""The files of one run: written while it is under way, sealed when it is over, checked when read back.

config.yaml       what was asked for               metrics.csv        a row an evaluation
environment.json  where and with what              log.txt            what happened, with tracebacks
result.json       the run's row, and its seal      model.safetensors  the trained weights
weights-STEP.safetensors                           those after a step, for probes
checkpoint-DIGEST.safetensors                      what an interrupted run goes on from

The seal is a digest of the row and of the files beside it, so a file that was damaged or edited shows.
A checkpoint carries the digest of its bytes in its name. Loads no torch.
"""

import contextlib
import csv
import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.config.identity import digest
from ablate.files.atomic import StoreError, explained, file_digest, is_gone, replace_file, sync, synced_digest
from ablate.store import claim
from ablate.store.columns import METRICS_COLUMNS, Row, csv_value

ROW_KEYS = {"run_id", "status", "code", "torch"}
SEALED = ("metrics.csv", "config.yaml", "model.safetensors")
ON_THE_WAY = "weights-"  # the files of weights after some step, sealed too

# What tells a result from any other of the same run: size, time and inode of its result.json; empty for none.
Stamp = list[int]


class Busy(StoreError):
    """Another process is at this run, or has just finished it."""


@dataclass(frozen=True)
class Checkpoint:
    """A run after update `step`. arrays: NumPy arrays by name; metrics: its rows of metrics.csv so far;
    seconds: of training and evaluation, and of evaluation alone, until then."""

    step: int
    arrays: Mapping[str, Any]
    metrics: list[Row]
    seconds: float
    evaluation_seconds: float


class RunWriter:
    """The files of one attempt while it is under way.

    start: where it goes on from. Raises StoreError where the disk refuses, and Busy once another process has
    taken the run over: then nothing can be written here any more.
    """

    def __init__(self, attempt: Path, start: Checkpoint | None) -> None:
        self.path = attempt
        self.start = start
        self._heartbeat: claim.Heartbeat | None = claim.Heartbeat(attempt)

    def check(self) -> None:
        """Whether the run is still this process's; cheap enough for every step."""
        if self._heartbeat and self._heartbeat.lost:
            raise taken_over(self.path)

    def metrics(self, row: Row) -> None:
        """Add a row to metrics.csv."""
        self._append("metrics.csv", _metrics_lines([row]))

    def log(self, text: str) -> None:
        self._append("log.txt", text.rstrip("\n") + "\n")

    def write_json(self, name: str, content: Any) -> None:
        self.write(name, as_json(content))

    def write(self, name: str, content: str | bytes) -> None:
        with self.here():
            replace_file(self.path / name, content)

    def write_weights(self, weights: Mapping[str, Any], step: int | None = None) -> None:
        """weights: NumPy arrays by parameter name. step: of those on the way; None for the trained ones."""
        import safetensors.numpy

        name = "model.safetensors" if step is None else f"{ON_THE_WAY}{step:09d}.safetensors"
        self.write(name, safetensors.numpy.save(dict(weights)))

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """Keep this checkpoint, then drop the one before."""
        name, data = checkpoint_file(checkpoint)
        with self.here():
            before = [other for other in checkpoints(self.path) if other.name != name]
            replace_file(self.path / name, data)
            for other in before:
                other.unlink()

    def seal(self, row: Row) -> None:
        """The run is over, with this row."""
        with self.here():
            there = os.listdir(self.path)
            sealed = [*SEALED, *sorted(name for name in there if name.startswith(ON_THE_WAY))]
            files = {name: synced_digest(self.path / name) for name in sealed if name in there}
            self.write_json("result.json", {**row, "files": files, "seal": digest([row, files])})
            dropped = checkpoints(self.path)
            others = {*there} - {*sealed, "claim.json", *(path.name for path in dropped)}
            sync(self.path / name for name in others)
            for path in dropped:  # not before: a disk may be full
                path.unlink()

    def end(self) -> None:
        """Give it back."""
        if self._heartbeat:
            self._heartbeat.end()
            self._heartbeat = None
            claim.release(self.path)

    def _append(self, name: str, text: str) -> None:
        with self.here(), (self.path / name).open("a", encoding="utf-8", newline="") as file:
            file.write(text)

    @contextlib.contextmanager
    def here(self) -> Iterator[None]:
        """Around what is done to this attempt. Raises StoreError, and Busy if it is gone."""
        try:
            with explained(self.path):
                yield
        except StoreError as error:
            if isinstance(error.__cause__, OSError) and is_gone(error.__cause__):
                raise taken_over(self.path) from error
            raise


def taken_over(attempt: Path) -> Busy:
    return Busy(f"{attempt}: another process has taken this run over")


def as_json(content: Any) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()


def checkpoints(attempt: Path) -> list[Path]:
    """The files of its checkpoints: one, mostly."""
    return sorted(attempt.glob("checkpoint-*.safetensors"))


def weights_on_the_way(directory: Path) -> dict[int, Path]:
    """The weights that train.probe_every kept, by step."""
    found = sorted(directory.glob(f"{ON_THE_WAY}*.safetensors"))
    return {int(path.stem.removeprefix(ON_THE_WAY)): path for path in found}


def checkpoint_file(checkpoint: Checkpoint) -> tuple[str, bytes]:
    """Its name and its bytes."""
    import safetensors.numpy

    about = {key: value for key, value in vars(checkpoint).items() if key != "arrays"}
    data = safetensors.numpy.save(dict(checkpoint.arrays), {"about": json.dumps(about)})
    return f"checkpoint-{hashlib.sha256(data).hexdigest()[:16]}.safetensors", data


def metrics_text(rows: list[Row]) -> str:
    """metrics.csv with these rows."""
    return ",".join(METRICS_COLUMNS) + "\n" + _metrics_lines(rows)


def _metrics_lines(rows: list[Row]) -> str:
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerows([csv_value(row[column]) for column in METRICS_COLUMNS] for row in rows)
    return text.getvalue()


def stamp(directory: Path) -> Stamp:
    """Of the result in this directory. Raises StoreError where it can't be told."""
    path = directory / "result.json"
    try:
        stat = os.stat(path)
    except OSError as error:
        if is_gone(error):
            return []
        raise _out_of_reach(path, error) from error
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino]


class Garbled(StoreError):
    """A file is not what ablate wrote."""


class Damaged(StoreError):
    """A run's files are not as the run left them. path: which one; row: what can still be read of its row."""

    def __init__(self, path: Path, reason: str, row: Row) -> None:
        super().__init__(f"{path}: {reason}; the same command runs it again, and keeps this in damaged/")
        self.path = path
        self.row = row


def read_started(directory: Path) -> Row:
    """The row of a run under way. Raises FileNotFoundError, or Damaged."""
    try:
        return read_json(directory / "result.json", ROW_KEYS)
    except Garbled as error:
        raise Damaged(directory / "result.json", "damaged", {}) from error


def is_sealed(directory: Path) -> bool:
    """Whether a run's last word is written, and nothing has changed since."""
    try:
        return bool(read_finished(directory, thorough=True))
    except Damaged:
        return False


def read_finished(directory: Path, *, thorough: bool = False) -> Row:
    """The row of a finished run. thorough: look at the files beside it as well. Raises Damaged."""
    path = directory / "result.json"
    try:
        row = read_json(path, ROW_KEYS | {"seal", "files"})
    except (FileNotFoundError, Garbled) as error:
        row = {"run_id": directory.name.rpartition("-")[2], "code": None, "torch": None}
        raise Damaged(path, "missing or damaged", row) from error
    seal, files = row.pop("seal"), row.pop("files")
    if seal != digest([row, files]):
        raise Damaged(path, "edited since the run ended", row)
    for name, was in files.items() if thorough else ():
        path = directory / name
        try:
            same = file_digest(path) == was
        except OSError as error:
            if not is_gone(error):
                raise _out_of_reach(path, error) from error
            same = False
        if not same:
            raise Damaged(path, "missing, damaged, or edited since the run ended", row)
    return row


def read_checkpoint(directory: Path) -> Checkpoint | None:
    """The last checkpoint there; None without one. Raises Damaged."""
    import safetensors
    import safetensors.numpy

    found = []
    for path in checkpoints(directory):
        data = path.read_bytes()
        if path.stem != f"checkpoint-{hashlib.sha256(data).hexdigest()[:16]}":
            raise Damaged(path, "damaged", {})
        with safetensors.safe_open(path, framework="numpy") as file:
            about = json.loads(file.metadata()["about"])
        found.append(Checkpoint(arrays=safetensors.numpy.load(data), **about))
    return max(found, key=lambda checkpoint: checkpoint.step, default=None)


def read_json(path: Path, keys: set[str]) -> dict[str, Any]:
    """Raises FileNotFoundError, Garbled, or StoreError where it can't be read at this moment."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict) and keys <= content.keys():
            return content
        reason = "something is missing in it"
    except OSError as error:
        if is_gone(error):
            raise FileNotFoundError(path) from None
        raise _out_of_reach(path, error) from error
    except ValueError as error:
        reason = str(error)
    raise garbled(path, reason)


def _out_of_reach(path: Path, error: OSError) -> StoreError:
    """It may be as it should be: a network is away, too many files are open, or it is somebody else's."""
    return StoreError(
        f"{path}: can't be read ({error.strerror or error}); mend that, and run the same command"
    )


def garbled(path: Path, reason: str) -> Garbled:
    """What a user hears of a file of ours that is damaged, or that somebody edited."""
    return Garbled(f"{path}: can't be read ({reason}); restore it, or remove {path.parent} to begin anew")
