"""Splits of a corpus, read in batches of rows of inputs and targets.

Legend: B rows, T positions in a row (`context`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ablate.lazy import Tensor, torch
from ablate.rng import generator


class Batch(NamedTuple):
    """inputs, targets: (B, T) int64; targets are IGNORE_INDEX where nothing is to be predicted.
    target_positions: (K,) the indices of the other targets in the flattened targets; None if every position
    has a target. source: (B, S) int64, the text that an encoder reads, below 0 where it is padded; None if
    there is none."""

    inputs: Tensor
    targets: Tensor
    target_positions: Tensor | None = None
    source: Tensor | None = None

    def to(self, device: "torch.device") -> "Batch":
        return self.each(lambda part: part.to(device, non_blocking=True))

    def each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """The batch with each of its parts changed."""
        return Batch._make(None if part is None else change(part) for part in self)


class Split(ABC):
    """Rows to train on or to evaluate.

    predicted_bytes: the UTF-8 bytes that its targets stand for; None where they are no text. target_share:
    the share of positions that have a target. is_ragged: whether rows differ in length.
    """

    predicted_bytes: int | None = None
    target_share: float = 1.0
    is_ragged: bool = False

    @property
    @abstractmethod
    def size(self) -> int | None:
        """Positions in the whole split, with or without a target; None if it is endless."""

    def read_per_row(self, context: int) -> float:
        """The mean number of tokens that a model reads in a row of training."""
        return context

    @abstractmethod
    def batch(self, *, context: int, batch: int, seed: int, step: int) -> Batch:
        """`batch` rows for training step `step`, which counts from 1: a pure function of its arguments."""

    @abstractmethod
    def windows(self, *, context: int, windows: int, most: int | None = None) -> Iterator[Batch]:
        """Each row once, `windows` rows at a time. most: read at most so many positions of a larger split, in
        whole rows spread evenly over it, at least one."""


@dataclass(frozen=True, eq=False)
class Stream(Split):
    """A text, read in windows: the target of each token is the next token.

    tokens: (tokens,) ids, memory-mapped, read-only. predicted_bytes: UTF-8 bytes of all tokens but the first.
    """

    tokens: np.ndarray
    predicted_bytes: int | None = None

    @property
    def size(self) -> int:
        return max(len(self.tokens) - 1, 0)

    def batch(self, *, context: int, batch: int, seed: int, step: int) -> Batch:
        """Windows with uniformly drawn starts. The split must have more than `context` tokens."""
        return self._windows_at(self.starts(context=context, batch=batch, seed=seed, step=step), context)

    def starts(self, *, context: int, batch: int, seed: int, step: int) -> np.ndarray:
        """(B,) where the windows of a training step begin."""
        return generator(seed, "data", step).integers(len(self.tokens) - context, size=batch)

    def windows(self, *, context: int, windows: int, most: int | None = None) -> Iterator[Batch]:
        """The whole split in adjacent windows, so that each token but the first is a target once. A shorter
        last window comes alone, with shape (1, less than T)."""
        count, rest = divmod(self.size, context)
        some = count
        if most is not None and most < self.size and count:
            some, rest = max(1, most // context), 0
        starts = spread(count, some) * context
        for at in range(0, some, windows):
            yield self._windows_at(starts[at : at + windows], context)
        if rest:
            yield self._windows_at(np.array([self.size - rest]), rest)

    def _windows_at(self, starts_B: np.ndarray, context: int) -> Batch:
        windows_BT1 = self.tokens[starts_B[:, None] + np.arange(context + 1)]
        return Batch(int64(windows_BT1[:, :-1]), int64(windows_BT1[:, 1:]))


def spread(count: int, some: int) -> np.ndarray:
    """`some` of `count` indices, evenly spread from the first on."""
    return np.arange(some) * count // some


def int64(ids: np.ndarray) -> Tensor:
    return torch.from_numpy(ids.astype(np.int64, order="C"))
