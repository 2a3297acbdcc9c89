"""The run store: the only reader and writer of the directory of results. Loads no torch.

runs/store/             the runs (run_folder), and signs of who trains them (lease)
runs/studies/<name>/    study.json, the record of a study; results.csv, its rows
runs/results.csv        the rows of all runs

All results.csv are derived from the runs. Damaged or edited runs are moved to runs/damaged/ and never read
again. Any number of processes, on any number of machines, may share a store (docs/reliability.md).
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ablate.config.rules import ConfigError, as_text, did_you_mean
from ablate.files.atomic import StoreError, explained, garbled, locked, names, read_json, write_atomically
from ablate.phrases import first_few
from ablate.store import lease
from ablate.store.columns import COLUMNS, CONFIG_COLUMNS, ROLE_COLUMNS, Row, Status, csv_text
from ablate.store.provenance import status_now
from ablate.store.record import Role, StudyRecord, as_plain, read_record
from ablate.store.rows import leaving_out, read_rows, short_id
from ablate.store.run_files import read_started
from ablate.store.run_folder import PART, RunFolder

# By which a table of any version is known.
FIRST_COLUMNS = ",".join(COLUMNS[:3]).encode()
REHEARSALS = "rehearsals"  # the directory of their stores, in that of results
ABLATE_RUNS = "ABLATE_RUNS"  # the environment variable with the directory of results


class Store:
    """The store in one directory, by default that of ABLATE_RUNS or, without it, runs/ in the current one."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or Path(os.path.expanduser(os.environ.get(ABLATE_RUNS) or "runs"))
        self.lock = self.root / "store" / ".lock"  # while study.json or a table is written

    # --- runs -------------------------------------------------------------------------------

    def run(self, name: str) -> RunFolder:
        return RunFolder(self.root, name)

    def finished(self) -> set[str]:
        """The names of the finished runs, from one listing of the directory."""
        return {name for name in names(self.root / "store") if not name.startswith(".")}

    def interrupted(self) -> set[str]:
        """The names of the runs that were interrupted: begun, but no process works on them."""
        return {name for name, attempt in self.attempts().items() if not lease.is_live(attempt)}

    def attempts(self) -> dict[str, Path]:
        """The latest attempt of each run that is under way or was interrupted, by name."""
        attempts: dict[str, Path] = {}
        for part in names(self.root / "store"):
            name = part[1 : -len(PART)]
            with leaving_out():
                if part == f".{name}{PART}" and (attempt := self.run(name).latest()):
                    attempts[name] = attempt
        return attempts

    def find(self, run: str) -> Path:
        """The directory of the one finished run whose name or id begins with `run`; or `run` itself,
        if it is the directory of one, in any store. Raises StoreError."""
        if os.path.isfile(Path(run) / "result.json"):
            return Path(run).resolve()
        return self.root / "store" / self.named(run, self.finished(), "finished run")

    def named(self, run: str, among: Iterable[str], what: str = "run") -> str:
        """The one of these names that `run` is a prefix of, or of whose id. what: they are. Raises
        StoreError."""
        if Path(run).resolve().parent == (self.root / "store").resolve():  # a path
            run = Path(run).name
        names = sorted(among) if run else []
        matches = [name for name in names if name.startswith(run)]
        if not matches:
            ids = {name: row["run_id"] for name, row in self.by_name().items()}
            matches = [name for name in names if ids.get(name, short_id(name)).startswith(run)]
        if len(matches) == 1:
            return matches[0]
        if not matches:
            raise StoreError(f"{run or 'RUN'}: no {what} begins with it; ablate runs lists them")
        rows, keys = self.by_name(), ("corpus", *CONFIG_COLUMNS)
        told = {name: [as_text(rows.get(name, {}).get(key)) for key in keys] for name in matches}
        apart = [at for at, levels in enumerate(zip(*told.values(), strict=True)) if len({*levels}) > 1][:2]
        each = [" ".join([name, *(f"{keys[at]}={of[at]}" for at in apart)]) for name, of in told.items()]
        raise StoreError(f"{run}: {len(matches)} runs begin with it; give more letters: {first_few(each)}")

    def directories(self, run_ids: Iterable[str]) -> dict[str, Path]:
        """The directories of those of these runs that are finished, by run_id."""
        store, wanted = self.root / "store", {*run_ids}
        found = {row["run_id"]: store / name for name, row in read_rows(store).items()}
        return {run_id: path for run_id, path in found.items() if run_id in wanted}

    def rows(self, study: str | None = None) -> list[Row]:
        """The rows of `by_name`."""
        return [*self.by_name(study).values()]

    def by_name(self, study: str | None = None) -> dict[str, Row]:
        """The rows of all runs, or of a study, by the name of their directories, sorted by run_id. The study
        column lists all studies of the run, or has that one; phase and role are empty if the studies disagree
        on them. Runs of a study that have not begun have none. Raises StoreError for a study that is none.

        A run that is being trained again is `running`; if the new attempt is interrupted, or just looks at
        it, the old result stays. Results of another version of the numerics or another torch are `stale`.
        """
        if study is not None:
            self.require_study(study)
        studies: dict[str, dict[str, Row]] = {}  # by run id
        for one, record in self.studies().items():
            for run_id, role in _roles(record).items():
                studies.setdefault(run_id, {})[one] = role
        rows: dict[str, Row] = {}
        attempts = self.attempts()
        for name, attempt in attempts.items():
            with leaving_out():
                status = Status.RUNNING if lease.is_live(attempt) else Status.INTERRUPTED
                rows[name] = {**read_started(attempt), "status": status}
        for name, row in read_rows(self.root / "store").items():
            if len(row["run_id"]) == len(short_id(name)):  # a damaged one: perhaps a study has the rest of it
                whole = [run_id for run_id in studies if run_id.startswith(row["run_id"])]
                row["run_id"] = whole[0] if len(whole) == 1 else row["run_id"]
            row["status"] = status_now(row)
            is_running = rows.get(name, row)["status"] == Status.RUNNING
            if not (is_running and (attempts[name] / "log.txt").exists()):
                rows[name] = row
        for row in rows.values():
            roles = studies.get(row["run_id"], {})
            first, *others = roles.values() or (_columns(None),)
            row |= first if all(role == first for role in others) else _columns(None)
            row |= {"study": " ".join(roles)}
        of_study = rows if study is None else self._members(study, rows)
        by_id = {row["run_id"]: (name, row) for name, row in of_study.items()}  # a copy of one counts once
        return dict(by_id[run_id] for run_id in sorted(by_id))

    def changed(self) -> dict[str, float]:
        """When each run last changed, in seconds since 1970, by the name of its directory."""
        files = {name: self.run(name).directory / "result.json" for name in self.finished()}
        files |= {name: attempt / "metrics.csv" for name, attempt in self.attempts().items()}
        times = {}
        for name, file in files.items():
            with contextlib.suppress(OSError):  # it may disappear at any time
                times[name] = file.stat().st_mtime
        return times

    def results(self) -> dict[str, Row]:
        """The rows of the finished runs by run_id, with the status that they ended with."""
        return {row["run_id"]: row for row in read_rows(self.root / "store").values()}

    # --- studies ----------------------------------------------------------------------------

    def read_study(self, name: str) -> StudyRecord | None:
        """The record in study.json; None if there is none. Raises StoreError if it can't be read."""
        return read_study(self.study_directory(name))

    def studies(self) -> dict[str, StudyRecord]:
        """The records of all studies by name, without those that can't be read (printing.left_out)."""
        records: dict[str, StudyRecord] = {}
        for name in self.study_names():
            with leaving_out():
                if record := self.read_study(name):
                    records[name] = record
        return records

    def change_study(self, name: str, change: Callable[[StudyRecord | None], StudyRecord]) -> StudyRecord:
        """Replace the record by change(record), while no other process changes one. Raises StoreError, and
        whatever `change` raises to refuse."""
        with locked(self.lock):
            before = self.read_study(name)
            after = change(before)
            if after != before:
                text = json.dumps(as_plain(after), indent=2, sort_keys=True)
                write_atomically(self.study_directory(name) / "study.json", f"{text}\n")
            return after

    def change_existing(self, name: str, change: Callable[[StudyRecord], StudyRecord]) -> StudyRecord:
        """As change_study, of a study that is there. Raises StoreError if it was deleted meanwhile, too."""

        def change_it(record: StudyRecord | None) -> StudyRecord:
            if record is None:
                raise StoreError(f"{name}: this study was deleted meanwhile; the same command begins it anew")
            return change(record)

        return self.change_study(name, change_it)

    def study_names(self) -> list[str]:
        studies = self.root / "studies"
        with leaving_out():
            return [name for name in names(studies) if os.path.exists(studies / name / "study.json")]
        return []

    def require_place(self, name: str) -> None:
        """Raises StoreError if a table that this study would write is somebody else's."""
        for table in (self.results_path(name), self.root / "results.csv"):
            _require_own_table(table)

    def require_study(self, name: str) -> None:
        """Raises StoreError if there is no study of this name."""
        if name not in (known := self.study_names()):
            others = did_you_mean(name, known) if known else "; there are none yet"
            raise StoreError(f"{name}: no such study in {self.root / 'studies'}{others}")

    def study_directory(self, name: str) -> Path:
        return self.root / "studies" / name

    def results_path(self, study: str) -> Path:
        return self.study_directory(study) / "results.csv"

    def write_results(self, study: str | None = None) -> Path:
        """Update results.csv of the store and, if one is given, of a study; returns the path of the last."""
        with locked(self.lock):  # so that the last to write has the results of all
            path, rows = self.root / "results.csv", self.by_name()
            tables = {path: rows}
            if study:
                path = self.results_path(study)
                tables[path] = self._members(study, rows)
            for table, of in tables.items():
                _require_own_table(table)
                write_atomically(table, csv_text(of.values()))
        return path

    def _members(self, study: str, rows: Mapping[str, Row]) -> dict[str, Row]:
        """The rows of a study, among these."""
        roles = _roles(self.read_study(study))
        of_study = {name: row for name, row in rows.items() if row["run_id"] in roles}
        return {name: {**row, **roles[row["run_id"]], "study": study} for name, row in of_study.items()}


def _require_own_table(path: Path) -> None:
    """Raises StoreError for a file that is no table of any ablate's, perhaps one that was cut off."""
    with explained(path), contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        if FIRST_COLUMNS.startswith(file.read(len(FIRST_COLUMNS))):
            return
        raise StoreError(
            f"{path}: not written by ablate, which would overwrite it; move it away, or name another"
            " directory with --runs"
        )


def _roles(record: StudyRecord | None) -> dict[str, Row]:
    """The role columns of each run of a study, by run_id."""
    return {run_id: _columns(record.roles.get(run_id)) for run_id in record.runs} if record else {}


def _columns(role: Role | None) -> Row:
    """A role as columns of results.csv."""
    return {column: getattr(role, column, None) for column in ROLE_COLUMNS}


def read_study(directory: Path) -> StudyRecord | None:
    """The record of the study in this directory; None if there is none. Raises StoreError if it can't be
    read."""
    path = directory / "study.json"
    try:
        plain = read_json(path, set())
    except FileNotFoundError:
        return None
    try:
        return read_record(plain)
    except ConfigError as error:
        raise garbled(path, str(error)) from error
