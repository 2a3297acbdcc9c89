"""A finding: what one contrast of a comparison came to. Every number and sentence of a result is made of
it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ablate.analysis import stats
from ablate.analysis.variants import Variant

BY_FLIPS = "by sign flips"


@dataclass(frozen=True, kw_only=True, eq=False)
class Finding:
    """The contrast variant − baseline, or a weighted sum of more variants, whose name says which.

    study: of the study that planned it; empty for an unplanned one. pairs: how many values pair, None where
    none do (Welch). diff, low, high, sd (of a difference): in the metric's unit, NaN if not known. level: of
    the interval. p: of no difference, by itself; p_adjusted: in its family and look. verdict: one of
    stats.VERDICTS; empty if there is nothing to judge. why: it has none, or is undecided. differs: the
    columns in which the two differ. same_class: whether both represent the same functions. look, last_look:
    of a study with looks, the number of seeds at which it stands, and at most. more_seeds: about how many
    more would decide it. unit: what is counted. weights, values, twin: (P,) and (P, S), of the variants in
    it, by unit; the last on validation.
    """

    name: str
    variant: Variant
    baseline: Variant
    study: str
    metric: str
    margin: float
    higher_is_better: bool | None
    pairs: int | None
    diff: float
    low: float
    high: float
    sd: float
    level: float
    p: float
    p_adjusted: float
    verdict: str
    why: str
    differs: str
    same_class: bool
    look: int | None
    last_look: int | None
    more_seeds: int | None
    unit: str
    weights: stats.Array = field(repr=False)
    values: stats.Array = field(repr=False)
    twin: stats.Array | None = field(repr=False)

    @property
    def is_tested(self) -> bool:
        return self.p == self.p and bool(self.verdict)

    @property
    def differences(self) -> stats.Array:
        """(S,) of each unit."""
        return np.sum(self.weights[:, None] * self.values, 0)

    @property
    def n(self) -> int:
        """The values of the variant."""
        return int(np.isfinite(self.values[self.weights > 0]).sum(1).min())

    @property
    def n_baseline(self) -> int:
        return int(np.isfinite(self.values[self.weights < 0]).sum(1).min())

    @property
    def both(self) -> tuple[Variant, Variant]:
        return self.variant, self.baseline

    @property
    def is_planned(self) -> bool:
        return bool(self.study)

    @property
    def is_sum(self) -> bool:
        """Whether more arms are in it than a variant and a baseline."""
        return len(self.weights) > 2 and not self.variant.difference

    @property
    def is_undecided(self) -> bool:
        return self.verdict == stats.UNDECIDED

    @property
    def seeds(self) -> int:
        """The number of pairs or, without pairs, that of the smaller of the two groups."""
        return min(self.n, self.n_baseline) if self.pairs is None else self.pairs

    @property
    def shared(self) -> list[str]:
        """The columns in which both have the same level, as far as there is one; none of a sum of arms."""
        if self.is_sum:
            return []
        apart = [*self.variant.difference, *self.variant.differing(self.baseline)]
        return [column for column, level in self.variant.levels.items() if level and column not in apart]

    def sides(self, terms: Mapping[str, str] | None = None) -> tuple[str, str]:
        """What tells the variant from its baseline, and the other way round; of a sum of arms the whole, and
        nothing. terms: words for levels, unless they would call both the same."""
        if self.is_sum:
            return self.name, ""
        apart = [*self.variant.difference, *self.variant.differing(self.baseline)]
        one, other = (side.label(apart, terms=terms or {}) for side in (self.variant, self.baseline))
        return (one, other) if one != other or not terms else self.sides()

    def otherwise(self) -> dict[str, bool]:
        """Whether other ways to judge it come to the same verdict: another split, one seed less, a test that
        takes no distribution for granted. Without those that can't tell: sign flips of a few seeds, or of
        what is not decided."""
        if self.pairs is None or not self.is_tested or self.is_undecided:
            return {}
        others = {f"without the farthest {self.unit}": stats.without_farthest(self.differences[None])}
        if self.twin is not None:
            others = {"on validation": np.sum(self.weights[:, None] * self.twin, 0)[None], **others}
        how = {"margin": self.margin, "higher_is_better": self.higher_is_better}
        same = {
            name: stats.judge(stats.paired(of), self.level, **how).verdict[0] == self.verdict
            for name, of in others.items()
        }
        p, least = stats.by_sign_flips(self.differences)
        if self.verdict in (stats.BETTER, stats.WORSE) and least < 1 - self.level:
            same[BY_FLIPS] = bool(p < 1 - self.level)
        return same
