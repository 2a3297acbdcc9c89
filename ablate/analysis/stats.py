"""Statistics of paired seeds, and of two groups: arrays in, arrays out. No files, no tables, no torch.

Shapes: K comparisons, S seeds; NaN for a missing seed. Differences are variant − baseline, in the metric's
unit (nats). SciPy is imported only where it is used, to keep `--help` fast.

Which claims hold jointly: one interval decides each verdict: the paired t-interval at 1 − α/k, where k is the
number of tested comparisons in the family (Bonferroni). With probability ≥ 1 − α all k intervals contain
their true differences, and then every statement read off them is true at once: better, worse, equivalent,
within the margin. So the family-wise error of *all* claims is at most α, whichever differences are zero or on
the margin. Holm's p is given as well: an interval without 0 has p < α/k, so each claim of a difference has a
Holm p < α. An interval within the margin has both one-sided p's < α/(2k), so each claim of equivalence has a
Holm-corrected TOST p < α. The converse fails by design: Holm passes the α of a rejected hypothesis on to the
others, but rejecting "no difference" leaves "not equivalent" of the same comparison open. Holm on the
differences and Holm on the equivalences may together err up to 2α.
"""

import functools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]

BETTER, BETTER_WITHIN = "better", "better but within the margin"
WORSE, WORSE_WITHIN = "worse", "worse but within the margin"
HIGHER, HIGHER_WITHIN = "higher", "higher but within the margin"  # of a metric without a known direction
LOWER, LOWER_WITHIN = "lower", "lower but within the margin"
EQUIVALENT, UNDECIDED = "equivalent", "undecided"
IDENTICAL = "identical"  # to the last digit, at every seed
WITHIN = (BETTER_WITHIN, WORSE_WITHIN, HIGHER_WITHIN, LOWER_WITHIN)
CLAIMS = (BETTER, WORSE, HIGHER, LOWER, *WITHIN)  # of a difference
# Verdicts withheld if the variant diverged on more seeds than its baseline; and if the baseline did on more.
CLAIMS_FOR = (BETTER, HIGHER, LOWER, *WITHIN, EQUIVALENT)
CLAIMS_AGAINST = (WORSE, HIGHER, LOWER, *WITHIN, EQUIVALENT)

MOST_SEEDS = 100_000
ROUNDING = 1e-12  # relative
UNCORRELATED = 0.2  # below it, pairing seeds gains nothing


def paired(
    variant_KS: Array,
    baseline_KS: Array,
    *,
    margin: float,
    alpha: float = 0.05,
    higher_is_better: bool | None = False,
    in_family: Array | None = None,
    share: float | Array = 1.0,
    least_sd: float | Array = 0.0,
    contrasts: int = 0,
    apart: Array | None = None,
) -> dict[str, Array]:
    """All statistics of K comparisons, with the tested ones corrected as one family.

    in_family: (K,) which comparisons may be tested. One with fewer than two pairs, or with constant
    differences, is never tested: it has no p and does not count in corrections. contrasts: how many the
    family has, if not as many as are tested. share: (K,) of α, what the look of each comparison spends
    (looks.py): its intervals are at that level, and its p's are divided by it. least_sd: (K,) which intervals
    and p's of pairs take at least. apart: (K,) which ones are of two groups without pairs: Welch's test and
    interval over all values. Returns arrays of K: n, diff, sd (of a difference), `family` (bool: tested),
    level, low and high (simultaneous, 1 − α/k), p, p_holm, p_tost,
    p_tost_holm, skew, correlation, p_welch, verdict.
    """
    from scipy import stats

    apart = np.zeros(len(variant_KS), bool) if apart is None else apart
    difference_KS = np.where(apart[:, None], np.nan, variant_KS - baseline_KS)
    n, diff, sd = moments(difference_KS)
    tested = scatters(variant_KS, baseline_KS)
    se, df = np.fmax(sd, least_sd) / np.sqrt(np.maximum(n, 1)), n - 1
    if apart.any():
        pairs = zip(two_groups(variant_KS, baseline_KS), (diff, sd, se, df), strict=True)
        diff, sd, se, df = (np.where(apart, of_groups, of_pairs) for of_groups, of_pairs in pairs)
        tested = np.where(apart, se > ROUNDING * scale(variant_KS, baseline_KS), tested)
    if in_family is not None:
        tested &= in_family
    k = contrasts or max(int(tested.sum()), 1)
    se, df = np.where(tested, se, np.nan), np.where(tested, df, 1)
    half = stats.t.isf(alpha * share / k / 2, df) * se
    p = np.minimum(2 * stats.t.sf(np.abs(diff / se), df) / share, 1.0)
    # TOST (Schuirmann, 1987): the larger of the p's against diff ≤ −margin and diff ≥ margin.
    p_tost = np.maximum(stats.t.sf((diff + margin) / se, df), stats.t.cdf((diff - margin) / se, df))
    p_tost = np.minimum(p_tost / share, 1.0)
    correlation, p_welch = _unpaired(variant_KS, baseline_KS, tested & ~apart)
    return {
        "n": n,
        "diff": diff,
        "sd": sd,
        "family": tested,
        "level": np.where(tested, 1 - alpha * share / k, np.nan),
        "low": diff - half,
        "high": diff + half,
        "p": p,
        "p_holm": holm(p),
        "p_tost": p_tost,
        "p_tost_holm": holm(p_tost),
        "skew": np.where(tested, skewness(difference_KS), np.nan),
        "correlation": correlation,
        "p_welch": p_welch,
        "verdict": verdicts(diff - half, diff + half, margin, higher_is_better),
    }


