"""Forecasts of a difference between two methods at a larger size, from a ladder of smaller ones.

A difference is taken to be constant, or a line in the logarithm of the number of parameters, which may cross
zero. Each is fitted to the lower rungs, and both count half. The interval is for the mean difference that
will be observed, so it includes the noise of the seeds at that size. Nothing says that a form goes on to hold
at a larger size: docs/scale.md has simulations in which neither does. Arrays in, numbers out; no files, no
tables, no torch. SciPy is imported only where it is used.

Shapes: those of rungs.py, F forms, M draws. x is ln N − ln N of the highest rung.
"""

import functools
from collections.abc import Sequence

import numpy as np

from ablate.analysis import stats
from ablate.analysis.rungs import Estimates, Pairs, Rungs, Seen, noise_trend, seen
from ablate.analysis.stats import Array

DRAWS = 4_000


def forecast(
    rungs: Rungs, pairs: Pairs, size: float, seeds: int, *, level: float = 0.9, draws: int = DRAWS
) -> Estimates:
    """The forecast of the mean difference over so many paired seeds at a size that is not among the rungs;
    its value is the mean of what the forms predict. The draws are the same at every call, and for every
    contrast."""
    at = seen(rungs, pairs)
    x_R, x = np.log(rungs.sizes / rungs.sizes[-1]), np.log(size / rungs.sizes[-1])
    trend = noise_trend(at, x_R)
    variance_K, df_K = _pooled(at, trend, x_R)
    c_FR = coefficients(x_R, rungs.seeds() * np.exp(-trend * x_R), x)
    value_FMK = np.einsum("fr,mkr->fmk", c_FR, drawn(rungs.differences(pairs), draws))
    sd_K = np.sqrt(variance_K * np.exp(trend * x) / seeds)
    value_FMK += sd_K * np.stack([_student(draws, float(df)) for df in df_K], 1)
    tail = (1 - level) / 2
    low, high = np.quantile(value_FMK, (tail, 1 - tail), axis=(0, 1), method="inverted_cdf")
    return Estimates((at.mean @ c_FR.T).mean(1), low, high)


def coefficients(x_R: Array, weight_R: Array, x: float) -> Array:
    """(F, R): times the differences of the rungs, they give the value at x of each form, fitted by weighted
    least squares."""
    share_R = weight_R / weight_R.sum()
    from_R = x_R - share_R @ x_R
    return np.stack([share_R, share_R * (1 + from_R * (x - share_R @ x_R) / (share_R @ from_R**2))])


def drawn(values_RXS: Sequence[Array], draws: int) -> Array:
    """(M, X, R): draws of the means over seeds of X rows on each rung.

    A draw gives each seed of a rung one random weight, for all rows: paired variants stay paired, and a mean,
    or a mean difference, has its t distribution with n − 1 degrees of freedom.
    """
    of_rungs = []
    for rung, value_XS in enumerate(values_RXS):
        n, mean, _ = stats.moments(value_XS)
        weight_MS, squares_MS = _normal(draws, value_XS.shape[1], rung)
        shift_MX = weight_MS @ np.nan_to_num(value_XS - mean[:, None]).T
        of_rungs.append(mean + shift_MX / np.sqrt(n * squares_MS[:, n - 2]))
    return np.stack(of_rungs, 2)


# --- helpers ----------------------------------------------------------------------------------------


@functools.lru_cache(8)
def _normal(draws: int, seeds: int, rung: int) -> tuple[Array, Array]:
    """(M, S) a normal for each seed, and χ² of 1, 2, … S degrees of freedom."""
    normal_2MS = np.random.default_rng((0, rung)).standard_normal((2, draws, seeds))
    return normal_2MS[0], np.cumsum(normal_2MS[1] ** 2, 1)


@functools.lru_cache(8)
def _student(draws: int, df: float) -> Array:
    """(M,) of Student's t with so many degrees of freedom: its M quantiles, in random order."""
    from scipy.stats import t

    return t.ppf(np.random.default_rng((1, 2)).permutation((np.arange(draws) + 0.5) / draws), df)


def _pooled(at: Seen, trend: float, x_R: Array) -> tuple[Array, Array]:
    """(K,) the variance of a difference at x = 0, pooled over the rungs, and its degrees of freedom."""
    df_KR = at.n - 1
    return (df_KR * at.sd**2 * np.exp(-trend * x_R)).sum(1) / df_KR.sum(1), df_KR.sum(1)
