"""How the difference of two methods depends on the size of a model, and what follows for a larger model.

A ladder measures the same V variants on R rungs: sizes N, each with seeds of its own. Three forms of a
difference are considered, each linear once the exponent is known:

    power     L_v = E + A_v N^−α, E and α shared by all variants, so that the difference is ΔA·N^−α
    constant  Δ
    log       a + b·ln N, which may cross zero

A forecast is a mixture of the three, weighted by how well each, fitted on the lower rungs, predicted the next
one. No form is exact, so weights measure fitness for a forecast, not truth. Arrays in, numbers out; no files,
no tables, no torch. SciPy is imported only where it is used.

Shapes: R rungs, V variants, S seeds of a rung, K contrasts, F forms, M draws, G exponents tried. Losses: lower
is better. Differences are variant − baseline, in nats. Every contrast has at least two pairs on each rung.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ablate.analysis.stats import Array, moments

Pairs = Sequence[tuple[int, int]]  # the rows of variant and baseline

FORMS = ("power", "constant", "log")
FEWEST = 4  # rungs needed to fit an exponent or to weigh forms
EXPONENTS = np.geomspace(0.02, 3.0, 150)
DRAWS = 4_000
NOISE_RUNGS = 2  # the last ones, whose noise is taken for the next


@dataclass(frozen=True)
class Rungs:
    """Measured rungs. sizes: (R,) parameters without embeddings, ascending. losses: for each rung (V, S),
    paired by seed; NaN for a missing one."""

    sizes: Array
    losses: Sequence[Array]

    def up_to(self, count: int) -> "Rungs":
        """The lowest `count` rungs."""
        return Rungs(self.sizes[:count], self.losses[:count])


@dataclass(frozen=True)
class Means:
    """Of each row and rung (X, R): the mean over seeds, the standard deviation, the seeds."""

    n: Array
    mean: Array
    sd: Array


@dataclass(frozen=True)
class Forecast:
    """(K,) the median and the limits of a difference that is yet to be seen, and the weights of the forms
    (K, F)."""

    centre: Array
    low: Array
    high: Array
    weights: Array


def differences(rungs: Rungs, pairs: Pairs) -> list[Array]:
    """For each rung (K, S)."""
    one, base = np.array(pairs, int).reshape(-1, 2).T
    return [loss_VS[one] - loss_VS[base] for loss_VS in rungs.losses]


def forecast(
    rungs: Rungs, pairs: Pairs, size: float, seeds: int, *, level: float = 0.9, draws: int = DRAWS
) -> Forecast:
    difference_RKS = differences(rungs, pairs)
    seen = means(difference_RKS)
    x_R = np.log(rungs.sizes / rungs.sizes[-1])
    x = np.log(size / rungs.sizes[-1])
    rng = np.random.default_rng(0)
    normal_MRS, chi_MRS = _randoms(rng, draws, rungs.losses)
    drawn_MKR = drawn(difference_RKS, normal_MRS, chi_MRS)
    precision_R = np.array([loss.shape[1] for loss in rungs.losses], float)
    has_exponent = len(x_R) >= FEWEST
    if has_exponent:
        level_MVR = drawn(rungs.losses, normal_MRS, chi_MRS)
        alpha_M = exponents(level_MVR, x_R, precision_R)
        alpha = exponents(means(rungs.losses).mean[None], x_R, precision_R)[0]
        weights_KF, miss_KF = predictive(seen, x_R, alpha)
    else:
        alpha_M = np.zeros(draws)
        weights_KF = np.tile([0, 0.5, 0.5], (len(pairs), 1))
    predicted_FMK = np.stack(
        [
            np.einsum("mr,mkr->mk", power(x_R, precision_R, x, alpha_M), drawn_MKR),
            np.einsum("mr,mkr->mk", power(x_R, precision_R, x, np.zeros(1)).repeat(draws, 0), drawn_MKR),
            drawn_MKR @ line(x_R, precision_R, x),
        ]
    )
    sd_K, df_K = noise_at(seen, x_R, x)
    t = rng.standard_normal((draws, len(pairs))) / np.sqrt(
        rng.chisquare(df_K, (draws, len(pairs))) / df_K
    )
    predicted_FMK = predicted_FMK + t * sd_K / np.sqrt(seeds)
    if MISFIT is not None and has_exponent:
        predicted_FMK = predicted_FMK + rng.standard_normal((draws, 1)) * miss_KF.T[:, None, :]
    tail = (1 - level) / 2
    low, centre, high = _quantiles(predicted_FMK, weights_KF, (tail, 0.5, 1 - tail))
    return Forecast(centre, low, high, weights_KF)


def means(values_RXS) -> Means:
    n, mean, sd = (np.stack(x, 1) for x in zip(*map(moments, values_RXS), strict=True))
    return Means(n, mean, sd)


TREND = 0.4
MISFIT = 6.25


def noise_at(seen, x_R, x):
    return noise_model(seen, x_R, x)[:, 0], (seen.n - 1).sum(1) / DFDIV


DFDIV = 2


def noise(seen: Means, last: int = NOISE_RUNGS):
    df = seen.n[:, -last:] - 1
    var = (df * seen.sd[:, -last:] ** 2).sum(1) / df.sum(1)
    return np.sqrt(var), df.sum(1)


def _randoms(rng, draws, losses):
    most = max(loss.shape[1] for loss in losses)
    R = len(losses)
    normal = rng.standard_normal((R, draws, most))
    chi = np.cumsum(rng.standard_normal((R, draws, most)) ** 2, 2)
    return normal, chi


def drawn(values_RXS, normal, chi):
    out = []
    for values, z, c in zip(values_RXS, normal, chi, strict=True):
        n, mean, _ = moments(values)
        residual = np.nan_to_num(values - mean[:, None])
        shift = z[:, : values.shape[1]] @ residual.T / np.sqrt(n * (n - 1))
        t = shift / np.sqrt(c[:, n - 2] / (n - 1))
        out.append(mean + t)
    return np.stack(out, 2)


def power(x_R, w_R, x, alpha_M):
    e_MR = np.exp(-alpha_M[:, None] * x_R)
    return np.exp(-alpha_M * x)[:, None] * w_R * e_MR / (w_R * e_MR**2).sum(1, keepdims=True)


def line(x_R, w_R, x):
    w = w_R / w_R.sum()
    middle = w @ x_R
    return w + w * (x_R - middle) * (x - middle) / (w @ (x_R - middle) ** 2)


def exponents(level_MVR, x_R, w_R):
    V = level_MVR.shape[1]
    w = w_R / w_R.sum()
    level_MVR = level_MVR - level_MVR.mean((1, 2), keepdims=True)
    e_GR = np.exp(-EXPONENTS[:, None] * x_R)
    e_GR /= np.sqrt((w * e_GR**2).sum(1, keepdims=True))
    p_GR = 1 - e_GR * (w * e_GR).sum(1, keepdims=True)
    along = level_MVR @ (w * e_GR).T  # M V G
    offset = level_MVR.sum(1) @ (w * p_GR).T  # M G
    explained = (along**2).sum(1) + offset**2 / (V * (w * p_GR**2).sum(1))
    best = np.clip(explained.argmax(1), 1, len(EXPONENTS) - 2)
    rows = np.arange(len(best))
    a, b, c = (explained[rows, best + i] for i in (-1, 0, 1))
    bend = a - 2 * b + c
    shift = np.where(bend < 0, (a - c) / 2 / np.where(bend < 0, bend, 1), 0)
    step = np.log(EXPONENTS[1] / EXPONENTS[0])
    return EXPONENTS[best] * np.exp(step * np.clip(shift, -1, 1))


POOLING = "each"


def predictive(seen, x_R, alpha):
    from scipy.stats import t

    score_KF, over = np.zeros((len(seen.mean), 3)), []
    df_K = (seen.n - 1).sum(1)
    sd_KR = noise_model(seen, x_R, x_R)
    for r in range(2, len(x_R)):
        w = (seen.n[:, :r]).max(0).astype(float)
        coefs = np.stack(
            [
                power(x_R[:r], w, x_R[r], np.array([alpha]))[0],
                power(x_R[:r], w, x_R[r], np.zeros(1))[0],
                line(x_R[:r], w, x_R[r]),
            ]
        )
        mu_KF = seen.mean[:, :r] @ coefs.T
        v_KR = sd_KR**2 / seen.n
        var = np.maximum(v_KR[:, :r] @ (coefs**2).T + v_KR[:, r, None], 1e-20)
        score_KF += t.logpdf(seen.mean[:, r, None], df_K[:, None], mu_KF, np.sqrt(var))
        e2 = (seen.mean[:, r, None] - mu_KF) ** 2
        over.append(np.where(e2 > MISFIT * var, e2 - var, 0))
    like = np.exp(score_KF - score_KF.max(1, keepdims=True))
    prior = np.full(3, 1 / 3)
    if POOLING == "sum":
        tot = score_KF.sum(0)
        like = np.tile(np.exp(tot - tot.max()), (len(like), 1))
    for _ in range(50 if POOLING == "em" else 0):
        w = like * prior
        w /= w.sum(1, keepdims=True)
        prior = (w.sum(0) + 1) / (len(w) + 3)
    w = like * prior
    return w / w.sum(1, keepdims=True), np.sqrt(np.mean(over, 0))


def noise_model(seen, x_R, at):
    from scipy.special import digamma

    df = seen.n - 1
    y = np.log(np.maximum(seen.sd**2, 1e-300)) - digamma(df / 2) + np.log(df / 2)
    w = df / 2
    xm = (w * x_R).sum(1, keepdims=True) / w.sum(1, keepdims=True)
    ym = (w * y).sum(1, keepdims=True) / w.sum(1, keepdims=True)
    discount = 1 + (len(y) - 1) * 0.25
    sxx = (w * (x_R - xm) ** 2).sum() / discount
    sxy = (w * (x_R - xm) * (y - ym)).sum() / discount
    slope = sxy / (sxx + 1 / TREND**2)
    var = (df * seen.sd**2 * np.exp(-slope * x_R)).sum(1) / df.sum(1)
    return np.sqrt(var[:, None] * np.exp(slope * np.atleast_1d(at)))


def _quantiles(values_FMK, weights_KF, at):
    F, M, K = values_FMK.shape
    flat = values_FMK.reshape(F * M, K)
    order = flat.argsort(0)
    mass = np.repeat(weights_KF.T / M, M, 0)
    out = []
    for k in range(K):
        cum = np.cumsum(mass[order[:, k], k])
        out.append(flat[order[np.minimum(np.searchsorted(cum, at), F * M - 1), k], k])
    return np.array(out).T


def as_below(rungs, pairs, seeds, *, level=0.9):
    from scipy import stats

    n, mean, sd = moments(differences(rungs, pairs)[-1])
    half = stats.t.isf((1 - level) / 2, n - 1) * sd * np.sqrt(1 / n + 1 / seeds)
    return mean - half, mean + half


def interval_score(low, high, seen, level):
    beyond = np.maximum(low - seen, 0) + np.maximum(seen - high, 0)
    return high - low + 2 / (1 - level) * beyond
