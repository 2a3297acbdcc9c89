"""A finding: what one contrast of a comparison came to. Every sentence about a result is made from it."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ablate.analysis import stats
from ablate.analysis.variant import Variant
from ablate.config.contrast import FEWEST

BEYOND = (stats.BETTER, stats.WORSE, stats.HIGHER, stats.LOWER)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The contrast variant − baseline.

    All other fields are columns of `Comparison.table`, of its unit and under its names. Numbers that are not
    known are NaN, whole numbers and words None.
    """

    variant: Variant
    baseline: Variant
    family: str
    metric: str
    margin: float
    n: int
    n_baseline: int | None
    pairs: int | None
    diff: float
    low: float
    high: float
    sd_diff: float
    p: float
    p_holm: float
    p_tost_holm: float
    ratio: float
    verdict: str | None
    why: str | None
    differs: str
    same_class: bool
    look: int | None
    last_look: int | None
    more_seeds: int | None

    @property
    def is_tested(self) -> bool:
        return self.p == self.p

    @property
    def is_primary(self) -> bool:
        return self.family == "primary"

    @property
    def is_undecided(self) -> bool:
        return self.verdict == stats.UNDECIDED

    @property
    def is_too_few(self) -> bool:
        """Whether it has no verdict as it has fewer seeds than one takes that no study named beforehand."""
        is_planned = self.family != "exploratory" or self.look is not None
        return self.is_undecided and self.is_tested and not is_planned and self.seeds < FEWEST

    @property
    def is_perhaps_within(self) -> bool:
        """Whether a decided difference may be within the margin, as its interval reaches into it."""
        return self.verdict in BEYOND and min(abs(self.low), abs(self.high)) < self.margin

    @property
    def seeds(self) -> int:
        """The number of pairs or, without pairs, that of the smaller of the two groups."""
        return min(self.n, self.n_baseline) if self.n_baseline is not None else self.pairs or 0

    @property
    def shared(self) -> list[str]:
        """The columns in which both have the same level, as far as there is one."""
        apart = self.variant.differing(self.baseline)
        return [column for column, level in self.variant.levels.items() if level and column not in apart]

    def sides(self, terms: Mapping[str, str] | None = None) -> tuple[str, str]:
        """What tells the variant from its baseline, and the other way round. terms: words for levels, unless
        they would call both the same."""
        apart = self.variant.differing(self.baseline)
        one, other = (side.label(apart, terms=terms or {}) for side in (self.variant, self.baseline))
        return (one, other) if one != other or not terms else self.sides()

    def without(self, column: str) -> "Finding":
        """The same finding, with variants that are not named by this column."""
        one, other = self.variant.without(column), self.baseline.without(column)
        return replace(self, variant=one, baseline=other)


FROM_TABLE = [
    field.name for field in dataclasses.fields(Finding) if field.name not in ("variant", "baseline")
]


def finding(row: Mapping[Any, Any], variants: Mapping[str, Variant]) -> Finding:
    """The finding in a row of a comparison's table. variants: by name."""
    values: dict[str, Any] = {name: None if row[name] is pd.NA else row[name] for name in FROM_TABLE}
    return Finding(variant=variants[row["variant"]], baseline=variants[row["baseline"]], **values)
