"""Results that display themselves in a notebook. Loads no torch."""

from dataclasses import dataclass

from ablate.analysis.compare import Comparison


@dataclass(frozen=True)
class ShownComparison(Comparison):
    """A comparison that displays its answer, its tables and its notes."""

    answer: list[str]

    def __repr__(self) -> str:
        """The text that `ablate compare` prints."""
        from ablate.reporting import words
        from ablate.reporting.tables import render

        blocks = [
            f"{words.caption(self, family)}\n{render(words.for_reading(self, family), 'table')}"
            for family in self.families
        ]
        return "\n".join([*self.answer, *blocks, *self.notes])

    def _repr_html_(self) -> str:
        from ablate.reporting.html import comparison_html

        return comparison_html(self, self.answer)
