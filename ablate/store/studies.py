"""Read and change the records of studies, study.json. Loads no torch."""

from collections.abc import Callable
from pathlib import Path

from ablate.config.rules import ConfigError
from ablate.store.record import StudyRecord, as_plain, read_record
from ablate.store.run_files import garbled
from ablate.store.versions import Content, Versions


def read_study(directory: Path) -> StudyRecord | None:
    """The record of the study in this directory; None if there is none. Raises StoreError if it can't be
    read."""
    return _record(directory, _versions(directory).read())


def change_study(directory: Path, change: Callable[[StudyRecord | None], StudyRecord]) -> StudyRecord:
    """Replace the record by change(record); `change` is called again if another command was faster. Raises
    StoreError, and whatever `change` raises to refuse."""
    after: list[StudyRecord] = []

    def changed(plain: Content | None) -> Content | None:
        before = _record(directory, plain)
        after.append(change(before))
        return None if after[-1] == before else as_plain(after[-1])

    _versions(directory).change(changed)
    return after[-1]


def _versions(directory: Path) -> Versions:
    return Versions(directory / "study.json")


def _record(directory: Path, plain: Content | None) -> StudyRecord | None:
    try:
        return None if plain is None else read_record(plain)
    except ConfigError as error:
        raise garbled(directory / "study.json", str(error)) from error
