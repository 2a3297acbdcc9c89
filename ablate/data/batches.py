"""Windows of tokens: what a model reads, and what it has to predict (the same, one token later).

Legend: B windows, T tokens in a window (`context`).
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ablate.rng import generator


def training_batch(
    tokens: np.ndarray, *, context: int, batch: int, seed: int, step: int
) -> tuple[Tensor, Tensor]:
    """Batch `step`: inputs and targets, each (B, T) int64, of windows that start anywhere, uniformly.

    A pure function of its arguments. tokens: (tokens,), more than `context`.
    """
    starts = generator(seed, "data", step).integers(len(tokens) - context, size=batch)
    return _windows_at(tokens, starts, context)


def evaluation_windows(
    tokens: np.ndarray, *, context: int, windows: int, most: int | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """The whole split in windows side by side, so that each token but the first is a target once.

    Yields inputs and targets, each (B, T) int64, `windows` windows at a time; at the end, alone and
    (1, less than T), the window that is shorter. most: of a split with more targets, only so many, in whole
    windows evenly spread, one at least.
    """
    targets = max(len(tokens) - 1, 0)
    whole = targets - targets % context
    if most is not None and most < targets and whole:
        count = max(1, most // context)
        starts = np.arange(count) * (whole // context) // count * context
        for some in np.split(starts, range(windows, count, windows)):
            yield _windows_at(tokens, some, context)
        return
    for start in range(0, whole, windows * context):
        stop = min(start + windows * context, whole)
        yield _windows(tokens, start, stop, context)
    if whole < targets:
        yield _windows(tokens, whole, targets, targets - whole)


def _windows_at(tokens: np.ndarray, starts_B: np.ndarray, context: int) -> tuple[Tensor, Tensor]:
    windows_BT1 = tokens[starts_B[:, None] + np.arange(context + 1)]
    return _int64(windows_BT1[:, :-1]), _int64(windows_BT1[:, 1:])


def _windows(tokens: np.ndarray, start: int, stop: int, width: int) -> tuple[Tensor, Tensor]:
    inputs, targets = tokens[start:stop], tokens[start + 1 : stop + 1]
    return _int64(inputs.reshape(-1, width)), _int64(targets.reshape(-1, width))


def _int64(ids: np.ndarray) -> Tensor:
    return torch.from_numpy(ids.astype(np.int64, order="C"))
