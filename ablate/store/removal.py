"""Remove runs and studies from the store. Loads no torch."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ablate.files.atomic import explained
from ablate.files.owned import remove_tree
from ablate.phrases import advised
from ablate.store.columns import Row, Status
from ablate.store.record import StudyRecord
from ablate.store.rows import is_run
from ablate.store.store import Store, StoreError

PRUNABLE = (Status.FAILED, Status.INTERRUPTED, Status.STALE)


@dataclass(frozen=True)
class RemovalCandidate:
    """A run that may be removed. studies: those that need it; lists: of single runs, that it is in. size: of
    its files, in bytes."""

    name: str
    row: Row
    studies: list[str]
    lists: list[str]
    size: int

    @property
    def is_running(self) -> bool:
        return self.row["status"] == Status.RUNNING

    @property
    def needed_by(self) -> str:
        """What needs the run, in words; empty if nothing does."""
        if self.is_running:
            return "it is running"
        return f"it is in {', '.join(self.studies)}" if self.studies else ""


def named(store: Store, runs: Sequence[str]) -> list[RemovalCandidate]:
    """The runs with these prefixes of ids or names, finished or not. Raises StoreError."""
    names, wanted = store.all_runs(), dict[str, None]()
    for run in runs:
        try:
            wanted[store.named(run, names)] = None
        except StoreError:
            if run not in store.study_names():
                raise
            command = advised(["ablate", "runs", "--delete-study", run])
            raise StoreError(f"{run}: a study; {command} deletes it") from None
    found = [*_candidates(store, wanted)]
    for name in wanted.keys() - {run.name for run in found}:
        raise StoreError(f"{store.root / 'store' / name}: not a run that ablate made, so it is not deleted")
    return found


def prunable(store: Store) -> list[RemovalCandidate]:
    """The runs that no study needs and that failed, were interrupted or are stale, or whose study is gone."""
    candidates = _candidates(store, sorted(store.all_runs()))
    return [
        run for run in candidates if not run.needed_by and (run.row["status"] in PRUNABLE or not run.lists)
    ]


def of_study(store: Store, study: str) -> tuple[list[RemovalCandidate], list[RemovalCandidate]]:
    """The runs that only this study has, and those that others have too. Raises StoreError."""
    store.require_study(study)
    own: list[RemovalCandidate] = []
    shared: list[RemovalCandidate] = []
    for run in _candidates(store, sorted(store.all_runs())):
        if study in (users := [*run.studies, *run.lists]):
            (shared if len(users) > 1 else own).append(run)
    return own, shared


def remove(store: Store, runs: Sequence[RemovalCandidate]) -> None:
    """Delete the runs with their results, attempts and weights; damaged ones are put aside. Lists of single
    runs forget them; in studies they count as not begun. Raises ConfigError."""
    for run in runs:
        store.run(run.name).remove()
    gone = {run.row["run_id"] for run in runs}

    def without(record: StudyRecord) -> StudyRecord:
        return replace(record, runs=[run_id for run_id in record.runs if run_id not in gone])

    for study in store.study_names():
        record = store.read_study(study)
        if record and gone & {*record.runs}:
            if record.is_one_by_one:
                store.change_existing(study, without)
            store.write_results(study)
    store.write_results()


def remove_study(store: Store, study: str, runs: Sequence[RemovalCandidate]) -> None:
    """Delete these runs of a study, and then the directory of the study with all in it. If that is cut off,
    the study is still there, to be deleted again. Raises ConfigError."""
    remove(store, runs)
    directory = store.study_directory(study)
    with explained(directory), contextlib.suppress(FileNotFoundError):
        remove_tree(directory)
    store.write_results()


def _candidates(store: Store, names: Iterable[str]) -> Iterator[RemovalCandidate]:
    rows = store.by_name()
    needed: dict[str, list[str]] = {}
    listed: dict[str, list[str]] = {}
    for study in store.study_names():  # one that can't be read ends this: it may need any of these runs
        if record := store.read_study(study):
            for run_id in record.runs:
                (listed if record.is_one_by_one else needed).setdefault(run_id, []).append(study)
    for name in names:
        run, row = store.run(name), rows.get(name)
        if row and (is_run(run.directory) or run.attempts.exists()):
            run_id = row["run_id"]
            size = sum(map(_size, (run.directory, run.attempts)))
            yield RemovalCandidate(name, row, needed.get(run_id, []), listed.get(run_id, []), size)


def _size(directory: Path) -> int:
    """The bytes of all files below a directory, as far as another process does not remove some meanwhile."""
    size = 0
    with contextlib.suppress(FileNotFoundError):
        for path in directory.rglob("*"):
            size += path.lstat().st_size * path.is_file()
    return size
