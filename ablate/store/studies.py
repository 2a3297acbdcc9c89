"""Read and change the records of studies, study.json. Loads no torch."""

from collections.abc import Callable
from pathlib import Path

from ablate.store.record import StudyRecord, as_plain, read_record
from ablate.store.versions import Content, Versions


def read_study(directory: Path) -> StudyRecord | None:
    """The record of the study in this directory; None if there is none. Raises StoreError if it can't be
    read."""
    return _versions(directory).read()


def change_study(directory: Path, change: Callable[[StudyRecord | None], StudyRecord]) -> StudyRecord:
    """Replace the record by change(record); `change` is called again if another command was faster. Raises
    StoreError, and whatever `change` raises to refuse."""
    after = _versions(directory).change(change)
    assert after is not None, "change never takes a record away"
    return after


def _versions(directory: Path) -> Versions[StudyRecord | None]:
    return Versions(directory / "study.json", _record, _plain)


def _record(content: Content | None) -> StudyRecord | None:
    return None if content is None else read_record(content)


def _plain(record: StudyRecord | None) -> Content:
    assert record is not None
    return as_plain(record)
