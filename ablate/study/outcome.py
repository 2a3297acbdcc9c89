"""What a command that trains runs comes to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ablate.store.store import Store

if TYPE_CHECKING:
    import pandas as pd

    from ablate.study.estimate import Estimate


@dataclass(frozen=True)
class Outcome:
    """The outcome of a command that trains runs.

    study: its name in the store. run_ids: of the runs asked for, in that order; finished_before: how many of
    them had finished earlier. remarks: on runs left out, and the closing lines of the study. refused: why
    runs could not begin. left_at_work: jobs submitted by a command that does not wait. estimate: of a dry
    run."""

    study: str
    run_ids: Sequence[str] = ()
    finished_before: int = 0
    remarks: Sequence[str] = ()
    refused: Sequence[str] = ()
    left_at_work: str = ""
    estimate: "Estimate | None" = None

    def rows(self) -> "pd.DataFrame":
        """One row for each run that was asked for and has begun, as in results.csv, in the order asked."""
        from ablate.analysis.frames import frame

        rows = {row["run_id"]: row for row in Store().study_rows(self.study)}
        return frame([rows[run_id] for run_id in self.run_ids if run_id in rows])
