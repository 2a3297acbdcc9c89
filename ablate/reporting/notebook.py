"""A comparison that displays itself, in a notebook and as text."""

from collections.abc import Sequence
from dataclasses import dataclass

from ablate.analysis.compare import Comparison
from ablate.phrases import cleaned
from ablate.reporting.answers import around
from ablate.reporting.cells import contrast_table
from ablate.reporting.html import comparison_html
from ablate.store.record import StudyRecord
from ablate.tables import render


@dataclass(frozen=True)
class ShownComparison(Comparison):
    """A comparison that displays its answer, its tables and its notes. answer: as lines. records: of its
    studies."""

    answer: list[str]
    records: Sequence[StudyRecord]

    def __repr__(self) -> str:
        """The text that `ablate compare` prints."""
        above, below = around(self, self.records)
        table = render(contrast_table(self), "table")
        return cleaned("\n".join([*above, "", table, *below]))

    def _repr_html_(self) -> str:
        return comparison_html(self, self.answer)
