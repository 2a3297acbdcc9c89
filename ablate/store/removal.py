"""Remove runs from the store. Loads no torch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ablate.files.atomic import StoreError
from ablate.phrases import some
from ablate.store.columns import Row
from ablate.store.record import StudyRecord
from ablate.store.status import Status
from ablate.store.store import Store

WORTHLESS = (Status.FAILED, Status.INTERRUPTED, Status.STALE)


@dataclass(frozen=True)
class Doomed:
    """A run to be removed. studies: those that need it, lists of single runs aside. size: of its files, in
    bytes."""

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


def named(store: Store, runs: Sequence[str]) -> list[Doomed]:
    """The runs with these prefixes of ids or names, finished or not. Raises StoreError."""
    names, found = sorted(store.finished() | store.begun()), []
    for run in runs:
        matching = [name for name in names if run and (name.startswith(run) or _short_id(name, run))]
        if len(matching) > 1:
            raise StoreError(f"{run}: {len(matching)} runs begin so; give more of it: {some(matching)}")
        if not matching:
            raise StoreError(f"{run or 'RUN'}: no run begins so; ablate runs shows what there is")
        found += matching
    return [*_described(store, [*dict.fromkeys(found)])]


def worthless(store: Store) -> list[Doomed]:
    """The runs that failed, were interrupted or are stale, and that no study needs."""
    found = _described(store, sorted(store.finished() | store.begun()))
    return [run for run in found if run.row["status"] in WORTHLESS and not run.needed_by]


def remove(store: Store, runs: Sequence[Doomed]) -> None:
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


def _described(store: Store, names: Sequence[str]) -> Iterator[Doomed]:
    rows = {row["run_id"][:8]: row for row in store.rows()}
    needed: dict[str, list[str]] = {}
    for study in store.study_names():
        record = store.read_study(study)
        for run_id in record.runs if record and not record.is_one_by_one else []:
            needed.setdefault(run_id, []).append(study)
    for name in names:
        if row := rows.get(name.rpartition("-")[2]):
            run = store.run(name)
            size = sum(map(_size, (run.directory, run.attempts)))
            yield Doomed(name, row, needed.get(row["run_id"], []), size)


def _short_id(name: str, run: str) -> bool:
    return name.rpartition("-")[2].startswith(run[:8])


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