def verdicts(low: Array, high: Array, margin: float, higher_is_better: bool | None = False) -> Array:
    """One of six verdicts for each interval of variant − baseline; undecided if there is no interval (NaN).

    If 0 is outside: better or worse, "but within the margin" if the whole interval is; higher or lower if it
    is not known what is better (None). If 0 is inside: equivalent if the whole interval is within the margin,
    else undecided. With a margin of NaN, nothing is within it.
    """
    within = (low > -margin) & (high < margin)
    above, below = (BETTER_WITHIN, BETTER), (WORSE_WITHIN, WORSE)
    if higher_is_better is None:
        above, below = (HIGHER_WITHIN, HIGHER), (LOWER_WITHIN, LOWER)
    elif not higher_is_better:
        above, below = below, above
    return np.select(
        [(low > 0) & within, low > 0, (high < 0) & within, high < 0, within],
        [*above, *below, EQUIVALENT],
        UNDECIDED,
    )


def identical(variant_KS: Array, baseline_KS: Array) -> Array:
    """(K,) whether both sides agree to the last digit at two seeds or more, and at every one. Not if all
    values are one, as where both solve a task wholly."""
    both = ~np.isnan(variant_KS - baseline_KS)
    at_all = np.all(~both | (variant_KS == baseline_KS), 1)
    _, _, sd = moments(np.where(both, variant_KS, np.nan))
    return at_all & (sd > 0)


def two_groups(variant_KS: Array, baseline_KS: Array) -> tuple[Array, Array, Array, Array]:
    """Of two groups without pairs: the difference of the means, the standard deviation of a difference of two
    values, its standard error, and the degrees of freedom (Welch, 1947); NaN for a group of one."""
    (n, mean, sd), (m, base, sd_base) = moments(variant_KS), moments(baseline_KS)
    with np.errstate(divide="ignore", invalid="ignore"):
        a, b = sd**2 / n, sd_base**2 / m
        df = (a + b) ** 2 / (a**2 / (n - 1) + b**2 / (m - 1))
    return mean - base, np.hypot(sd, sd_base), np.sqrt(a + b), df


def withheld(verdict: Array, more: Array) -> Array:
    """The verdicts, but undecided where one would speak for the side that diverged on more seeds. more: on
    how many more seeds than its baseline the variant did; negative the other way round."""
    favours = (more > 0) & np.isin(verdict, CLAIMS_FOR) | (more < 0) & np.isin(verdict, CLAIMS_AGAINST)
    return np.where(favours, UNDECIDED, verdict)


def scatters(variant_KS: Array, baseline_KS: Array) -> Array:
    """(K,) whether there are two pairs, and not all with one difference: 2.3 − 2.1 and 2.4 − 2.2 differ only
    by rounding."""
    n, _, sd = moments(variant_KS - baseline_KS)
    return (n >= 2) & (sd > ROUNDING * scale(variant_KS, baseline_KS))


def scale(*values_KS: Array) -> Array:
    """(K,) the largest absolute value; 0 without values."""
    return np.nanmax(np.abs(np.concatenate([*values_KS, np.zeros((len(values_KS[0]), 1))], 1)), 1)


def skewness(values_KS: Array) -> Array:
    """m₃ / m₂^1.5 of each row; NaN below three values, or if they are equal."""
    n, mean, _ = moments(values_KS)
    centred = values_KS - mean[:, None]
    m2, m3 = (np.nansum(centred**power, 1) / np.maximum(n, 1) for power in (2, 3))
    return np.where(n >= 3, m3 / np.where(m2 > 0, m2, np.nan) ** 1.5, np.nan)


def moments(values_KS: Array) -> tuple[Array, Array, Array]:
    """n, mean and standard deviation (n − 1) of each row, ignoring NaN; NaN if there are too few values."""
    n = (~np.isnan(values_KS)).sum(1)
    mean = np.nansum(values_KS, 1) / np.where(n, n, np.nan)
    squares = np.nansum((values_KS - mean[:, None]) ** 2, 1)
    return n, mean, np.sqrt(squares / np.where(n > 1, n - 1, np.nan))


