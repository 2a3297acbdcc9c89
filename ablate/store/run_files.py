"""The files of one run: written while it is under way, sealed when it is over, checked when read back.

config.yaml       what was asked for               metrics.csv        a row an evaluation
environment.json  where and with what              log.txt            what happened, with tracebacks
result.json       the run's row, and its seal      model.safetensors  the trained weights
checkpoint-DIGEST.safetensors                      what an interrupted run goes on from

The seal is a digest of the row and of the files beside it, so a file that was damaged or edited shows.
A checkpoint carries the digest of its bytes in its name. Loads no torch.
"""

import csv
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.config.identity import digest
from ablate.files.atomic import StoreError, explained, file_digest, sync, write_atomically
from ablate.store import claim
from ablate.store.columns import METRICS_COLUMNS, Row, csv_value

HEARTBEAT_S = 5
ROW_KEYS = {"run_id", "status", "code", "torch"}
SEALED = ("metrics.csv", "config.yaml", "model.safetensors")


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
    """The files of one run while it is under way. Raises StoreError where the disk refuses."""

    def __init__(self, attempt: Path, checkpoint: Checkpoint | None) -> None:
        self.path = attempt
        self.start = checkpoint
        self._beat = time.monotonic()
        self._write_metrics("w", checkpoint.metrics if checkpoint else [])

    def heartbeat(self) -> None:
        """Show that the run is alive; cheap enough for every step."""
        if time.monotonic() - self._beat > HEARTBEAT_S:
            self._beat = time.monotonic()
            with explained(self.path):
                claim.heartbeat(self.path)

    def metrics(self, row: Row) -> None:
        """Add a row to metrics.csv."""
        self._write_metrics("a", [row])

    def log(self, text: str) -> None:
        with (
            explained(self.path),
            (self.path / "log.txt").open("a", encoding="utf-8", newline="\n") as file,
        ):
            file.write(text.rstrip("\n") + "\n")

    def write_text(self, name: str, text: str) -> None:
        with explained(self.path):
            (self.path / name).write_text(text, encoding="utf-8", newline="\n")

    def write_json(self, name: str, content: Any) -> None:
        self.write_text(name, json.dumps(content, indent=2) + "\n")

    def write_weights(self, weights: Mapping[str, Any]) -> None:
        """weights: NumPy arrays by parameter name."""
        import safetensors.numpy

        with explained(self.path):
            (self.path / "model.safetensors").write_bytes(safetensors.numpy.save(dict(weights)))

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """Keep this checkpoint, then drop the one before."""
        import safetensors.numpy

        about = {key: value for key, value in vars(checkpoint).items() if key != "arrays"}
        data = safetensors.numpy.save(dict(checkpoint.arrays), {"about": json.dumps(about)})
        name = f"checkpoint-{hashlib.sha256(data).hexdigest()[:16]}.safetensors"
        before = [path for path in self.path.glob("checkpoint-*") if path.name != name]
        write_atomically(self.path / name, data)
        for path in before:
            path.unlink()

    def _write_metrics(self, mode: str, rows: list[Row]) -> None:
        with (
            explained(self.path),
            (self.path / "metrics.csv").open(mode, encoding="utf-8", newline="") as file,
        ):
            table = csv.writer(file, lineterminator="\n")
            if mode == "w":
                table.writerow(METRICS_COLUMNS)
            table.writerows([csv_value(row[column]) for column in METRICS_COLUMNS] for row in rows)

    def seal(self, row: Row) -> None:
        """The run is over, with this row."""
        with explained(self.path):
            for path in self.path.glob("checkpoint-*"):
                path.unlink()
            files = {name: file_digest(self.path / name) for name in SEALED if (self.path / name).exists()}
            self.write_json("result.json", {**row, "files": files, "seal": digest([row, files])})
            sync(self.path)


class Damaged(StoreError):
    """A run's files are not as the run left them. row: what can still be read of its row."""

    def __init__(self, path: Path, reason: str, row: Row) -> None:
        super().__init__(f"{path}: {reason}; the same command runs it again, and keeps this in damaged/")
        self.row = row


def read_started(directory: Path) -> Row:
    """The row of a run under way. Raises FileNotFoundError, or Damaged if it can't be read."""
    try:
        return read_json(directory / "result.json", ROW_KEYS)
    except StoreError as error:
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
    except (FileNotFoundError, StoreError) as error:
        row = {"run_id": directory.name.rpartition("-")[2], "code": None, "torch": None}
        raise Damaged(path, "missing or damaged", row) from error
    seal, files = row.pop("seal"), row.pop("files")
    if seal != digest([row, files]):
        raise Damaged(path, "edited since the run ended", row)
    for name, was in files.items() if thorough else ():
        path = directory / name
        if not path.is_file() or file_digest(path) != was:
            raise Damaged(path, "missing, damaged, or edited since the run ended", row)
    return row


def read_checkpoint(directory: Path) -> Checkpoint | None:
    """The last checkpoint there; None without one. Raises Damaged."""
    import safetensors
    import safetensors.numpy

    found = []
    for path in sorted(directory.glob("checkpoint-*.safetensors")):
        data = path.read_bytes()
        if path.stem != f"checkpoint-{hashlib.sha256(data).hexdigest()[:16]}":
            raise Damaged(path, "damaged", {})
        with safetensors.safe_open(path, framework="numpy") as file:
            about = json.loads(file.metadata()["about"])
        found.append(Checkpoint(arrays=safetensors.numpy.load(data), **about))
    return max(found, key=lambda checkpoint: checkpoint.step, default=None)


def read_json(path: Path, keys: set[str]) -> dict[str, Any]:
    """Raises FileNotFoundError, or StoreError for a file that is not what ablate wrote."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict) and keys <= content.keys():
            return content
        reason = "something is missing in it"
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(path) from None
    except (OSError, ValueError) as error:
        reason = str(error)
    raise unreadable(path, reason)


def unreadable(path: Path, reason: str) -> StoreError:
    """What a user hears of a file of ours that is damaged, or that somebody edited."""
    return StoreError(f"{path}: can't be read ({reason}); restore it, or remove {path.parent} to begin anew")
