"""Where a report's rows come from: a study, a store, a CSV file, or a DataFrame. Loads no torch."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from ablate.analysis.load import load, recall
from ablate.store.record import StudyRecord
from ablate.store.store import Store

# Of rows that no study of this store asked for.
NOTHING_ASKED = StudyRecord(name="", kind="", factors={}, fixed={}, seeds=[], runs=[])


@dataclass(frozen=True)
class Subject:
    """rows: one a run. is_whole: whether they are all that there is, no reader's choice. record: of the
    study, NOTHING_ASKED where there is none. store: where the runs lie, if anywhere. page: where the report
    goes unless told otherwise. notes: what is in doubt of the rows."""

    name: str
    rows: pd.DataFrame
    is_whole: bool
    record: StudyRecord
    store: Store | None
    page: Path
    notes: list[str]

    @cached_property
    def directories(self) -> dict[str, Path]:
        """Of the finished runs among the rows, by run_id."""
        return self.store.directories(self.rows["run_id"].dropna()) if self.store else {}


def find(target: str | Path | pd.DataFrame) -> Subject:
    """target: a study by name or directory, a store, a CSV file, or rows that ablate.load or ablate.run
    gave. Raises ConfigError."""
    is_whole = not isinstance(target, pd.DataFrame)
    results = load([str(target)]) if is_whole else recall(target)
    if not results.sources:
        name, record, store, page = "results", None, None, Path("report.html")
    else:
        (source,) = results.sources
        name, record, store, table = source.name, source.record, source.store, source.table
        page = table.with_name(f"{table.stem}-report.html") if table else source.directory / "report.html"
    return Subject(name, results.rows, is_whole, record or NOTHING_ASKED, store, page, results.notes)
