"""A comparison that displays itself, in a notebook and as text."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from ablate.analysis.compare import Comparison
from ablate.phrases import cleaned
from ablate.reporting.answers import brief_lines
from ablate.reporting.cells import in_width, short_table
from ablate.reporting.html import comparison_html
from ablate.reporting.tables import render
from ablate.store.record import StudyRecord


@dataclass(frozen=True)
class ShownComparison(Comparison):
    """A comparison that displays its answer, its tables and its notes. answer: as lines. records: of its
    studies."""

    answer: list[str]
    records: Sequence[StudyRecord]

    def __repr__(self) -> str:
        """The text that `ablate compare` prints."""
        width = shutil.get_terminal_size().columns
        tuned = self.records[0].tuned_column if self.records else ""
        read = in_width(short_table(self, tuned), width)
        return cleaned("\n".join([*brief_lines(self, self.records, self.notes), "", render(read, "table")]))

    def _repr_html_(self) -> str:
        return comparison_html(self, self.answer)
