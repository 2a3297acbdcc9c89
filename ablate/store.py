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

from ablate import claim
from ablate.columns import METRICS_COLUMNS, Row, cell, csv_text, is_stale
from ablate.config import ConfigError

HEARTBEAT_S = 5


class StoreError(ConfigError):
    """What is on disk does not allow what was asked for."""


class Store:
    """The store below one directory, by default runs/ where the command was typed."""

    def __init__(self, root: Path = Path("runs")) -> None:
        self.root = root

    # --- runs -------------------------------------------------------------------------------

    def directory(self, name: str) -> Path:
        return self.root / "store" / name

    def part(self, name: str) -> Path:
        return self.root / "store" / f".{name}.part"

    def read(self, name: str) -> Row | None:
        """The row of a finished run (done, failed or diverged); None where there is none."""
        with contextlib.suppress(OSError, ValueError):
            return json.loads((self.directory(name) / "result.json").read_text(encoding="utf-8"))
        return None

    def find(self, run: str) -> Path:
        """The directory of the one finished run whose name or id begins with `run`. Raises StoreError."""
        finished = [path for path in _listdir(self.root / "store") if not path.name.startswith(".")]
        found = [path for path in finished if path.name.startswith(run) or path.name.endswith(f"-{run[:8]}")]
        if len(found) == 1:
            return found[0]
        if found:
            some = ", ".join(path.name for path in found[:5])
            raise StoreError(f"{run}: {len(found)} runs begin so; give more of it: {some}")
        raise StoreError(f"{run}: no finished run begins so; ablate runs shows what there is")

    def rows(self, provenance: Mapping[str, str] | None = None) -> list[Row]:
        """Every run, sorted by run_id; the study column names the studies that share it.

        provenance: of the program that asks; finished runs of another code or torch are `stale`.
        """
        studies = self._studies_by_run()
        rows = []
        for path in _listdir(self.root / "store"):
            if path.name.startswith(".") and not path.name.endswith(".part"):
                continue
            with contextlib.suppress(OSError, ValueError):
                row = json.loads((path / "result.json").read_text(encoding="utf-8"))
                if path.name.endswith(".part"):
                    row["status"] = "running" if claim.is_live(path) else "interrupted"
                elif provenance and row["status"] == "done" and is_stale(row, provenance):
                    row["status"] = "stale"
                row["study"] = " ".join(studies.get(row["run_id"], []))
                rows.append(row)
        return sorted(rows, key=lambda row: row["run_id"])

    @contextlib.contextmanager
    def writing(self, name: str, config: Mapping[str, Any], row: Row) -> Iterator["RunWriter"]:
        """A place for one run's files. It becomes the run's directory by RunWriter.finish; left before
        that, it stays as an interrupted part. Raises StoreError if another process is at it."""
        part = self.part(name)
        _take(part)
        writer = RunWriter(part, self.directory(name))
        writer.write_text("config.yaml", yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True))
        writer.write_json("result.json", row)
        try:
            yield writer
        finally:
            writer.close()
            claim.release(part)

    # --- studies ----------------------------------------------------------------------------

    def read_study(self, name: str) -> dict[str, Any] | None:
        with contextlib.suppress(OSError, ValueError):
            return json.loads((self.root / "studies" / name / "study.json").read_text(encoding="utf-8"))
        return None

    def write_study(self, study: Mapping[str, Any]) -> None:
        directory = self.root / "studies" / study["name"]
        directory.mkdir(parents=True, exist_ok=True)
        write_atomically(directory / "study.json", json.dumps(study, indent=2, sort_keys=True) + "\n")

    def study_names(self) -> list[str]:
        return [path.name for path in _listdir(self.root / "studies") if (path / "study.json").exists()]

    def study_rows(self, name: str, provenance: Mapping[str, str] | None = None) -> list[Row]:
        """The rows of one study, sorted by run_id. Runs that have not begun have none."""
        study = self.read_study(name)
        if study is None:
            raise StoreError(f"study {name}: not found in {self.root / 'studies'}")
        members = set(study["runs"])
        return [{**row, "study": name} for row in self.rows(provenance) if row["run_id"] in members]

    def write_results(self, study: str, provenance: Mapping[str, str]) -> Path:
        """Bring runs/results.csv and the study's own up to date; returns the path of the latter."""
        write_atomically(self.root / "results.csv", csv_text(self.rows(provenance)))
        path = self.root / "studies" / study / "results.csv"
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
        self.close()
        claim.release(self.path)  # a finished run has no claim among its files
        replaced = self._final.with_name(f".{self._final.name}.old")
        shutil.rmtree(replaced, ignore_errors=True)
        if self._final.exists():
            self._final.rename(replaced)
        self.path.rename(self._final)
        shutil.rmtree(replaced, ignore_errors=True)

    def close(self) -> None:
        self._log.close()
        self._metrics.close()


def write_atomically(path: Path, text: str) -> None:
    """Either the old file or the whole new one is there, whatever happens."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8", newline="")
    temporary.replace(path)


def _listdir(path: Path) -> list[Path]:
    return sorted(path.iterdir()) if path.is_dir() else []


def _take(part: Path) -> None:
    """Make `part` ours. A part that nobody is at is put away first."""
    if part.exists():
        if claim.is_live(part):
            raise StoreError(f"{part}: another process is training this run; wait for it, or stop it")
        abandoned = part.with_name(f"{part.name}.{os.getpid()}")
        part.rename(abandoned)
        shutil.rmtree(abandoned)
    part.mkdir(parents=True)
    claim.claim(part)
