"""The run store: the only reader and writer of runs/. Loads no torch.

runs/store/<name>/      a finished run; runs/store/.<name>.part/ one that is under way or was cut off
runs/studies/<name>/    study.json, what was asked for, and results.csv, its rows
runs/results.csv        every row

A run's directory is written under its part name and renamed when whole, so a directory without
.part is complete. All results.csv are derived from the directories.
"""

import contextlib
import csv
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock

from ablate import claim
from ablate.columns import METRICS_COLUMNS, Row, cell, csv_text, status_now
from ablate.config import ConfigError, did_you_mean

HEARTBEAT_S = 5
ROW_KEYS = {"run_id", "status", "code", "torch"}
STUDY_KEYS = {"name", "kind", "factors", "fixed", "seeds", "runs"}


class StoreError(ConfigError):
    """What is on disk does not allow what was asked for."""


class Store:
    """The store below one directory, by default runs/ where the command was typed."""

    def __init__(self, root: Path = Path("runs")) -> None:
        self.root = root

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Between reading and writing what several processes may change. The system lets go of the lock
        when its process ends, however it does."""
        with _explained(self.root):
            (self.root / "store").mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.root / "store" / ".lock")
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    # --- runs -------------------------------------------------------------------------------

    def directory(self, name: str) -> Path:
        return self.root / "store" / name

    def part(self, name: str) -> Path:
        return self.root / "store" / f".{name}.part"

    def read(self, name: str) -> Row | None:
        """The row of a finished run (done, failed or diverged); None where there is none to trust."""
        try:
            return _read_json(self.directory(name) / "result.json", ROW_KEYS)
        except (FileNotFoundError, StoreError):
            return None

    def find(self, run: str) -> Path:
        """The directory of the one finished run whose name or id begins with `run`. Raises StoreError."""
        finished = [path for path in _listdir(self.root / "store") if not path.name.startswith(".")]
        found = [path for path in finished if run and (path.name.startswith(run) or _id_begins(path, run))]
        if len(found) == 1:
            return found[0]
        if found:
            some = ", ".join(path.name for path in found[:5])
            raise StoreError(f"{run}: {len(found)} runs begin so; give more of it: {some}")
        raise StoreError(f"{run or 'RUN'}: no finished run begins so; ablate runs shows what there is")

    def rows(self, provenance: Mapping[str, str] | None = None) -> list[Row]:
        """Every run once, sorted by run_id; the study column names the studies that share it.

        A run that is being trained again is `running`; a new attempt that was cut off leaves the old
        result standing. provenance: of the program that asks; results of another are `stale`.
        """
        studies = self._studies_by_run()
        rows: dict[str, Row] = {}
        for path in _listdir(self.root / "store"):  # parts come first: their names begin with a dot
            if path.name.endswith(".part"):
                with contextlib.suppress(OSError, StoreError):  # not begun, or gone since
                    row = _read_json(path / "result.json", ROW_KEYS)
                    row["status"] = "running" if claim.is_live(path) else "interrupted"
                    rows[row["run_id"]] = row
            elif not path.name.startswith("."):
                row = _finished_row(path)
                if provenance is not None:
                    row["status"] = status_now(row, provenance)
                if rows.get(row["run_id"], row)["status"] != "running":
                    rows[row["run_id"]] = row
        for row in rows.values():
            row["study"] = " ".join(studies.get(row["run_id"], []))
        return sorted(rows.values(), key=lambda row: row["run_id"])

    @contextlib.contextmanager
    def writing(self, name: str, config: Mapping[str, Any], row: Row) -> Iterator["RunWriter"]:
        """A place for one run's files. It becomes the run's directory by RunWriter.finish; left before
        that, it stays as an interrupted part. Raises StoreError if another process is at it."""
        part = self.part(name)
        with _explained(part), self.locked():
            _take(part)
        writer = RunWriter(part, self.directory(name))
        writer.write_text("config.yaml", yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True))
        writer.write_json("result.json", row)
        try:
            yield writer
        finally:
            writer.close()

    # --- studies ----------------------------------------------------------------------------

    def read_study(self, name: str) -> dict[str, Any] | None:
        """What study.json holds; None where there is none. Raises StoreError if it can't be read."""
        try:
            return _read_json(self.root / "studies" / name / "study.json", STUDY_KEYS)
        except FileNotFoundError:
            return None

    def write_study(self, study: Mapping[str, Any]) -> None:
        path = self.root / "studies" / study["name"] / "study.json"
        write_atomically(path, json.dumps(study, indent=2, sort_keys=True) + "\n")

    def study_names(self) -> list[str]:
        return [path.name for path in _listdir(self.root / "studies") if (path / "study.json").exists()]

    def study_rows(self, name: str, provenance: Mapping[str, str] | None = None) -> list[Row]:
        """The rows of one study, sorted by run_id. Runs that have not begun have none."""
        study = self.read_study(name)
        if study is None:
            names = self.study_names()
            known = did_you_mean(name, names) if names else "; there are none yet"
            raise StoreError(f"{name}: no such study in {self.root / 'studies'}{known}")
        members = set(study["runs"])
        return [{**row, "study": name} for row in self.rows(provenance) if row["run_id"] in members]

    def write_results(self, study: str, provenance: Mapping[str, str]) -> Path:
        """Bring runs/results.csv and the study's own up to date; returns the path of the latter."""
        path = self.root / "studies" / study / "results.csv"
        with self.locked():
            write_atomically(self.root / "results.csv", csv_text(self.rows(provenance)))
            write_atomically(path, csv_text(self.study_rows(study, provenance)))
        return path

    def _studies_by_run(self) -> dict[str, list[str]]:
        members: dict[str, list[str]] = {}
        for name in sorted(self.study_names()):
            for run_id in (self.read_study(name) or {"runs": []})["runs"]:
                members.setdefault(run_id, []).append(name)
        return members


