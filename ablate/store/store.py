"""The run store: the only reader and writer of runs/. Loads no torch.

runs/store/             the runs (stored_run)
runs/studies/<name>/    study.json, what was asked for, and results.csv, its rows
runs/results.csv        every row

All results.csv are derived from the runs. What turns out to be damaged, or edited, is moved to runs/damaged/
and never read again. Any number of processes, on any number of machines, may share it (docs/reliability.md).
"""

import contextlib
import csv
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from ablate.config.rules import did_you_mean
from ablate.files.atomic import StoreError, explained, names, write_atomically
from ablate.store import claim
from ablate.store.columns import ROLE_COLUMNS, Row, csv_text
from ablate.store.record import Role, StudyRecord
from ablate.store.row_cache import read_rows
from ablate.store.run_files import Damaged, read_finished, read_started
from ablate.store.status import Status, status_now
from ablate.store.stored_run import PART, StoredRun
from ablate.store.studies import change_study, read_study

TABLES_S = 5  # to bring tables up to date while other commands go on


class Store:
    """The store below one directory, by default runs/ where the command was typed."""

    def __init__(self, root: Path = Path("runs")) -> None:
        self.root = root

    # --- runs -------------------------------------------------------------------------------

    def run(self, name: str) -> StoredRun:
        return StoredRun(self.root, name)

    def finished(self) -> set[str]:
        """The names of the runs that are, by one look at the directory."""
        return {name for name in self._names() if not name.startswith(".")}

    def begun(self) -> set[str]:
        """Those of the runs that are under way or were cut off."""
        return {
            name[1 : -len(PART)] for name in self._names() if name.startswith(".") and name.endswith(PART)
        }

    def interrupted(self) -> set[str]:
        """Those of them that nobody is at."""
        return {
            name
            for name in self.begun()
            if (attempt := self.run(name).latest()) and not claim.is_live(attempt)
        }

    def _names(self) -> list[str]:
        return names(self.root / "store")

    def find(self, run: str) -> Path:
        """The directory of the one finished run whose name or id begins with `run`. Raises StoreError."""
        paths = [self.root / "store" / name for name in sorted(self.finished())]
        found = [path for path in paths if run and (path.name.startswith(run) or _id_begins(path, run))]
        if len(found) == 1:
            return found[0]
        if found:
            some = ", ".join(path.name for path in found[:5])
            raise StoreError(f"{run}: {len(found)} runs begin so; give more of it: {some}")
        raise StoreError(f"{run or 'RUN'}: no finished run begins so; ablate runs shows what there is")

    def directories(self, run_ids: Iterable[str]) -> dict[str, Path]:
        """Where the files of these runs lie, by run_id; only of those that are finished."""
        wanted = {run_id[:8]: run_id for run_id in run_ids}
        paths = {name.rpartition("-")[2]: self.root / "store" / name for name in self.finished()}
        found = {run_id: paths[short] for short, run_id in wanted.items() if short in paths}
        return {run_id: path for run_id, path in found.items() if _id_begins(path, run_id)}

    def rows(self) -> list[Row]:
        """Every run once, sorted by run_id; the study column names the studies that share it, and phase and
        role are empty where those differ in them.

        A run that is being trained again is `running`; a new attempt that was cut off leaves the old
        result standing. Results of other code or another torch are `stale`.
        """
        studies = self._studies_by_run()
        whole_ids = {
            run_id[:8]: run_id for run_id in studies
        }  # of a damaged run, its name tells the first half
        rows = {row["run_id"]: row for row in self._unfinished_rows()}
        for row in read_rows(self.root / "store"):
            row["run_id"] = whole_ids.get(row["run_id"], row["run_id"])
            row["status"] = status_now(row)
            if rows.get(row["run_id"], row)["status"] != Status.RUNNING:
                rows[row["run_id"]] = row
        for row in rows.values():
            roles = studies.get(row["run_id"], {})
            row |= _agreed(list(roles.values())) | {"study": " ".join(roles)}
        return sorted(rows.values(), key=lambda row: row["run_id"])

    def changed(self) -> dict[str, float]:
        """When each run last changed, in seconds since 1970, by the first half of its run_id."""
        files = {name: self.run(name).directory / "result.json" for name in self.finished()}
        for name in self.begun():
            if attempt := self.run(name).latest():
                files[name] = attempt / "metrics.csv"
        found = {}
        for name, file in files.items():
            with contextlib.suppress(OSError):  # it may go at any time
                found[name.rpartition("-")[2]] = file.stat().st_mtime
        return found

    def results(self) -> dict[str, Row]:
        """The rows of the finished runs as these left them, by run_id."""
        return {row["run_id"]: row for row in read_rows(self.root / "store")}

    def _unfinished_rows(self) -> Iterator[Row]:
        for name in self.begun():
            with contextlib.suppress(OSError, StoreError):  # not begun, or gone since
                if attempt := self.run(name).latest():
                    status = Status.RUNNING if claim.is_live(attempt) else Status.INTERRUPTED
                    yield {**read_started(attempt), "status": status}

    def last_metrics(self, run_id: str) -> Row | None:
        """The last row of metrics.csv of a run under way, as text; None before its first evaluation."""
        for name in self.begun():
            if name.endswith(run_id[:8]) and (attempt := self.run(name).latest()):
                with contextlib.suppress(OSError), (attempt / "metrics.csv").open(encoding="utf-8") as file:
                    rows = deque(csv.DictReader(file), maxlen=1)
                    return rows[0] if rows else None
        return None

    # --- studies ----------------------------------------------------------------------------

    def read_study(self, name: str) -> StudyRecord | None:
        """What study.json holds; None where there is none. Raises StoreError if it can't be read."""
        return read_study(self.root / "studies" / name)

    def change_study(self, name: str, change: Callable[[StudyRecord | None], StudyRecord]) -> StudyRecord:
        """Make of the record what `change` makes of it, whoever else changes it: see studies.change_study.

        Raises StoreError, also where its runs could not be written.
        """
        runs = self.root / "store"
        with explained(runs):
            runs.mkdir(parents=True, exist_ok=True)
        return change_study(self.root / "studies" / name, change)

    def study_names(self) -> list[str]:
        studies = self.root / "studies"
        return [name for name in names(studies) if (studies / name / "study.json").exists()]

    def study_rows(self, name: str) -> list[Row]:
        """The rows of one study, sorted by run_id. Runs that have not begun have none."""
        if self.read_study(name) is None:
            others = self.study_names()
            known = did_you_mean(name, others) if others else "; there are none yet"
            raise StoreError(f"{name}: no such study in {self.root / 'studies'}{known}")
        return self._members(name, self.rows())

    def results_path(self, study: str) -> Path:
        return self.root / "studies" / study / "results.csv"

    def write_results(self, study: str) -> Path:
        """Bring runs/results.csv and the study's own up to date; returns the path of the latter.

        What is written is looked at once more: so of two commands that end together the last one to write has
        seen what the other has made.
        """
        path, until = self.results_path(study), time.monotonic() + TABLES_S
        tables = self._tables(study)
        while True:
            for place, text in tables.items():
                write_atomically(place, text)
            if time.monotonic() > until:  # whoever goes on writes them again
                return path
            before, tables = tables, self._tables(study)
            if tables == before:
                return path

    def _tables(self, study: str) -> dict[Path, str]:
        rows = self.rows()
        members = self._members(study, rows)
        return {self.root / "results.csv": csv_text(rows), self.results_path(study): csv_text(members)}

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
