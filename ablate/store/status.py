"""The status of a run. Loads no torch."""

from collections.abc import Mapping
from enum import StrEnum, auto
from typing import Any

from ablate.store.provenance import is_of_now


class Status(StrEnum):
    DONE = auto()
    FAILED = auto()
    DIVERGED = auto()
    INTERRUPTED = auto()  # the same command resumes it
    RUNNING = auto()
    STALE = auto()  # a result of other code or another torch, which may differ from today's


# A diverged run is a result too.
RESULTS = (Status.DONE, Status.DIVERGED, Status.STALE)


def status_now(row: Mapping[str, Any]) -> str:
    """The row's status, or `stale` if other code or another torch made the result."""
    return Status.STALE if row["status"] in RESULTS and not is_of_now(row) else row["status"]
