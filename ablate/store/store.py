"""The run store: the only reader and writer of runs/. Loads no torch.

runs/store/<name>/      a finished run; runs/store/.<name>.part/ one that is under way or was cut off
runs/studies/<name>/    study.json, what was asked for, and results.csv, its rows
runs/results.csv        every row

A run's directory is written under its .part name and renamed when whole, so a directory without
.part is complete. All results.csv are derived from the directories. What turns out to be damaged, or
edited, is moved to runs/damaged/ and never read again.
"""

import contextlib
import csv
import itertools
import json
import shutil
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock

from ablate.config.rules import ConfigError, did_you_mean
from ablate.files.atomic import StoreError, explained, write_atomically
from ablate.store import claim
from ablate.store.columns import ROLE_COLUMNS, Row, csv_text
from ablate.store.record import Role, StudyRecord, as_plain, read_record
from ablate.store.row_cache import read_rows
from ablate.store.run_files import (
    Checkpoint,
    Damaged,
    RunWriter,
    is_sealed,
    read_checkpoint,
    read_finished,
    read_json,
    read_started,
    unreadable,
)
from ablate.store.status import Status, status_now

# Bytes are equal only between runs that agree in these, so only then does one go on where another was.
RESUMABLE = ("run_id", "device", "engine", "linear", "threads", "torch", "code", "parts")


class Busy(StoreError):
    """Another process is at this run."""


class Store:
    """The store below one directory, by default runs/ where the command was typed."""

    def __init__(self, root: Path = Path("runs")) -> None:
        self.root = root

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Between reading and writing what several processes may change. The system lets go of the lock
        when its process ends, however it does."""
        with explained(self.root):
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

    def attempt(self, name: str) -> Path:
        return self.root / "store" / f".{name}.part"

    def read(self, name: str) -> Row | None:
        """The row of a finished run (done, failed or diverged), or None. Raises Damaged."""
        directory, attempt = self.directory(name), self.attempt(name)
        if attempt.exists():
            with explained(attempt), self.locked():
                if is_sealed(attempt) and not claim.is_live(attempt):  # cut off after its last word
                    self._rename(name)
        return read_finished(directory, thorough=True) if directory.exists() else None

    def set_aside(self, path: Path) -> Path | None:
        """Move a damaged run, or a damaged attempt, out of the way, where nothing reads it again; returns
        where it lies. None if it is whole by now, or gone: another process was faster."""
        with explained(path), self.locked():
            if claim.is_live(path) or not _is_damaged(path):
                return None
            name = path.name.removeprefix(".").removesuffix(".part")
            return _move_into(path, self.root / "damaged", name)

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

    def directories(self, run_ids: Iterable[str]) -> dict[str, Path]:
        """Where the files of these runs lie, by run_id; only of those that are finished."""
        wanted = {run_id[:8]: run_id for run_id in run_ids}
        paths = {path.name.rpartition("-")[2]: path for path in _listdir(self.root / "store")}
        found = {run_id: paths[short] for short, run_id in wanted.items() if short in paths}
        return {
            run_id: path
            for run_id, path in found.items()
            if not path.name.startswith(".") and _id_begins(path, run_id)
        }

    def rows(self) -> list[Row]:
        """Every run once, sorted by run_id; the study column names the studies that share it, and phase and
        role are empty where those differ in them.

        A run that is being trained again is `running`; a new attempt that was cut off leaves the old
        result standing. Results of other code or another torch are `stale`.
        """
        studies = self._studies_by_run()
        rows = {row["run_id"]: row for row in self._unfinished_rows()}
        for row in read_rows(self.root / "store"):
            row["status"] = status_now(row)
            if rows.get(row["run_id"], row)["status"] != Status.RUNNING:
                rows[row["run_id"]] = row
        for row in rows.values():
            roles = studies.get(row["run_id"], {})
            row |= _agreed(list(roles.values())) | {"study": " ".join(roles)}
        return sorted(rows.values(), key=lambda row: row["run_id"])

    def _unfinished_rows(self) -> Iterator[Row]:
        for path in (self.root / "store").glob(".*.part"):
            with contextlib.suppress(OSError, StoreError):  # not begun, or gone since
                status = Status.RUNNING if claim.is_live(path) else Status.INTERRUPTED
                yield {**read_started(path), "status": status}

    def last_metrics(self, run_id: str) -> Row | None:
        """The last row of metrics.csv of a run under way, as text; None before its first evaluation."""
        for path in (self.root / "store").glob(f".*-{run_id[:8]}.part/metrics.csv"):
            with contextlib.suppress(OSError), path.open(encoding="utf-8", newline="") as file:
                rows = deque(csv.DictReader(file), maxlen=1)
                return rows[0] if rows else None
        return None

    @contextlib.contextmanager
    def writing(
        self, name: str, config: Mapping[str, Any], row: Row, *, anew: bool = False
    ) -> Iterator[RunWriter]:
        """A place for one run's files: an empty one, or where an interrupted run of the same bytes got to
        (RunWriter.start). Left before `finish`, it stays as an interrupted attempt.

        anew: replace what is finished. Raises Busy if another process is at it or was faster, Damaged if
        what was interrupted can't be trusted.
        """
        attempt = self.attempt(name)
        with explained(attempt), self.locked():
            if attempt.exists() and claim.is_live(attempt):
                raise Busy(f"{attempt}: another process is training this run; wait for it, or stop it")
            if self.directory(name).exists() and not anew:
                raise Busy(f"{self.directory(name)}: another process has just finished this run")
            start = _where_it_stopped(attempt, row)
            attempt.mkdir(parents=True, exist_ok=True)
            if start is None:  # begin anew, but keep what was logged
                for path in attempt.iterdir():
                    if path.is_dir():  # an editor's or a notebook's
                        shutil.rmtree(path)
                    elif path.name != "log.txt":
                        path.unlink()
            claim.claim(attempt)
        writer = RunWriter(attempt, start)
        writer.write_text("config.yaml", yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True))
        writer.write_json("result.json", row)
        try:
            yield writer
        finally:
            claim.release(writer.path)

    def finish(self, name: str, writer: RunWriter, row: Row) -> None:
        """The run is over, with this row: its directory takes its final name."""
        writer.seal(row)
        with explained(writer.path):
            self._rename(name)
        writer.path = self.directory(name)

    def _rename(self, name: str) -> None:
        final = self.directory(name)
        replaced = final.with_name(f".{name}.old")
        shutil.rmtree(replaced, ignore_errors=True)
        if final.exists():
            final.rename(replaced)
        self.attempt(name).rename(final)  # with the claim in it: nobody may take the attempt before
        shutil.rmtree(replaced, ignore_errors=True)

    # --- studies ----------------------------------------------------------------------------

    def read_study(self, name: str) -> StudyRecord | None:
        return read_study(self.root / "studies" / name)

    def write_study(self, record: StudyRecord) -> None:
        path = self.root / "studies" / record.name / "study.json"
        write_atomically(path, json.dumps(as_plain(record), indent=2, sort_keys=True) + "\n")

    def study_names(self) -> list[str]:
        return [path.name for path in _listdir(self.root / "studies") if (path / "study.json").exists()]

    def study_rows(self, name: str) -> list[Row]:
        """The rows of one study, sorted by run_id. Runs that have not begun have none."""
        if self.read_study(name) is None:
            names = self.study_names()
            known = did_you_mean(name, names) if names else "; there are none yet"
            raise StoreError(f"{name}: no such study in {self.root / 'studies'}{known}")
        return self._members(name, self.rows())

    def results_path(self, study: str) -> Path:
        return self.root / "studies" / study / "results.csv"

    def write_results(self, study: str) -> Path:
        """Bring runs/results.csv and the study's own up to date; returns the path of the latter."""
        path = self.results_path(study)
        with self.locked():
            rows = self.rows()
            write_atomically(self.root / "results.csv", csv_text(rows))
            write_atomically(path, csv_text(self._members(study, rows)))
        return path

    def _members(self, study: str, rows: list[Row]) -> list[Row]:
        roles = self._roles(study)
        return [{**row, **roles[row["run_id"]], "study": study} for row in rows if row["run_id"] in roles]

    def _roles(self, study: str) -> dict[str, Row]:
        """What each run of a study is to it, by run_id."""
        record = self.read_study(study)
        return {run_id: _columns(record.roles.get(run_id)) for run_id in record.runs} if record else {}

    def _studies_by_run(self) -> dict[str, dict[str, Row]]:
        members: dict[str, dict[str, Row]] = {}
        for name in sorted(self.study_names()):
            for run_id, role in self._roles(name).items():
                members.setdefault(run_id, {})[name] = role
        return members