class RunWriter:
    """The files of one run while it is under way."""

    def __init__(self, part: Path, final: Path) -> None:
        self.path = part
        self._final = final
        self._beat = time.monotonic()
        self._log = (part / "log.txt").open("a", encoding="utf-8", newline="\n")
        self._metrics = (part / "metrics.csv").open("w", encoding="utf-8", newline="")
        self._metrics_csv = csv.writer(self._metrics, lineterminator="\n")
        self._metrics_csv.writerow(METRICS_COLUMNS)

    def heartbeat(self) -> None:
        """Show that the run is alive; cheap enough for every step."""
        if time.monotonic() - self._beat > HEARTBEAT_S:
            self._beat = time.monotonic()
            claim.heartbeat(self.path)

    def metrics(self, row: Mapping[str, Any]) -> None:
        self._metrics_csv.writerow([cell(row[column]) for column in METRICS_COLUMNS])
        self._metrics.flush()

    def log(self, text: str) -> None:
        self._log.write(text.rstrip("\n") + "\n")
        self._log.flush()

    def write_text(self, name: str, text: str) -> None:
        (self.path / name).write_text(text, encoding="utf-8", newline="\n")

    def write_json(self, name: str, content: Any) -> None:
        self.write_text(name, json.dumps(content, indent=2) + "\n")

    def write_weights(self, weights: Mapping[str, Any]) -> None:
        """weights: NumPy arrays by parameter name."""
        import safetensors.numpy

        safetensors.numpy.save_file(dict(weights), self.path / "model.safetensors")

    def finish(self, row: Row) -> None:
        """The run is over, with this row: its directory takes its final name."""
        self.write_json("result.json", row)
        self._close_files()
        replaced = self._final.with_name(f".{self._final.name}.old")
        shutil.rmtree(replaced, ignore_errors=True)
        if self._final.exists():
            self._final.rename(replaced)
        self.path.rename(self._final)  # with the claim in it: nobody may take the part before
        self.path = self._final
        shutil.rmtree(replaced, ignore_errors=True)

    def close(self) -> None:
        """Let go of the run, finished or not."""
        self._close_files()
        claim.release(self.path)

    def _close_files(self) -> None:
        self._log.close()
        self._metrics.close()


def write_atomically(path: Path, text: str) -> None:
    """Either the old file or the whole new one is there, whatever happens. Raises StoreError."""
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(text, encoding="utf-8", newline="")
        temporary.replace(path)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """What the system refuses within, as a StoreError."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{error.filename or path}: can't be written ({error.strerror or error});"
            " make room for it there, or run ablate in another directory"
        ) from error


def _read_json(path: Path, keys: set[str]) -> dict[str, Any]:
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
    raise StoreError(f"{path}: can't be read ({reason}); restore it, or remove {path.parent} to begin anew")


def _finished_row(path: Path) -> Row:
    """The row of a finished run; for a directory that somebody damaged, a failed one that says so."""
    try:
        return _read_json(path / "result.json", ROW_KEYS)
    except (FileNotFoundError, StoreError) as error:
        row = {"run_id": path.name.rpartition("-")[2], "status": "failed", "code": None, "torch": None}
        return row | {"error": f"{path / 'result.json'} is missing or damaged: {error}".splitlines()[0]}


def _id_begins(path: Path, run: str) -> bool:
    """A name ends in the first half of the id; the rest stands in the row."""
    return path.name.rpartition("-")[2].startswith(run[:8]) and _finished_row(path)["run_id"].startswith(run)


def _listdir(path: Path) -> list[Path]:
    return sorted(path.iterdir()) if path.is_dir() else []


def _take(part: Path) -> None:
    """Make `part` ours; the store is locked. A part that nobody is at is put away first."""
    if part.exists():
        if claim.is_live(part):
            raise StoreError(f"{part}: another process is training this run; wait for it, or stop it")
        shutil.rmtree(part)
    part.mkdir(parents=True)
    claim.claim(part)
