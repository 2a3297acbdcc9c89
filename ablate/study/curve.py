"""The minimum of a curve: a loss at points of a key, in octaves of it. Arrays in, numbers out."""

import numpy as np

from ablate.analysis.stats import bimodal

# The parabola is fitted to this many octaves on either side of the best point. Loss rises faster above the
# best learning rate than below it, so the bias of a wider fit is larger than the noise that it averages out.
WINDOW = 1
# Where a curve is steeper than this, in nats per squared octave, points half an octave beside the best one
# come first: a parabola over octaves would miss the minimum by more than the noise.
STEEP, HALF = 0.1, 0.5


def minimum(octaves: np.ndarray, loss: np.ndarray) -> tuple[float, str]:
    """The place of the minimum, and a reason for doubt, empty if there is none.

    A parabola is fitted by least squares to the finite losses within WINDOW octaves of the lowest one, within
    half of that if there are points between, or to the nearest three if those are fewer; its minimum is
    clipped to the range of these points. The lowest point itself is taken if there are fewer than three
    finite losses, or if the parabola is not convex.
    """
    finite = np.isfinite(loss)
    x, y = octaves[finite], loss[finite]
    best = x[np.argmin(y)]
    if len(x) < 3:
        return float(best), "the best of the grid: a fit takes three finite points"
    bend, slope, near = _parabola(x - best, y)
    if bend <= 0:
        return float(best), "the best of the grid: the curve around it is not convex"
    return float(best + np.clip(-slope / (2 * bend), near.min(), near.max())), ""


def curvature(octaves: np.ndarray, loss: np.ndarray) -> float:
    """That of the parabola around the lowest of three finite losses or more, per squared octave."""
    return _parabola(octaves - octaves[np.argmin(loss)], loss)[0]


def has_late_seed(ratio: np.ndarray, loss_PS: np.ndarray) -> bool:
    """Whether a run ended far above the others at the three points nearest to a value, each loss beside the
    median of its point. ratio: (P,) of the points to that value. loss_PS: at each point, of each seed."""
    near_PS = loss_PS[np.argsort(np.abs(np.log2(ratio)), kind="stable")[:3]]
    near_PS = near_PS[np.isfinite(near_PS).all(1)]
    beside = (near_PS - np.median(near_PS, axis=1, keepdims=True)).ravel()
    apart = bimodal(beside)
    return apart is not None and bool(beside[apart].mean() > 0)


def _parabola(x: np.ndarray, y: np.ndarray) -> tuple[float, float, np.ndarray]:
    """The curvature and the slope at 0 of the parabola through the points around 0, and these points."""
    step = np.diff(np.sort(x)).min()
    order = np.argsort(np.abs(x), kind="stable")
    near = order[: max(3, int((np.abs(x) < min(step, WINDOW) * 1.5).sum()))]
    bend, slope, _ = np.polyfit(x[near], y[near], 2)
    return float(bend), float(slope), x[near]
