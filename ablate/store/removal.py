"""Remove runs from the store. Loads no torch."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ablate.config.identity import short_id
from ablate.store.columns import Row, Status
from ablate.store.record import StudyRecord
from ablate.store.store import Store

PRUNABLE = (Status.FAILED, Status.INTERRUPTED, Status.STALE)


@dataclass(frozen=True)
class RemovalCandidate:
    """A run that may be removed. studies: those that need it, lists of single runs aside. size: of its files,
    in bytes."""

    name: str
    row: Row
    studies: list[str]
    size: int

    @property
    def needed_by(self) -> str:
        """What needs the run, in words; empty if nothing does."""
        if self.row["status"] == Status.RUNNING:
            return "it is running"
        return f"it is in {', '.join(self.studies)}" if self.studies else ""


def named(store: Store, runs: Sequence[str]) -> list[RemovalCandidate]:
    """The runs with these prefixes of ids or names, finished or not. Raises StoreError."""
    names = store.finished() | store.begun()
    return [*_candidates(store, dict.fromkeys(store.named(run, names) for run in runs))]


def prunable(store: Store) -> list[RemovalCandidate]:
    """The runs that failed, were interrupted or are stale, and that no study needs."""
    candidates = _candidates(store, sorted(store.finished() | store.begun()))
    return [run for run in candidates if run.row["status"] in PRUNABLE and not run.needed_by]


def remove(store: Store, runs: Sequence[RemovalCandidate]) -> None:
    """Delete the runs with their results, attempts and weights. Lists of single runs forget them; in studies
    they count as not begun. Raises StoreError."""
    for run in runs:
        store.run(run.name).remove()
    gone = {run.row["run_id"] for run in runs}

    def without(record: StudyRecord | None) -> StudyRecord:
        assert record is not None
        kept = [run_id for run_id in record.runs if run_id not in gone]
        return replace(record, runs=kept) if record.is_one_by_one else record

    for study in store.study_names():
        record = store.read_study(study)
        if record and gone & {*record.runs}:
            store.change_study(study, without)
            store.write_results(study)


def _candidates(store: Store, names: Iterable[str]) -> Iterator[RemovalCandidate]:
    rows = {row["run_id"][:8]: row for row in store.rows()}
    needed: dict[str, list[str]] = {}
    for study in store.study_names():
        record = store.read_study(study)
        for run_id in record.runs if record and not record.is_one_by_one else []:
            needed.setdefault(run_id, []).append(study)
    for name in names:
        if row := rows.get(short_id(name)):
            run = store.run(name)
            files = (path for at in (run.directory, run.attempts) for path in at.rglob("*"))
            size = sum(path.stat().st_size for path in files if path.is_file())
            yield RemovalCandidate(name, row, needed.get(row["run_id"], []), size)
