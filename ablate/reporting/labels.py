"""Short names of variants for charts, and the choice of variants that are drawn in colour."""

from collections.abc import Iterable

from ablate.analysis.compare import Comparison
from ablate.reporting.figures import COLORS


class Labels:
    """Names variants by the values of the varying columns. title: the names of these columns.

    without: a column to leave out. among: the variants in the chart; by default all.
    """

    def __init__(
        self, comparison: Comparison, *, without: str = "", among: Iterable[str] | None = None
    ) -> None:
        table = comparison.table
        if among is not None:
            table = table[table["variant"].isin({*among})]
        self.columns = [c for c in comparison.shown if c != without and table[c].nunique() > 1]
        self.title = self.join(*self.columns)
        self._values: dict[str, dict[str, str]] = {}
        kept = [c for c in comparison.shown if c != without]
        for row in comparison.table[kept].itertuples(index=False):
            values = dict(zip(kept, map(str, row), strict=True))
            name = " ".join(f"{c}={v}" for c, v in values.items())
            self._values[name] = {c: values[c] for c in self.columns}

    @property
    def variants(self) -> list[str]:
        """The variants of the comparison, the best of each family first."""
        return list(self._values)

    def __call__(self, variant: str) -> str:
        return self.join(*self._values[variant].values()) if variant in self._values else variant

    def full(self, variant: str) -> str:
        """A name such as `sum · heads 4`, for charts in which no axis says what the numbers are."""
        values = self._values.get(variant)
        if values is None:
            return variant
        return self.join(*(v if c == "fusion" else f"{c} {v}" for c, v in values.items()))

    @staticmethod
    def join(*parts: str) -> str:
        return " · ".join(part for part in parts if part)


def in_colour(comparison: Comparison) -> list[str]:
    """The variants drawn in colour: those of the primary contrasts, else the best."""
    primary = comparison.family("primary")
    table = primary if len(primary) else comparison.table
    return list(dict.fromkeys(table["variant"]))[: len(COLORS)]