def read_study(directory: Path) -> StudyRecord | None:
    """What study.json holds; None where there is none. Raises StoreError if it can't be read."""
    path = directory / "study.json"
    try:
        plain = read_json(path, set())
    except FileNotFoundError:
        return None
    try:
        return read_record(plain)
    except ConfigError as error:
        raise unreadable(path, str(error)) from error


def _agreed(roles: list[Row]) -> Row:
    """The role of a run in all of its studies; a run that also stands in a grid is a result like any."""
    return roles[0] if roles and all(role == roles[0] for role in roles) else _columns(None)


def _columns(role: Role | None) -> Row:
    """What results.csv says of a role."""
    return {column: getattr(role, column, None) for column in ROLE_COLUMNS}


def _id_begins(path: Path, run: str) -> bool:
    """A name ends in the first half of the id; the rest stands in the row."""
    if not path.name.rpartition("-")[2].startswith(run[:8]):
        return False
    try:
        return read_finished(path)["run_id"].startswith(run)
    except Damaged:
        return False


def _listdir(path: Path) -> list[Path]:
    return sorted(path.iterdir()) if path.is_dir() else []


def _where_it_stopped(attempt: Path, row: Row) -> Checkpoint | None:
    """The checkpoint to go on from; None where there is none that leads to the bytes of `row`. Raises
    Damaged."""
    try:
        before = read_started(attempt)
    except FileNotFoundError:
        return None
    if any(before.get(column) != row.get(column) for column in RESUMABLE):
        return None
    return read_checkpoint(attempt)


def _is_damaged(path: Path) -> bool:
    try:
        if path.name.endswith(".part"):
            read_started(path)
            read_checkpoint(path)
        elif path.exists():
            read_finished(path, thorough=True)
    except FileNotFoundError:
        return False
    except Damaged:
        return True
    return False


def _move_into(path: Path, directory: Path, name: str) -> Path:
    directory.mkdir(exist_ok=True)
    target = next(t for n in itertools.count(1) if not (t := directory / f"{name}-{n}").exists())
    return path.rename(target)
