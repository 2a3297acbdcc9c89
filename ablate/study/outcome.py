"""What became of a command."""

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
    """study: its name in the store. run_ids: of the runs that were asked for; finished_before: how many of
    them had been. remarks: what a study left out, and what it closes with. refused: a line for each run that
    could not begin. estimate: of a dry run, which notes nothing and makes no run."""

    study: str
    run_ids: Sequence[str] = ()
    finished_before: int = 0
    remarks: Sequence[str] = ()
    refused: Sequence[str] = ()
    estimate: Estimate | None = None

    def rows(self) -> pd.DataFrame:
        """The runs that were asked for and have begun, a row each, as in results.csv."""
        rows = Store().study_rows(self.study)
        return frame([row for row in rows if row["run_id"] in {*self.run_ids}])


@contextlib.contextmanager
def keeping_results(store: Store, study: str) -> Iterator[None]:
    """However the runs within end, the CSV files then tell what is finished."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(ConfigError):  # what ended the runs is what has to be said
            store.write_results(study)
        raise
    store.write_results(study)
