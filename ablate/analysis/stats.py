"""Statistics of differences: arrays in, arrays out. No files, no tables, no torch.

Shapes: K contrasts, S seeds; NaN for a missing seed. Differences are in the metric's unit. scipy.special is
imported only where it is used, to keep `--help` fast; scipy.stats, which takes half a second more, nowhere.

One interval decides a verdict (`judge`): the t-interval at 1 − α/k, where k is the number of contrasts of the
family (Bonferroni). With probability ≥ 1 − α all k intervals contain their true differences, and then every
statement read off them is true at once: better, worse, equivalent. So the family-wise error of *all* verdicts
is at most α, whichever differences are zero or on the margin.
"""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]

ALPHA = 0.05
POWER = 0.8  # the probability of detecting a difference, for which seeds are counted
BETTER, WORSE, EQUIVALENT, UNDECIDED = "better", "worse", "equivalent", "undecided"
VERDICTS = (BETTER, WORSE, EQUIVALENT, UNDECIDED)
HIGHER, LOWER = "higher", "lower"  # in words, of two differences, neither of which is better

MOST_SEEDS = 100_000
ROUNDING = 1e-12  # relative
FLIPS = 10_000  # draws of a test by sign flips, where there are more ways than that
NORMAL = 100  # more differences than this have nearly a normal distribution of flips


@dataclass(frozen=True)
class Estimate:
    """K estimated differences. n: of pairs or, of groups, of the smallest one. sd: of one difference. se, df:
    of the t-interval; se is NaN where there is nothing to estimate it from."""

    n: Array
    diff: Array
    sd: Array
    se: Array
    df: Array


@dataclass(frozen=True)
class Judged:
    """K judged differences. level: of the interval, low to high. p: two-sided, of no difference, by itself;
    p_adjusted: for its family and look, below ALPHA exactly if the interval excludes 0. verdict: one of
    VERDICTS. seeds, decided: of a study with looks (looks.stand)."""

    n: Array
    diff: Array
    sd: Array
    level: Array
    low: Array
    high: Array
    p: Array
    p_adjusted: Array
    verdict: Array
    seeds: Array
    decided: Array


def judge(
    differences: Estimate, level: ArrayLike, margin: float, higher_is_better: bool | None = False
) -> Judged:
    """Judge K differences, each by its interval at `level`, which is 1 − α/k in a family of k.

    equivalent: the interval lies within ±margin (never if that is NaN); else better or worse, if it excludes
    0; else undecided, also where there is no interval, or where it is not known what is better (None).
    """
    from scipy.special import stdtr, stdtrit

    diff, se, df = differences.diff, differences.se, np.maximum(differences.df, 1)
    spent = 1 - np.broadcast_to(np.asarray(level, float), np.shape(diff))
    half = -stdtrit(df, spent / 2) * se
    low, high = diff - half, diff + half
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * stdtr(df, -np.abs(diff / se))
    above, below = (BETTER, WORSE) if higher_is_better else (WORSE, BETTER)
    known = higher_is_better is not None
    cases = [(low > -margin) & (high < margin), (low > 0) & known, (high < 0) & known]
    verdict = np.select(cases, [EQUIVALENT, above, below], UNDECIDED)
    adjusted = np.minimum(p * ALPHA / spent, 1.0)
    of = (differences.n, diff, differences.sd, 1 - spent, low, high, p, adjusted, verdict)
    return Judged(*of, differences.n, verdict != UNDECIDED)


def paired(differences_KS: Array, scale: ArrayLike = 0.0) -> Estimate:
    """Of pairs. scale: (K,) the size of the values, whose rounding is no scatter: differences that are all
    the same otherwise have no standard error."""
    n, diff, sd = moments(differences_KS)
    se = np.where(sd > ROUNDING * np.asarray(scale, float), sd, np.nan) / np.sqrt(np.maximum(n, 1))
    return Estimate(n, diff, sd, se, n - 1.0)


def of_groups(weights_P: Array, values_PS: Array) -> Estimate:
    """Of one contrast of groups whose values do not pair (Welch, 1947)."""
    n, mean, sd = moments(values_PS)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = (weights_P * sd) ** 2 / n
        df = each.sum() ** 2 / np.sum(each**2 / (n - 1))
    root, sd = np.sqrt(each.sum()), np.sqrt(np.sum((weights_P * sd) ** 2))
    se = np.where(root > ROUNDING * np.abs(mean).max(), root, np.nan)
    return Estimate(n.min(), weights_P @ mean, sd, se, np.where(np.isfinite(df), df, 1))


