"""The files of one run: sealed when it ends, checked when they are read back (run_folder writes them).

config.yaml       what was asked for               metrics.csv        one row per evaluation
environment.json  machine and packages             log.txt            what happened, with tracebacks
result.json       the run's row, and its seal      model.safetensors  the trained weights
checkpoint-DIGEST.safetensors                      the state from which an interrupted run resumes

The seal is a digest of the row and of the files beside it, by which a damaged or edited file is noticed.
A checkpoint has the digest of its bytes in its name. Loads no torch.
"""

import contextlib
import csv
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any

from ablate.files.atomic import Garbled, StoreError, digest, file_digest, is_gone, out_of_reach, read_json
from ablate.store.columns import Row

ROW_KEYS = {"run_id", "status", "code", "torch"}
SEALED = ("metrics.csv", "config.yaml", "model.safetensors")

# Identifies one result of a run: size, times and inode of its result.json; empty if there is none.
Stamp = list[int]


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after update `step`. arrays: NumPy arrays by name. metrics: the rows of metrics.csv
    so far. seconds: of training and evaluation until then; evaluation_seconds: of evaluation alone. members:
    of the largest group that the run has been part of."""

    step: int
    arrays: Mapping[str, Any]
    metrics: list[Row]
    seconds: float
    evaluation_seconds: float
    members: int = 1


def as_json(content: Any) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()


def checkpoints(attempt: Path) -> list[Path]:
    """The checkpoint files of an attempt: usually one."""
    # Path.glob raises if the attempt goes while it is listed
    return sorted(attempt / name for name in glob("checkpoint-*.safetensors", root_dir=attempt))


def checkpoint_file(checkpoint: Checkpoint) -> tuple[str, bytes]:
    """The name and the bytes of a checkpoint's file."""
    import safetensors.numpy

    about = {key: value for key, value in vars(checkpoint).items() if key != "arrays"}
    data = safetensors.numpy.save(dict(checkpoint.arrays), {"about": json.dumps(about)})
    return f"checkpoint-{hashlib.sha256(data).hexdigest()[:16]}.safetensors", data


def stamp(directory: Path) -> Stamp:
    """The stamp of the result in this directory. Raises StoreError if it can't be read."""
    path = directory / "result.json"
    try:
        stat = os.stat(path)
    except OSError as error:
        if is_gone(error):
            return []
        raise out_of_reach(path, error) from error
    return [stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_ctime_ns]


class Damaged(StoreError):
    """A run's files are not as the run left them. path: the file."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"{path}: {reason}; the command that made it runs it again, and keeps this in damaged/"
        )
        self.path = path


def read_config(directory: Path) -> dict[str, Any]:
    """What was asked for. Raises ConfigError."""
    import yaml

    path = directory / "config.yaml"
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise out_of_reach(path, error) from error


def read_started(directory: Path) -> Row:
    """The row that a run began with. Raises FileNotFoundError, Damaged."""
    return _read_row(directory / "result.json", ROW_KEYS)


def _read_row(path: Path, keys: set[str]) -> Row:
    try:
        return read_json(path, keys)
    except Garbled as error:
        raise Damaged(path, "missing or damaged") from error


def read_metrics(directory: Path) -> Iterator[Row]:
    """The rows of metrics.csv as numbers, up to one that is damaged; one that is being written has a part of
    its columns."""
    with (
        contextlib.suppress(OSError, ValueError, TypeError, csv.Error),
        (directory / "metrics.csv").open(encoding="utf-8", newline="") as file,
    ):
        for row in csv.DictReader(file):
            numbers = {name: float(value) for name, value in row.items() if value}
            yield numbers | {"step": int(row["step"])}


def sealed(directory: Path) -> Row | None:
    """The row of a run that ended, with its seal, if nothing has changed since."""
    try:
        return read_finished(directory, thorough=True)
    except Damaged:
        return None


def read_finished(directory: Path, *, thorough: bool = False) -> Row:
    """The row of a finished run. thorough: check the files beside it as well. Raises Damaged."""
    path = directory / "result.json"
    try:
        row = _read_row(path, ROW_KEYS | {"seal", "files"})
    except FileNotFoundError as error:
        raise Damaged(path, "missing or damaged") from error
    seal, files = row.pop("seal"), row.pop("files")
    try:
        is_whole = seal == digest([row, files])
    except (ValueError, RecursionError):  # a number that is not finite, say
        is_whole = False
    if not is_whole:
        raise Damaged(path, "edited since the run ended")
    for name, was in files.items() if thorough else ():
        path = directory / name
        try:
            same = file_digest(path) == was
        except OSError as error:
            if not is_gone(error):
                raise out_of_reach(path, error) from error
            same = False
        if not same:
            raise Damaged(path, "missing, damaged, or edited since the run ended")
    return row


def read_checkpoint(directory: Path) -> Checkpoint | None:
    """The last checkpoint in a directory; None without one. Raises Damaged."""
    import safetensors
    import safetensors.numpy

    loaded = []
    for path in checkpoints(directory):
        data = path.read_bytes()
        if path.stem != f"checkpoint-{hashlib.sha256(data).hexdigest()[:16]}":
            raise Damaged(path, "damaged")
        with safetensors.safe_open(path, framework="numpy") as file:
            about = json.loads(file.metadata()["about"])
        loaded.append(Checkpoint(arrays=safetensors.numpy.load(data), **about))
    return max(loaded, key=lambda checkpoint: checkpoint.step, default=None)
