"""What became of a run. Loads no torch."""

from collections.abc import Mapping
from enum import StrEnum, auto
from typing import Any


class Status(StrEnum):
    DONE = auto()
    FAILED = auto()
    DIVERGED = auto()
    INTERRUPTED = auto()  # cut off: the same command goes on from there
    RUNNING = auto()
    STALE = auto()  # a result, but not what the program of now would compute


# A diverged run is a result too.
RESULTS = (Status.DONE, Status.DIVERGED, Status.STALE)


def status_now(row: Mapping[str, Any], provenance: Mapping[str, str]) -> str:
    """The row's status, or `stale` for a result that another code or torch than `provenance` made."""
    changed = any(row.get(column) != provenance[column] for column in ("code", "torch"))
    return Status.STALE if row["status"] in RESULTS and changed else row["status"]
