"""Where a report's rows come from: a study, a store, a CSV file, or a DataFrame. Loads no torch."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pandas as pd

from ablate.analysis.load import load, records
from ablate.store.record import StudyRecord
from ablate.store.store import Store

# Of rows that no study of this store asked for.
NOTHING_ASKED = StudyRecord(name="", kind="", factors={}, fixed={}, seeds=[], runs=[])


@dataclass(frozen=True)
class Subject:
    """rows: one a run. record: of the study, NOTHING_ASKED where there is none. store: where the runs lie, if
    anywhere. page: where the report goes unless told otherwise."""

    name: str
    rows: pd.DataFrame
    record: StudyRecord
    store: Store | None
    page: Path

    @cached_property
    def directories(self) -> dict[str, Path]:
        """Of the finished runs among the rows, by run_id."""
        return self.store.directories(self.rows["run_id"].dropna()) if self.store else {}


def find(target: str | Path | pd.DataFrame) -> Subject:
    """target: a study by name or directory, a store, a CSV file, or rows that ablate.load or ablate.run
    gave. Raises ConfigError."""
    if isinstance(target, pd.DataFrame):
        origin = target.attrs.get("target")
        if origin is None:
            return Subject("results", target, NOTHING_ASKED, None, Path("report.html"))
        return replace(find(origin), rows=target)
    rows, found = load([str(target)]), records([str(target)])
    path = Path(target)
    if path.is_file():
        store = next((Store(p) for p in path.resolve().parents[:3] if (p / "store").is_dir()), None)
        return Subject(path.stem, rows, NOTHING_ASKED, store, path.with_name(f"{path.stem}-report.html"))
    if (path / "store").is_dir():
        return Subject(path.resolve().name, rows, NOTHING_ASKED, Store(path), path / "report.html")
    if (path / "study.json").is_file():
        store, directory = Store(path.resolve().parent.parent), path
    else:
        store = Store()
        directory = store.root / "studies" / str(target)
    return Subject(found[0].name, rows, found[0], store, directory / "report.html")
