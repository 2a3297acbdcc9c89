"""The one way from a target to rows: studies, whole stores, CSV files, runs, and tables that were loaded from
one of them."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from ablate.analysis.foreign import FILE, as_results, read_table
from ablate.analysis.stats import Array
from ablate.analysis.table_file import INPUT
from ablate.config.rules import ConfigError
from ablate.phrases import Note, advised, counted, first_few, lines_if
from ablate.printing import left_out
from ablate.store.columns import RESOURCE_COLUMNS, ROLE_COLUMNS
from ablate.store.frames import REHEARSAL, SIMULATED, frame, is_foreign
from ablate.store.record import NO_STUDY, StudyRecord
from ablate.store.run_files import read_started
from ablate.store.store import Store, read_study

PAGE = "report.html"
TABLES = (".csv", ".tsv", ".gz", ".json", ".jsonl", ".parquet")
RUN = "result.json"  # the file by which the directory of a run is known


@dataclass(frozen=True)
class Source:
    """A source of rows. directory: where its results are. store: where its runs are; None if unknown. study:
    its name; empty for a whole store, for a run, and for a table that is not of a study. table: the CSV file,
    if the target names one. run: the directory of the run, if it names one. stored: the record of the study,
    if there is one."""

    directory: Path
    store: Store | None
    study: str = ""
    table: Path | None = None
    run: Path | None = None
    stored: StudyRecord | None = None

    @property
    def name(self) -> str:
        return self.study or (self.table.stem if self.table else self.directory.resolve().name)

    @property
    def page(self) -> Path:
        """The default path of its report."""
        if self.table and self.table.is_file():
            return self.table.with_name(f"{self.table.stem}-{PAGE}")
        return self.directory / PAGE

    @cached_property
    def record(self) -> StudyRecord | None:
        """The record. What was typed names the store, if that is another than the current one."""
        if self.stored is None:
            return None
        typed = [*self.stored.typed]
        if typed and self.store and (root := self.store.root).resolve() != Store().root.resolve():
            typed += ["--runs", min(str(root), os.path.relpath(root), key=len)]
        return replace(self.stored, is_copy=self.store is None, typed=typed)


@dataclass(frozen=True)
class Results:
    """Loaded results. rows: one per run. sources: of all rows, none if it is not known. notes: lines on
    doubtful rows."""

    rows: pd.DataFrame
    sources: Sequence[Source]
    notes: list[Note]

    @property
    def records(self) -> list[StudyRecord]:
        """The records of the studies among the sources."""
        return [record for source in self.sources if (record := source.record)]

    @property
    def record(self) -> StudyRecord:
        """The record of the only study among the sources, or NO_STUDY."""
        return self.records[0] if len(self.records) == 1 else NO_STUDY

    @property
    def name(self) -> str:
        return self.sources[0].name if self.sources else "results"

    @property
    def page(self) -> Path:
        """The default path of their report."""
        return self.sources[0].page if self.sources else Path(PAGE)

    @cached_property
    def directories(self) -> dict[str, Path]:
        """The directories of the finished runs among the rows, by run_id, if a store has them: the one in the
        current directory, or those of the sources."""
        here, run_ids = Store(), self.rows["run_id"].dropna()
        others = (source.store for source in self.sources if source.store)
        stores = [here, *(store for store in others if store.root.absolute() != here.root.absolute())]
        return {run_id: at for store in stores for run_id, at in store.directories(run_ids).items()}


def load(targets: Sequence[str], finished: Sequence[str] = (), *, runs: bool = False) -> Results:
    """The rows of all targets; a run that is in several of them appears once.

    targets, runs: as of `find_source`; by default the store in the current directory. finished: as of
    `as_results`. Raises ConfigError.
    """
    sources = [find_source(target, runs=runs) for target in dict.fromkeys(targets)] or [
        Source(Store().root, Store())
    ]
    parts, notes = [], []
    for source in sources:
        rows, lines = _rows(source, finished)
        if len(sources) > 1 and source.table and is_foreign(rows) and FILE not in rows:
            rows[FILE] = str(source.table)
        parts.append(rows)
        notes += [*lines, *_without_plan(rows, source, str(source.table))]
    if not (kept := [part for part in parts if len(part)]):
        raise ConfigError("; ".join(left_out()) or no_runs(sources))
    own = np.concatenate([np.full(len(part), not is_foreign(part)) for part in kept])
    rows = _once(pd.concat(kept, ignore_index=True), own)
    return Results(rows, sources, [*_rehearsed(rows), *notes])


def no_runs(sources: Iterable[Source]) -> str:
    """A line on sources that have no runs, with the command of the first study, if that is known."""
    for record in filter(None, (source.record for source in sources)):
        if command := advised(record.words):
            return f"{record.name}: none of its runs has begun; `{command}` trains them"
    return "no runs yet; ablate run makes one"


def read(target: str | Path | pd.DataFrame, finished: Sequence[str] = ()) -> Results:
    """The rows of one target, as of `load`, or of a table from load or run, or a foreign one. Raises
    ConfigError.

    The source of a table is known from DataFrame.attrs.
    """
    if not isinstance(target, pd.DataFrame):
        return load([str(target)], finished)
    rows, lines = as_results(target, "rows", finished)
    source = find_source(of) if (of := target.attrs.get("target")) else None
    notes = [*_rehearsed(rows), *lines, *_without_plan(rows, source, "rows")]
    return Results(rows, [source] if source else [], notes)


def find_source(target: str, *, runs: bool = False) -> Source:
    """The source that a target names: a study by its name or directory, a store, or a CSV file, which belongs
    to a study if it is the results.csv beside a study.json. runs: whether it may also be a run, by a prefix
    of its id or name, or by its directory. Raises ConfigError."""
    path = Path(target)
    if runs and target not in Store().study_names() and ((path / RUN).is_file() or not path.exists()):
        run = Store().find(target)
        store = Store(run.parent.parent)
        return Source(store.root, store, run=run)
    path = path.parent if path.name == "study.json" and path.is_file() else path
    real = Path(os.path.realpath(path))
    if target == INPUT or path.is_fifo() or path.is_char_device():  # as <(…) gives one, to be read once
        return Source(Path(), None, table=path)
    if path.is_file():
        store = next((Store(above) for above in real.parents[:3] if (above / "store").is_dir()), None)
        is_study = real.name == "results.csv" and (real.parent / "study.json").is_file()
        study, stored = (real.parent.name, read_study(real.parent)) if is_study else ("", None)
        return Source(real.parent, store, study, path, stored=stored)
    if (path / "store").is_dir():
        return Source(path, Store(path))
    table = path / "results.csv"
    if (path / "study.json").is_file():
        store = Store(real.parent.parent) if (real.parent.parent / "store").is_dir() else None
        if not (store or table.is_file()):
            raise ConfigError(f"{path}: study.json without results.csv; copy both from runs/studies/NAME")
        return Source(path, store, real.name, stored=read_study(path))
    if len(path.parts) > 1 or path.suffix in TABLES:  # no name of a study
        way_out = f"; name a study in {Store().root}, or give the path of one"
        if path.is_dir():
            raise ConfigError(f"{path}: no study in this directory{way_out}")
        beside = [one.name for one in path.parent.glob("*")]
        if near := get_close_matches(path.name, beside, 1):
            way_out = f"; did you mean {path.with_name(near[0])}?"
        raise ConfigError(f"{path}: no such file or directory here{way_out}")
    directory = Store().study_directory(target)
    return Source(directory, Store(), target, stored=read_study(directory))


def _rows(source: Source, finished: Sequence[str]) -> tuple[pd.DataFrame, list[Note]]:
    if source.store and not source.table:
        rows = frame(source.store.rows(source.study or None))
        return (rows[rows["run_id"] == read_started(source.run)["run_id"]] if source.run else rows), []
    return read_table(source.table or source.directory / "results.csv", finished)


def _rehearsed(rows: pd.DataFrame) -> list[Note]:
    simulated = "processor" in rows and rows["processor"].eq(SIMULATED).all()
    return lines_if(simulated, Note(REHEARSAL, "doubt", REHEARSAL))


def _without_plan(rows: pd.DataFrame, source: Source | None, name: str) -> list[Note]:
    """A line on rows of studies whose declarations are not known, and on those that a study.json beside them
    does not list."""
    if source and source.record:
        count = int((~rows["run_id"].isin(source.record.runs)).sum())
        line, brief = f"{source.name}: {counted(count, 'row')} of no run that its study.json lists", ""
    else:
        studies = rows["study"].dropna().unique()
        is_of_none = is_foreign(rows) or (source and not (source.study or source.table))
        count, brief = 0 if is_of_none else len(studies), "rows without their study.json"
        line = f"{name}: without the study.json of {first_few(studies)}, so nothing counts as named"
        line = f"{line} beforehand: no contrast, metric or margin"
    return lines_if(count, Note(line, "doubt", brief))


def _once(rows: pd.DataFrame, own: Array) -> pd.DataFrame:
    """Each run of ablate's own (own: which rows are) once. If two results of a run differ, both stay, for the
    comparison to report. A run that has different roles in several studies loses them."""
    if not (rows["run_id"].duplicated() & own).any():
        return rows
    given = rows.columns[rows.notna().any()].difference(["study", *ROLE_COLUMNS])
    run = _texts(rows, given)
    as_noisy_as_their_machine = given.intersection([*RESOURCE_COLUMNS])
    run.loc[rows["run_id"].notna() & rows["fusion"].notna(), as_noisy_as_their_machine] = ""
    run = run.groupby([*run.columns], sort=False).ngroup()
    if (again := run.duplicated() & own).any():
        roles = _texts(rows, ROLE_COLUMNS).groupby(run).transform("nunique")
        rows.loc[(roles > 1).any(axis=1), [*ROLE_COLUMNS]] = None
    return rows[~again].reset_index(drop=True)


def _texts(rows: pd.DataFrame, columns: Iterable[str]) -> pd.DataFrame:
    return rows[[*columns]].astype(str).fillna("")