def withheld(verdict: Array, more: Array) -> Array:
    """The verdicts, but undecided where one would speak for the side that diverged on more seeds. more: on
    how many more seeds than its baseline the variant did; negative the other way round."""
    favours = (more > 0) & np.isin(verdict, (BETTER, EQUIVALENT))
    favours |= (more < 0) & np.isin(verdict, (WORSE, EQUIVALENT))
    return np.where(favours, UNDECIDED, verdict)


def moments(values_KS: Array) -> tuple[Array, Array, Array]:
    """n, mean and standard deviation (n − 1) of each row, ignoring NaN; NaN if there are too few values."""
    n = (~np.isnan(values_KS)).sum(1)
    mean = np.nansum(values_KS, 1) / np.where(n, n, np.nan)
    return n, mean, np.sqrt(np.nansum((values_KS - mean[:, None]) ** 2, 1) / np.where(n > 1, n - 1, np.nan))


def half_width(n: Array, sd: Array, level: float = 1 - ALPHA) -> Array:
    """Half of the t-interval of a mean; NaN for one value."""
    from scipy.special import stdtrit

    return -stdtrit(np.maximum(n - 1, 1), (1 - level) / 2) * sd / np.sqrt(np.maximum(n, 1))


def without_farthest(differences_KS: Array) -> Array:
    """The differences without the one of each row that lies farthest from the mean of its row."""
    n, mean, _ = moments(differences_KS)
    away = np.where(np.isnan(differences_KS), -1.0, np.abs(differences_KS - mean[:, None]))
    kept = differences_KS.copy()
    kept[np.arange(len(kept)), away.argmax(1)] = np.nan
    return np.where(n[:, None] > 0, kept, np.nan)


def by_sign_flips(differences_S: Array) -> tuple[float, float]:
    """The two-sided p of no difference by flipping the signs of differences (Fisher, 1935), and the least p
    that so many can have: of all ways, of FLIPS of them, drawn, if those are more, or of the normal
    distribution that they come to, beyond NORMAL differences."""
    from scipy.special import erfc

    d = differences_S[~np.isnan(differences_S)]
    if len(d) > NORMAL:
        return float(erfc(abs(d.sum()) / np.sqrt(2 * (d**2).sum()))), 0.0
    flips = _flips(len(d))
    sums = np.abs(flips @ d)
    return float((sums >= sums[0] * (1 - 1e-9)).mean()), 2 / len(flips)


@functools.cache
def _flips(n: int) -> Array:
    """Ways to flip n signs, a row each, the first of which flips none."""
    if n <= np.log2(FLIPS):
        return 1.0 - 2 * (np.arange(2**n)[:, None] >> np.arange(n) & 1)
    flips = np.random.default_rng(0).choice([-1.0, 1.0], (FLIPS, n))
    flips[0] = 1
    return flips


def power_difference(n: Array, difference: Array, sd: Array, alpha: float | Array) -> Array:
    """The probability that the two-sided paired t-test at α detects a true difference with n seeds, as
    statsmodels' TTestPower has it. Elementwise."""
    return _one_sided(n, difference, sd, alpha, 0.0)


def power_equivalence(n: Array, difference: Array, sd: Array, alpha: float | Array, margin: float) -> Array:
    """The probability that the 1 − α interval lies within ±margin, given the true difference. It ignores
    intervals that reach beyond both ends: it is never too high, and exact where power is of interest.
    Elementwise."""
    return np.maximum(_one_sided(n, difference, sd, alpha, margin) - 1, 0.0)


def _one_sided(n: Array, difference: Array, sd: Array, alpha: float | Array, margin: float) -> Array:
    """P(high < margin) + P(low > −margin) of the 1 − α interval, by the noncentral t distribution with n − 1
    degrees of freedom; 0 below two seeds."""
    from scipy.special import stdtrit

    df, root = np.maximum(n - 1, 1), np.sqrt(n) / sd
    least = stdtrit(df, np.asarray(alpha) / 2)
    below = _nct_cdf(least, df, (difference - margin) * root)
    return np.where(n >= 2, below + _nct_cdf(least, df, -(difference + margin) * root), 0.0)


