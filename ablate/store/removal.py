"""Remove runs and studies from the store. Loads no torch."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ablate.files.atomic import explained
from ablate.files.owned import remove_tree
from ablate.store.columns import Row, Status
from ablate.store.record import StudyRecord
from ablate.store.store import Store

UNFINISHED = (Status.FAILED, Status.INTERRUPTED)  # which a study trains anew if it is asked to


@dataclass(frozen=True)
class Removable:
    """A run that may be removed. users: the studies, and lists of single runs, that it is in."""

    name: str
    row: Row
    users: list[StudyRecord]

    @property
    def is_running(self) -> bool:
        return self.row["status"] == Status.RUNNING

    @property
    def needed_by(self) -> str:
        """What needs the run, in words; empty if nothing does."""
        studies = [record.name for record in self.users if not record.is_one_by_one]
        is_needed = studies and self.row["status"] not in UNFINISHED
        return "it is running" if self.is_running else f"it is in {', '.join(studies)}" if is_needed else ""


def removable(store: Store, rows: Mapping[str, Row]) -> list[Removable]:
    """These runs, by the names of their directories. Raises StoreError if a study can't be read, since that
    may need any of them."""
    records = [record for name in store.study_names() if (record := store.read_study(name))]
    users: dict[str, list[StudyRecord]] = {}
    for record in records:
        for run_id in record.runs:
            users.setdefault(run_id, []).append(record)
    return [Removable(name, row, users.get(row["run_id"], [])) for name, row in rows.items()]


def remove(store: Store, runs: Sequence[Removable], directory: Path | None = None) -> None:
    """Delete the runs with their results, attempts and weights. Lists of single runs forget them; in studies
    they count as not begun. directory: of a study, deleted after its runs with all in it; if that is cut off,
    the study is still there, to be deleted again. Raises ConfigError."""
    for run in runs:
        store.run(run.name).remove()
    gone = {run.row["run_id"] for run in runs}

    def without(record: StudyRecord) -> StudyRecord:
        return replace(record, runs=[run_id for run_id in record.runs if run_id not in gone])

    for study in {record.name for run in runs for record in run.users}:
        record = store.read_study(study)
        if record and record.is_one_by_one:
            store.change_existing(study, without)
        store.write_results(study)
    if directory is not None:
        with explained(directory), contextlib.suppress(FileNotFoundError):
            remove_tree(directory)
    store.write_results()
