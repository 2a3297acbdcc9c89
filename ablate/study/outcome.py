"""The outcome of a command that trains runs."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from ablate.analysis.frames import frame
from ablate.config.rules import ConfigError
from ablate.store.store import Store
from ablate.study.estimate import Estimate


@dataclass(frozen=True)
class Outcome:
    """study: its name in the store. run_ids: of the runs asked for; finished_before: how many of them had
    finished earlier. remarks: lines on runs left out, and the closing lines of the study. refused: a line for
    each run that could not begin. left_at_work: the jobs that a command which does not wait has submitted.
    estimate: of a dry run, which writes and trains nothing."""

    study: str
    run_ids: Sequence[str] = ()
    finished_before: int = 0
    remarks: Sequence[str] = ()
    refused: Sequence[str] = ()
    left_at_work: str = ""
    estimate: Estimate | None = None

    def rows(self) -> pd.DataFrame:
        """One row for each run that was asked for and has begun, as in results.csv."""
        rows = Store().study_rows(self.study)
        return frame([row for row in rows if row["run_id"] in {*self.run_ids}])


@contextlib.contextmanager
def keeping_results(store: Store, study: str) -> Iterator[None]:
    """Update the CSV files at the end of the block, however it ends."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(ConfigError):  # report the error that ended the runs, not this one
            store.write_results(study)
        raise
    store.write_results(study)
