"""Detect seeds of two kinds: results of one variant in two groups, for which no interval is valid.

A small model learns to look back at some point of its training. Seeds in which that happens late, or never,
are of a different kind.
"""

import functools

import numpy as np

from ablate.analysis.stats import Array

FEWEST = 6  # seeds needed; with fewer, nearly any set of numbers has a gap
LEVEL = 0.99
DRAWS = 20_000
MOST = 256  # the most seeds to simulate; for more, the limit for this number is used


def two_kinds(values_S: Array) -> Array | None:
    """(S,) booleans: which results are in the smaller group, or in the upper one of two equal groups. None
    for fewer than FEWEST results, and if one normal distribution explains them. values_S: NaN for a missing
    seed.

    There are two kinds if the largest gap between neighbours, divided by the pooled standard deviation of
    both sides, is wider than in LEVEL of samples of the same size from one normal distribution.
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
    """For each of K ordered rows, the entry after which the widest gap lies, and that gap divided by the
    pooled standard deviation (S − 2 degrees of freedom) of both sides; NaN if all entries are equal."""
    K, S = ordered_KS.shape
    gaps = np.diff(ordered_KS)
    at = gaps.argmax(1)
    lower_KS = np.arange(S) <= at[:, None]
    within = sum(_squares(ordered_KS, side) for side in (lower_KS, ~lower_KS))
    widest = gaps[np.arange(K), at]
    alike = widest <= 1e-12 * np.abs(ordered_KS).max(1)  # equal up to rounding
    with np.errstate(divide="ignore", invalid="ignore"):
        return at, np.where(alike, np.nan, widest / np.sqrt(within / (S - 2)))


def _squares(values_KS: Array, chosen_KS: Array) -> Array:
    """For each row, the sum of squared deviations of the chosen entries from their mean."""
    count = chosen_KS.sum(1, keepdims=True)
    mean = np.where(chosen_KS, values_KS, 0).sum(1, keepdims=True) / count
    return (np.where(chosen_KS, values_KS - mean, 0) ** 2).sum(1)


@functools.cache
def limit(n: int) -> float:
    """The LEVEL quantile of the widest gap in DRAWS samples of n normal numbers."""
    if n > MOST:
        return limit(MOST)
    draws = np.random.default_rng(0).standard_normal((DRAWS, n))
    return float(np.quantile(widest_gap(np.sort(draws))[1], LEVEL))