def holm(p: Array) -> Array:
    """p-values corrected by Holm (1979) over those that are not NaN; NaN stays NaN."""
    corrected, known = p.copy(), ~np.isnan(p)
    tested = p[known]
    smallest_first = np.argsort(tested)
    times = tested[smallest_first] * np.arange(tested.size, 0, -1)
    tested[smallest_first] = np.minimum(np.maximum.accumulate(times), 1)
    corrected[known] = tested
    return corrected


def t_interval(values_KS: Array, alpha: float = 0.05) -> tuple[Array, Array]:
    """The marginal 1 − α t-interval of the mean of each row."""
    from scipy import stats

    n, mean, sd = moments(values_KS)
    half = stats.t.isf(alpha / 2, np.maximum(n - 1, 1)) * sd / np.sqrt(np.maximum(n, 1))
    return mean - half, mean + half


# --- power ------------------------------------------------------------------------------------------


def power_difference(n: Array, difference: Array, sd: Array, alpha: float | Array) -> Array:
    """The probability that the two-sided paired t-test at α detects a true difference with n seeds.

    From the noncentral t distribution with n − 1 degrees of freedom, as statsmodels' TTestPower. Elementwise.
    """
    from scipy import stats

    df, shift = np.maximum(n - 1, 1), np.abs(difference) / sd * np.sqrt(n)
    critical = stats.t.isf(alpha / 2, df)
    return np.where(n >= 2, _nct_cdf(-critical, df, -shift) + _nct_cdf(-critical, df, shift), 0.0)


def power_equivalence(n: Array, difference: Array, sd: Array, alpha: float | Array, margin: float) -> Array:
    """The probability that the 1 − α interval lies within ±margin, given the true difference.

    P(high < margin) + P(low > −margin) − 1, which ignores intervals that reach beyond both ends: it is never
    too high, and exact where power is of interest. Elementwise.
    """
    from scipy import stats

    df, root = np.maximum(n - 1, 1), np.sqrt(n) / sd
    critical = stats.t.isf(alpha / 2, df)
    below = _nct_cdf(-critical, df, (difference - margin) * root)
    above = _nct_cdf(-critical, df, -(difference + margin) * root)
    return np.where(n >= 2, np.maximum(below + above - 1, 0.0), 0.0)


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


# --- bimodal seeds: results of one variant in two groups, for which no interval is valid ---------

# A small model learns to look back at some point of its training. Seeds in which that happens late, or never,
# are of a different kind.
FEWEST = 6  # seeds needed; with fewer, nearly any set of numbers has a gap
LEVEL = 0.99
DRAWS = 20_000
MOST = 256  # the most seeds to simulate; for more, the limit for this number is used


def bimodal(values_S: Array) -> Array | None:
    """(S,) booleans: which results are in the smaller group, or in the upper one of two equal groups. None
    for fewer than FEWEST results, and if one normal distribution explains them. values_S: NaN for a missing
    seed.

    Seeds are bimodal if the largest gap between neighbours, divided by the pooled standard deviation of
    both sides, is wider than in LEVEL of samples of the same size from one normal distribution.
    """
    finite = np.isfinite(values_S)
    if (n := int(finite.sum())) < FEWEST:
        return None
    ordered = np.sort(values_S[finite])
    at, ratio = widest_gap(ordered[None])
    if not ratio[0] > limit(n):
        return None
    upper = finite & (values_S > ordered[at[0]])
    return upper if 2 * upper.sum() <= n else finite & ~upper


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


# --- helpers ----------------------------------------------------------------------------------------


def _nct_cdf(at: Array, df: Array, shift: Array) -> Array:
    """P(T ≤ at) of the noncentral t. SciPy returns NaN far out in a tail, where this returns 0 or 1."""
    from scipy import stats

    probability = stats.nct.cdf(at, df, shift)
    return np.where(np.isnan(probability), shift < at, probability)


def _unpaired(variant_KS: Array, baseline_KS: Array, tested: Array) -> tuple[Array, Array]:
    """The correlation of the paired seeds, and Welch's p, which ignores the pairing, on the same seeds."""
    from scipy import stats

    both = ~np.isnan(variant_KS - baseline_KS) & tested[:, None]
    a, b = np.where(both, variant_KS, np.nan), np.where(both, baseline_KS, np.nan)
    (n, mean_a, sd_a), (_, mean_b, sd_b) = moments(a), moments(b)
    spread = np.where((n >= 3) & (sd_a > 0) & (sd_b > 0), sd_a * sd_b, np.nan)
    products = np.nansum((a - mean_a[:, None]) * (b - mean_b[:, None]), 1)
    diff, _, se, df = two_groups(a, b)
    return products / np.maximum(n - 1, 1) / spread, 2 * stats.t.sf(np.abs(diff / se), df)
