"""The minimum of a loss curve, by a parabola in log2 of what it is over."""

import numpy as np

# Octaves on either side of the best point that the parabola is fitted to. Loss rises faster above the best
# learning rate than below it, so a wider fit is off by more than the noise that it averages away.
WINDOW = 1


def minimum(octaves: np.ndarray, loss: np.ndarray) -> tuple[float, str]:
    """Where a parabola, fitted by least squares to the finite losses within WINDOW octaves of the lowest (or
    to the three nearest, where there are fewer), has its minimum, kept to the range of those points.

    The lowest point itself where there are not three finite ones or the parabola is not convex, and why.
    """
    finite = np.isfinite(loss)
    x, y = octaves[finite], loss[finite]
    best = x[np.argmin(y)]
    x = x - best
    if len(x) < 3:
        return float(best), "the best of the grid: a fit takes three finite points"
    order = np.argsort(np.abs(x), kind="stable")
    near = order[: max(3, int((np.abs(x) < WINDOW + 0.5).sum()))]
    curvature, slope, _ = np.polyfit(x[near], y[near], 2)
    if curvature <= 0:
        return float(best), "the best of the grid: the curve around it is not convex"
    return float(best + np.clip(-slope / (2 * curvature), x[near].min(), x[near].max())), ""
