"""Seeds of two kinds: results of one variant that fall into two groups, over which no interval holds.

A small model learns to look back at some moment of its training. A seed at which that comes late, or not at
all, is of another kind than the rest.
"""

import functools

import numpy as np

from ablate.analysis.stats import Array

FEWEST = 6  # seeds; with fewer, nearly any set of numbers has a gap
LEVEL = 0.99
DRAWS = 20_000
MOST = 256  # seeds that are simulated; of more, the limit is that of so many


def two_kinds(values_S: Array) -> Array | None:
    """(S,) booleans: which results are of the smaller kind (of two equal ones, the upper one). None for fewer
    than FEWEST results, and where one kind explains them. NaN where a seed is missing.

    They are of two kinds where the largest gap between two neighbours is wider, over the pooled standard
    deviation on both its sides, than in LEVEL of as many draws from one normal distribution.
    """
    there = np.isfinite(values_S)
    if (n := int(there.sum())) < FEWEST:
        return None
    ordered = np.sort(values_S[there])
    at, ratio = widest_gap(ordered[None])
    if not ratio[0] > limit(n):
        return None
    upper = there & (values_S > ordered[at[0]])
    return upper if 2 * upper.sum() <= n else there & ~upper


def widest_gap(ordered_KS: Array) -> tuple[Array, Array]:
    """Of each row of K, ordered: after which entry its widest gap lies, and that gap over the pooled standard
    deviation (S − 2 degrees of freedom) within both sides; NaN where all are equal."""
    K, S = ordered_KS.shape
    gaps = np.diff(ordered_KS)
    at = gaps.argmax(1)
    lower_KS = np.arange(S) <= at[:, None]
    within = sum(_squares(ordered_KS, side) for side in (lower_KS, ~lower_KS))
    widest = gaps[np.arange(K), at]
    alike = widest <= 1e-12 * np.abs(ordered_KS).max(1)  # of 2.3 and 2.3, rounding alone
    with np.errstate(divide="ignore", invalid="ignore"):
        return at, np.where(alike, np.nan, widest / np.sqrt(within / (S - 2)))


def _squares(values_KS: Array, chosen_KS: Array) -> Array:
    """Of each row, the squared deviations of what is chosen from its mean, summed."""
    count = chosen_KS.sum(1, keepdims=True)
    mean = np.where(chosen_KS, values_KS, 0).sum(1, keepdims=True) / count
    return (np.where(chosen_KS, values_KS - mean, 0) ** 2).sum(1)


@functools.cache
def limit(n: int) -> float:
    """What LEVEL of DRAWS samples of n normal numbers stay below."""
    if n > MOST:
        return limit(MOST)
    draws = np.random.default_rng(0).standard_normal((DRAWS, n))
    return float(np.quantile(widest_gap(np.sort(draws))[1], LEVEL))
