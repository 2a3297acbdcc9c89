"""Forecasts of a difference between two methods at a larger size, from a ladder of smaller ones.

A difference is taken to depend on the number of parameters N in one of three forms:

    power     ΔA·N^−α, since L_v = E + A_v·N^−α for each variant v, with E and α shared by all of them
    constant  a
    log       a + b·ln N, which may cross zero

Each form is fitted to the lower rungs, predicts the next one, and is weighed by the density of what was seen
there. The forecast is the mixture of the three by these weights. Its interval is for the mean difference that
will be observed, so it includes the noise of the seeds at that size. Nothing says that a form goes on to hold
at a larger size: docs/scale.md has simulations in which none does. Arrays in, numbers out; no files, no
tables, no torch. SciPy is imported only where it is used.

Shapes: those of rungs.py, F forms, M draws, G exponents tried. x is ln N − ln N of the highest rung.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ablate.analysis import stats
from ablate.analysis.rungs import Estimates, Pairs, Rungs, Seen, noise_trend, seen
from ablate.analysis.stats import Array

FORMS = ("power", "constant", "log")
FEWEST = 4  # rungs for an exponent, and for weights
DECADE = 10.0  # between the smallest and the largest size, for an exponent that is printed
EXPONENTS = np.geomspace(0.02, 3.0, 80)
DRAWS = 4_000
MISSED = 2.5  # standard errors, beyond which a form has missed a rung


@dataclass(frozen=True)
class Forecast:
    """The forecast of K mean differences yet to be observed. centre: (K,) the mean of what the forms predict,
    by their weights. low, high: (K,) the interval. weights: (K, F). exponent: α; NaN if none was fitted."""

    centre: Array
    low: Array
    high: Array
    weights: Array
    exponent: float


def forecast(
    rungs: Rungs, pairs: Pairs, size: float, seeds: int, *, level: float = 0.9, draws: int = DRAWS
) -> Forecast:
    """The forecast of the mean difference over so many paired seeds at a size that is not among the rungs.

    With fewer than FEWEST rungs there is no exponent: "constant" and "log" count half each. The draws are the
    same at every call, and for every contrast.
    """
    at = seen(rungs, pairs)
    x_R, x = np.log(rungs.sizes / rungs.sizes[-1]), np.log(size / rungs.sizes[-1])
    trend = noise_trend(at, x_R)
    weight_R = rungs.seeds() * np.exp(-trend * x_R)
    variance_K, df_K = _pooled(at, trend, x_R)
    if len(x_R) >= FEWEST:
        exponent = float(fit_power(rungs.levels()[None], x_R, weight_R)[0][0])
        alpha_M = fit_power(drawn(rungs.losses, draws), x_R, weight_R)[0]
        noise_KR = np.maximum(variance_K[:, None] * np.exp(trend * x_R) / at.n, 1e6 * rungs.rounding**2)
        weights_KF, missed_KF = weigh(at, noise_KR, x_R, weight_R, exponent)
    else:
        exponent, alpha_M = 0.0, np.zeros(draws)
        weights_KF, missed_KF = np.tile([0.0, 0.5, 0.5], (len(pairs), 1)), np.zeros((len(pairs), len(FORMS)))
    c_FMR = coefficients(x_R, weight_R, x, alpha_M)
    value_FMK = np.einsum("fmr,mkr->fmk", c_FMR, drawn(rungs.differences(pairs), draws))
    value_FMK += missed_KF.T[:, None] * _student(draws, np.inf, 1)[:, None]
    sd_K = np.sqrt(variance_K * np.exp(trend * x) / seeds)
    value_FMK += sd_K * np.stack([_student(draws, float(df), 2) for df in df_K], 1)
    low, high = _limits(value_FMK, weights_KF, level)
    best_FR = coefficients(x_R, weight_R, x, np.array([exponent]))[:, 0]
    centre = (weights_KF * (at.mean @ best_FR.T)).sum(1)
    return Forecast(centre, low, high, weights_KF, exponent or np.nan)


def coefficients(x_R: Array, weight_R: Array, x: float, alpha_M: Array) -> Array:
    """(F, M, R): times the differences of the rungs, they give the value at x of each form, fitted by
    weighted least squares with these exponents."""
    near_MR = np.exp(-alpha_M[:, None] * x_R)
    power_MR = np.exp(-alpha_M * x)[:, None] * weight_R * near_MR
    power_MR /= (weight_R * near_MR**2).sum(1, keepdims=True)
    share_R = weight_R / weight_R.sum()
    from_R = x_R - share_R @ x_R
    line_R = share_R * (1 + from_R * (x - share_R @ x_R) / (share_R @ from_R**2))
    return np.stack([power_MR, *(np.broadcast_to(c, power_MR.shape) for c in (share_R, line_R))])


def weigh(at: Seen, noise_KR: Array, x_R: Array, weight_R: Array, exponent: float) -> tuple[Array, Array]:
    """(K, F) the weight of each form; and what it missed, as a standard deviation that widens its forecast.

    Each rung from the third on is predicted from those below. A form's weight is the product of the densities
    of what was seen there. Where a form is off by more than MISSED standard errors, what noise leaves
    unexplained is what it missed. The exponent is that of all rungs: it comes from the levels of the losses.
    noise_KR: the variance of a mean difference, above 0.
    """
    from scipy.stats import t

    df_K = (at.n - 1).sum(1)
    density_KF, missed_KF = np.zeros((2, len(at.n), len(FORMS)))
    held_out = range(2, len(x_R))
    for r in held_out:
        c_FR = coefficients(x_R[:r], weight_R[:r], x_R[r], np.array([exponent]))[:, 0]
        off_KF = at.mean[:, r, None] - at.mean[:, :r] @ c_FR.T
        of_noise_KF = noise_KR[:, :r] @ (c_FR**2).T + noise_KR[:, r, None]
        se_KF = np.sqrt(of_noise_KF)
        density_KF += t.logpdf(off_KF / se_KF, df_K[:, None]) - np.log(se_KF)
        missed_KF += np.where(np.abs(off_KF) > MISSED * se_KF, off_KF**2 - of_noise_KF, 0) / len(held_out)
    weights_KF = np.exp(density_KF - density_KF.max(1, keepdims=True))
    return weights_KF / weights_KF.sum(1, keepdims=True), np.sqrt(missed_KF)


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


def fit_power(level_MVR: Array, x_R: Array, weight_R: Array) -> tuple[Array, Array]:
    """α (M,) and A (M, V) of L_v = E + A_v·exp(−α·x) by weighted least squares.

    All but α is linear, so that α is searched on EXPONENTS, and refined by a parabola through the best three.
    A is in nats at x = 0.
    """
    share_R = weight_R / weight_R.sum()

    def parts(alpha_XR: Array) -> tuple[Array, Array, Array]:
        """The form, scaled to length 1; what it leaves of a constant; the length of that."""
        form_XR = np.exp(-alpha_XR * x_R)
        form_XR /= np.sqrt((share_R * form_XR**2).sum(-1, keepdims=True))
        rest_XR = 1 - form_XR * (share_R * form_XR).sum(-1, keepdims=True)
        return form_XR, rest_XR, (share_R * rest_XR**2).sum(-1)

    V = level_MVR.shape[1]
    level_MVR = level_MVR - level_MVR.mean((1, 2), keepdims=True)
    form_GR, rest_GR, length_G = parts(EXPONENTS[:, None])
    explained_MG = ((level_MVR @ (share_R * form_GR).T) ** 2).sum(1)
    explained_MG += (level_MVR.sum(1) @ (share_R * rest_GR).T) ** 2 / (V * length_G)
    best = explained_MG.argmax(1)
    inner = np.clip(best, 1, len(EXPONENTS) - 2)
    left, middle, right = (explained_MG[np.arange(len(inner)), inner + step] for step in (-1, 0, 1))
    bend = np.minimum(left - 2 * middle + right, -1e-300)
    off = np.where(best == inner, (left - right) / 2 / bend, best - inner)
    alpha_M = EXPONENTS[inner] * (EXPONENTS[1] / EXPONENTS[0]) ** np.clip(off, -1, 1)
    form_MR, rest_MR, length_M = parts(alpha_M[:, None])
    E_M = np.einsum("mvr,mr->m", level_MVR, share_R * rest_MR) / (V * length_M)
    A_MV = np.einsum("mvr,mr->mv", level_MVR - E_M[:, None, None], share_R * form_MR)
    return alpha_M, A_MV * form_MR[:, -1:]


def parameter_ratio(
    rungs: Rungs, pairs: Pairs, *, level: float = 0.95, draws: int = DRAWS
) -> Estimates | None:
    """(A_v/A_b)^(−1/α), the equivalent-parameters ratio of variant v and baseline b, in the form "power".

    The baseline reaches at ratio·N parameters what the variant reaches at N: above 1, the variant is better.
    NaN if a fit gives no ratio. None with fewer than FEWEST sizes, or with less than a DECADE between the
    smallest and the largest, which fix no exponent.
    """
    x_R = np.log(rungs.sizes / rungs.sizes[-1])
    if len(x_R) < FEWEST or rungs.sizes[-1] < DECADE * rungs.sizes[0]:
        return None
    one, base = np.array(pairs, int).reshape(-1, 2).T
    weight_R = rungs.seeds() * np.exp(-noise_trend(seen(rungs, pairs), x_R) * x_R)

    def ratios(level_MVR: Array) -> Array:
        alpha_M, A_MV = fit_power(level_MVR, x_R, weight_R)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return (A_MV[:, one] / A_MV[:, base]) ** (-1 / alpha_M[:, None])

    tail = (1 - level) / 2
    low, high = np.quantile(ratios(drawn(rungs.losses, draws)), (tail, 1 - tail), axis=0)
    return Estimates(ratios(rungs.levels()[None])[0], low, high)


# --- helpers ----------------------------------------------------------------------------------------


@functools.lru_cache(8)
def _normal(draws: int, seeds: int, rung: int) -> tuple[Array, Array]:
    """(M, S) a normal for each seed, and χ² of 1, 2, … S degrees of freedom."""
    normal_2MS = np.random.default_rng((0, rung)).standard_normal((2, draws, seeds))
    return normal_2MS[0], np.cumsum(normal_2MS[1] ** 2, 1)


@functools.lru_cache(8)
def _student(draws: int, df: float, stream: int) -> Array:
    """(M,) of Student's t with so many degrees of freedom: its M quantiles, in random order."""
    from scipy.stats import t

    return t.ppf(np.random.default_rng((1, stream)).permutation((np.arange(draws) + 0.5) / draws), df)


def _pooled(at: Seen, trend: float, x_R: Array) -> tuple[Array, Array]:
    """(K,) the variance of a difference at x = 0, pooled over the rungs, and its degrees of freedom."""
    df_KR = at.n - 1
    return (df_KR * at.sd**2 * np.exp(-trend * x_R)).sum(1) / df_KR.sum(1), df_KR.sum(1)


def _limits(value_FMK: Array, weights_KF: Array, level: float) -> tuple[Array, Array]:
    """(K,) each: between them lies the mixture of F samples with probability `level`, and as much below as
    above."""
    M, K = value_FMK.shape[1:]
    tail, limits = (1 - level) / 2, np.empty((2, K))
    for k in range(K):
        value_N = value_FMK[:, :, k].ravel()
        order_N = value_N.argsort()
        below_N = np.repeat(weights_KF[k], M)[order_N].cumsum()
        limits[:, k] = value_N[order_N][np.searchsorted(below_N, np.array([tail, 1 - tail]) * below_N[-1])]
    return limits[0], limits[1]
