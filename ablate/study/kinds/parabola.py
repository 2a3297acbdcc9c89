"""The minimum of a loss curve, from a parabola fitted in log2 of the tuned value."""

import numpy as np

# The parabola is fitted to this many octaves on either side of the best point. Loss rises faster above the
# best learning rate than below it, so the bias of a wider fit is larger than the noise that it averages out.
WINDOW = 1


def minimum(octaves: np.ndarray, loss: np.ndarray) -> tuple[float, str]:
    """The place of the minimum, and a reason for doubt, empty if there is none.

    A parabola is fitted by least squares to the finite losses within WINDOW octaves of the lowest one, or to
    the nearest three if those are fewer; its minimum is clipped to the range of these points. The lowest
    point itself is taken if there are fewer than three finite losses, or if the parabola is not convex.
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