def seeds_to_claim(
    difference: ArrayLike, sd: ArrayLike, alpha: float | Array, *, power: float = 0.8, margin: float = 0.0
) -> Array:
    """The smallest n that gives a claim with this power: of a difference or, with a margin, of equivalence.

    The one that needs fewer seeds counts; inf beyond MOST_SEEDS. alpha: of one comparison (α/k in a family).
    Elementwise.
    """
    difference, sd = np.broadcast_arrays(np.asarray(difference, float), np.asarray(sd, float))

    def enough(n: Array) -> Array:
        reached = power_difference(n, difference, sd, alpha)
        if margin > 0:
            reached = np.maximum(reached, power_equivalence(n, difference, sd, alpha, margin))
        return reached >= power

    low, high = np.ones(difference.shape), np.full(difference.shape, float(MOST_SEEDS))
    possible = enough(high)
    while np.any(high - low > 1):
        middle = np.floor((low + high) / 2)
        reached = enough(middle)
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    return np.where(possible, high, np.inf)


def least_difference(n: ArrayLike, sd: ArrayLike, alpha: float | Array, *, power: float = 0.8) -> Array:
    """The smallest true difference that n seeds detect with this power; inf below two seeds. Elementwise."""
    n, sd = np.broadcast_arrays(np.asarray(n, float), np.asarray(sd, float))
    low, high = np.zeros(n.shape), 1e4 * sd
    for _ in range(60):
        middle = (low + high) / 2
        reached = power_difference(n, middle, sd, alpha) >= power
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    return np.where(n >= 2, high, np.inf)


# A small model learns to look back at some point of its training. Seeds in which that happens late, or never,
# are of a different kind.
FEWEST = 6  # seeds needed; with fewer, nearly any set of numbers has a gap
LEVEL = 0.99  # of all variants together
DRAWS = 20_000
MOST = 50  # the most seeds to simulate; for more, the limit for this number is used


def bimodal(values_S: Array, variants: int = 1) -> Array:
    """(S,) booleans: which results are in the smaller group, or in the upper one of two equal groups. None
    is, if there are fewer than FEWEST, or if one normal distribution explains them. values_S: NaN for a
    missing seed. variants: how many are looked at.

    Seeds are bimodal if the largest gap between neighbours, divided by the pooled standard deviation of
    both sides, is wider than in LEVEL of as many samples of the same size from one normal distribution.
    """
    finite = np.isfinite(values_S)
    if (n := int(finite.sum())) < FEWEST:
        return finite & False
    ordered = np.sort(values_S[finite])
    at, ratio = widest_gap(ordered[None])
    if not (ratio[0] > limit(n) and ratio[0] > limit(n, variants)):
        return finite & False
    upper = finite & (values_S > ordered[at[0]])
    return upper if 2 * upper.sum() <= n else finite & ~upper


def widest_gap(ordered_KS: Array) -> tuple[Array, Array]:
    """For each of K ordered rows, the entry after which the widest gap lies, and that gap divided by the
    pooled standard deviation (S − 2 degrees of freedom) of both sides; NaN if all entries are equal."""
    K, S = ordered_KS.shape
    gaps = np.diff(ordered_KS)
    at = gaps.argmax(1)
    lower_KS, within = np.arange(S) <= at[:, None], np.zeros(K)
    for side_KS in (lower_KS, ~lower_KS):
        mean = np.where(side_KS, ordered_KS, 0).sum(1, keepdims=True) / side_KS.sum(1, keepdims=True)
        within += (np.where(side_KS, ordered_KS - mean, 0) ** 2).sum(1)
    widest = gaps[np.arange(K), at]
    alike = widest <= 1e-12 * np.abs(ordered_KS).max(1)  # equal up to rounding
    with np.errstate(divide="ignore", invalid="ignore"):
        return at, np.where(alike, np.nan, widest / np.sqrt(within / (S - 2)))


@functools.cache
def limit(n: int, variants: int = 1) -> float:
    """What the widest gap of no sample exceeds in LEVEL of the draws of so many samples of n normal
    numbers."""
    gaps = _gaps(min(n, MOST), DRAWS * min(variants, 5))
    return float(np.quantile(gaps, LEVEL ** (1 / variants)))


@functools.cache
def _gaps(n: int, draws: int) -> Array:
    return widest_gap(np.sort(np.random.default_rng(0).standard_normal((draws, n))))[1]


def _nct_cdf(at: Array, df: Array, shift: Array) -> Array:
    """P(T ≤ at) of the noncentral t. SciPy returns NaN far out in a tail, where this returns 0 or 1."""
    from scipy.special import nctdtr

    probability = nctdtr(df, shift, at)
    return np.where(np.isnan(probability), shift < at, probability)
