"""What the measured rungs of a ladder show: differences at each size, and their slopes.

A ladder trains the same variants at several sizes of the model, its rungs. Losses are paired by seed within a
rung, lower is better, and differences are variant − baseline. Arrays in, numbers out; no files, no tables, no
torch. SciPy is imported only where it is used.

Shapes: R rungs, V variants, S seeds of a rung, K contrasts; NaN for a missing seed. Every contrast has at
least two pairs on each rung.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ablate.analysis import stats
from ablate.analysis.stats import Array

Pairs = Sequence[tuple[int, int]]  # rows of variant and baseline

# Differences with one baseline correlate by about a half, their squares by a quarter.
SHARED = 0.25
TREND_SD = (
    0.6  # of γ of `noise_trend`, beforehand: noise of twice the parameters has 0.66 to 1.5 its variance
)


@dataclass(frozen=True)
class Rungs:
    """sizes: (R,) parameters without embeddings, ascending. losses: (V, S) for each rung; S may differ."""

    sizes: Array
    losses: Sequence[Array]

    def up_to(self, count: int) -> "Rungs":
        """The lowest `count` rungs."""
        return Rungs(self.sizes[:count], self.losses[:count])

    def differences(self, pairs: Pairs) -> list[Array]:
        """(K, S) for each rung."""
        one, base = np.array(pairs, int).reshape(-1, 2).T
        return [loss_VS[one] - loss_VS[base] for loss_VS in self.losses]

    def seeds(self) -> Array:
        """(R,) how many."""
        return np.array([loss_VS.shape[1] for loss_VS in self.losses])

    @property
    def rounding(self) -> float:
        """Below this, a standard deviation is that of rounding."""
        return 1e-12 * max(1.0, *(float(np.nanmax(np.abs(loss_VS))) for loss_VS in self.losses))


@dataclass(frozen=True)
class Seen:
    """(K, R) seeds, mean and standard deviation of each difference; sd is 0 where nothing scatters."""

    n: Array
    mean: Array
    sd: Array


@dataclass(frozen=True)
class Estimates:
    """(K,) values, and the limits of their intervals."""

    value: Array
    low: Array
    high: Array


def seen(rungs: Rungs, pairs: Pairs) -> Seen:
    of_rungs = [stats.moments(difference_KS) for difference_KS in rungs.differences(pairs)]
    n, mean, sd = (np.stack(values, 1) for values in zip(*of_rungs, strict=True))
    return Seen(n, mean, np.where(sd > rungs.rounding, sd, 0.0))


def noise_trend(at: Seen, x_R: Array) -> float:
    """γ, if the variance of all differences is proportional to exp(γ·x), x = ln N.

    By weighted regression of ln s² within each contrast (its mean and variance under normal noise: Bartlett
    and Kendall, 1946), shrunk toward 0 as by a normal prior with sd TREND_SD.
    """
    from scipy.special import digamma

    half_df = (at.n - 1) / 2
    weight = np.where(at.sd > 0, half_df, 0.0)
    log_variance = 2 * np.log(np.where(at.sd > 0, at.sd, 1.0)) - digamma(half_df) + np.log(half_df)
    total = np.maximum(weight.sum(1, keepdims=True), 1e-300)
    x_KR, y_KR = (
        v - (weight * v).sum(1, keepdims=True) / total
        for v in (np.broadcast_to(x_R, weight.shape), log_variance)
    )
    counted = weight / (1 + SHARED * (len(weight) - 1))
    return float((counted * x_KR * y_KR).sum() / ((counted * x_KR**2).sum() + TREND_SD**-2))


def slopes(rungs: Rungs, pairs: Pairs, *, level: float = 0.95) -> Estimates:
    """By how many nats each difference grows when ln N grows by 1, by least squares with rungs weighted by
    their seeds. The interval takes the noise of each rung by itself, with the degrees of freedom of Welch and
    Satterthwaite."""
    from scipy.stats import t

    at = seen(rungs, pairs)
    x_R, seeds_R = np.log(rungs.sizes), rungs.seeds()
    x_R = x_R - np.average(x_R, weights=seeds_R)
    coefficient_R = seeds_R * x_R / (seeds_R * x_R**2).sum()
    variance_KR = coefficient_R**2 * at.sd**2 / at.n
    df = variance_KR.sum(1) ** 2 / np.maximum((variance_KR**2 / (at.n - 1)).sum(1), 1e-300)
    slope, se = at.mean @ coefficient_R, np.sqrt(variance_KR.sum(1))
    half = t.isf((1 - level) / 2, np.maximum(df, 1)) * se
    return Estimates(slope, slope - half, slope + half)
