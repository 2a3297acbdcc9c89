"""Where rows come from: studies, whole stores, CSV files, and tables that were loaded from one of them."""

import contextlib
import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from ablate.analysis.frames import as_results, frame, read_table
from ablate.config.rules import ConfigError
from ablate.phrases import only_if, some
from ablate.store.columns import MEASURED_COLUMNS, ROLE_COLUMNS
from ablate.store.record import StudyRecord
from ablate.store.store import Store
from ablate.store.studies import read_study


@dataclass(frozen=True)
class Source:
    """What a target names. directory: where its results stand. store: where its runs lie; None if nobody
    knows. study: its name, empty for a whole store and for a table of no study. table: a CSV file, whose rows
    are as it says."""

    directory: Path
    store: Store | None
    study: str = ""
    table: Path | None = None

    @property
    def name(self) -> str:
        return self.study or (self.table.stem if self.table else self.directory.resolve().name)

    @cached_property
    def record(self) -> StudyRecord | None:
        """Of a study; None where it has none."""
        return read_study(self.directory) if self.study else None


@dataclass(frozen=True)
class Results:
    """rows: one a run. sources: of all of them. notes: a line on whatever is in doubt."""

    rows: pd.DataFrame
    sources: Sequence[Source]
    notes: list[str]

    @property
    def records(self) -> list[StudyRecord]:
        """Of the studies among the sources."""
        return [record for source in self.sources if (record := source.record)]

    @property
    def stores(self) -> list[Store]:
        """Where the runs may lie, the store below this directory first."""
        return [Store(), *(source.store for source in self.sources if source.store)]

    @property
    def directories(self) -> dict[str, Path]:
        """Of the finished runs among the rows that lie in one of the stores, by run_id."""
        run_ids = self.rows["run_id"].dropna()
        return {run_id: at for store in self.stores for run_id, at in store.directories(run_ids).items()}


def load(targets: Sequence[str]) -> Results:
    """The rows of all targets, a run that stands in several of them once.

    targets: studies by name or directory, stores, or CSV files with the columns of results.csv; without any,
    the store below this directory. Raises ConfigError.
    """
    sources = [find_source(target) for target in targets] or [Source(Store().root, Store())]
    parts, notes = [], []
    for source in sources:
        rows, lines = _rows(source)
        parts.append(rows)
        notes += [*lines, *_without_plan(rows, source, str(source.table))]
    rows = pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)
    if rows.empty:
        raise ConfigError("no runs yet; ablate run makes one")
    return Results(_once(rows), sources, notes)


def recall(rows: pd.DataFrame) -> Results:
    """A table that load or run gave, or anybody's, with what is known of its origin. Raises ConfigError.

    A merge drops DataFrame.attrs; the columns study and run_id stay.
    """
    rows = as_results(rows, "rows")
    source = find_source(rows.attrs["target"]) if "target" in rows.attrs else _remembered(rows)
    return Results(rows, [source] if source else [], _without_plan(rows, source, "rows"))


def find_source(target: str) -> Source:
    """A CSV file is of the study beside whose study.json it stands as results.csv."""
    path = Path(target)
    real = Path(os.path.realpath(path))
    if path.is_file():
        store = next((Store(above) for above in real.parents[:3] if (above / "store").is_dir()), None)
        is_study = real.name == "results.csv" and (real.parent / "study.json").is_file()
        return Source(real.parent, store, real.parent.name if is_study else "", path)
    if (path / "store").is_dir():
        return Source(path, Store(path))
    if (path / "study.json").is_file():
        return Source(path, Store(real.parent.parent), real.name)
    return _study(target)


def metrics(directories: Mapping[str, Path]) -> pd.DataFrame:
    """run_id, step, val_loss: metrics.csv of these runs; a file that can't be read is left out.

    directories: of the runs, by run_id, as Store.directories gives them.
    """
    found: list[tuple[str, int, float]] = []
    for run_id, directory in directories.items():
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            with (directory / "metrics.csv").open(encoding="utf-8", newline="") as file:
                rows = [(run_id, int(row["step"]), float(row["val_loss"])) for row in csv.DictReader(file)]
            found += rows
    return pd.DataFrame(found, columns=["run_id", "step", "val_loss"])


def _study(name: str) -> Source:
    """A study of the store below this directory."""
    store = Store()
    return Source(store.results_path(name).parent, store, name)


def _rows(source: Source) -> tuple[pd.DataFrame, list[str]]:
    if source.table:
        return read_table(source.table)
    assert source.store is not None, "only a table may be of no store"
    return frame(source.store.study_rows(source.study) if source.study else source.store.rows()), []


def _remembered(rows: pd.DataFrame) -> Source | None:
    """The study below this directory that all of these runs are of, if the columns still say so."""
    names = rows["study"].dropna().unique()
    if len(names) != 1 or names[0] not in Store().study_names():
        return None
    source = _study(names[0])
    return source if source.record and {*rows["run_id"]} <= {*source.record.runs} else None


def _without_plan(rows: pd.DataFrame, source: Source | None, name: str) -> list[str]:
    """A line if rows are of studies, and nobody knows what those named beforehand."""
    known = source and (source.record or not (source.study or source.table))
    studies = rows["study"].dropna().unique()
    line = (
        f"{name}: without the study.json of {some(studies)}, so nothing counts as named beforehand:"
        " no contrast, metric or margin"
    )
    return only_if(len(studies) and not known, line)


def _once(rows: pd.DataFrame) -> pd.DataFrame:
    """Each run once; two results that differ stay, for the comparison to name. What a run is to one study, it
    is to that one alone: among several it is a result like any."""
    of_study = ["study", *ROLE_COLUMNS]
    run = _texts(rows, rows.columns.difference([*of_study, *MEASURED_COLUMNS]))
    run = run.groupby([*run.columns], sort=False).ngroup()
    if not run.is_unique:
        roles = _texts(rows, ROLE_COLUMNS).groupby(run).transform("nunique")
        rows.loc[(roles > 1).any(axis=1), [*ROLE_COLUMNS]] = None
    return rows[~run.duplicated()].reset_index(drop=True)


def _texts(rows: pd.DataFrame, columns: Iterable[str]) -> pd.DataFrame:
    return rows[[*columns]].astype(str).fillna("")
