"""Where a report's rows come from: a study, a store, a CSV file, or a DataFrame. Loads no torch."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from ablate.analysis.load import load, recall
from ablate.store.record import StudyRecord
from ablate.store.store import Store

# The record for rows that belong to no known study.
NOTHING_ASKED = StudyRecord(name="", kind="", factors={}, fixed={}, seeds=[], runs=[])


@dataclass(frozen=True)
class Subject:
    """The subject of a report. rows: one per run. is_whole: whether these are all rows, not a user's
    selection. record: of the study, or NOTHING_ASKED. store: where the runs are, if known. page: the default
    path of the report. notes: lines on doubtful rows."""

    name: str
    rows: pd.DataFrame
    is_whole: bool
    record: StudyRecord
    store: Store | None
    page: Path
    notes: list[str]

    @cached_property
    def directories(self) -> dict[str, Path]:
        """The directories of the finished runs among the rows, by run_id."""
        return self.store.directories(self.rows["run_id"].dropna()) if self.store else {}


def find(target: str | Path | pd.DataFrame) -> Subject:
    """The subject that a target names: a study by name or directory, a store, a CSV file, or rows from
    ablate.load or ablate.run. Raises ConfigError."""
    is_whole = not isinstance(target, pd.DataFrame)
    results = load([str(target)]) if is_whole else recall(target)
    if not results.sources:
        name, record, store, page = "results", None, None, Path("report.html")
    else:
        (source,) = results.sources
        name, record, store = source.name, source.record, source.store
        page, table = source.directory / "report.html", source.table
        if table and not (is_whole and Path(str(target)).is_dir()):
            page = table.with_name(f"{table.stem}-report.html")
    return Subject(name, results.rows, is_whole, record or NOTHING_ASKED, store, page, results.notes)
