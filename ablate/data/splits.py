"""What a model reads of a corpus, and what it has to predict: a split, in batches of rows.

Legend: B rows, T positions in a row (`context`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ablate.rng import generator

NOT_ASKED = -100  # a target that is none


class Batch(NamedTuple):
    """inputs, targets: (B, T) int64; a target that is not asked for is NOT_ASKED. asked: (K,) the places of
    the others in the flattened targets; None if all are asked for."""

    inputs: Tensor
    targets: Tensor
    asked: Tensor | None = None

    def to(self, device: torch.device) -> "Batch":
        inputs, targets = (part.to(device, non_blocking=True) for part in self[:2])
        return Batch(
            inputs, targets, None if self.asked is None else self.asked.to(device, non_blocking=True)
        )


class Split(ABC):
    """Rows to train on or to evaluate.

    predicted_bytes: UTF-8 bytes that its targets stand for; None where they are no text.
    asked_share: of all positions, those with a target.
    """

    predicted_bytes: int | None = None
    asked_share: float = 1.0

    @property
    @abstractmethod
    def size(self) -> int | None:
        """Positions to predict, asked for or not, when all is read once; None where it never ends."""

    @abstractmethod
    def batch(self, *, context: int, batch: int, seed: int, step: int) -> Batch:
        """`batch` rows for training step `step`, from 1 on: a pure function of its arguments."""

    @abstractmethod
    def windows(self, *, context: int, windows: int, most: int | None = None) -> Iterator[Batch]:
        """Each row once, `windows` at a time. most: of a larger split only so many positions, in whole rows
        evenly spread, one at least."""


class Stream(Split):
    """A text, read in windows: the target of a token is the next one.

    tokens: (tokens,) ids, mapped from disk, read-only. predicted_bytes: UTF-8 bytes after the first token.
    """

    def __init__(self, tokens: np.ndarray, predicted_bytes: int | None = None) -> None:
        self.tokens = tokens
        self.predicted_bytes = predicted_bytes

    @property
    def size(self) -> int:
        return max(len(self.tokens) - 1, 0)

    def batch(self, *, context: int, batch: int, seed: int, step: int) -> Batch:
        """Windows that start anywhere, uniformly. There are more than `context` tokens."""
        starts = generator(seed, "data", step).integers(len(self.tokens) - context, size=batch)
        return self._windows_at(starts, context)

    def windows(self, *, context: int, windows: int, most: int | None = None) -> Iterator[Batch]:
        """The whole split in windows side by side, so that each token but the first is a target once; at the
        end, alone and (1, less than T), the window that is shorter."""
        whole = self.size - self.size % context
        if most is not None and most < self.size and whole:
            for some in in_turns(spread(whole // context, max(1, most // context)), windows):
                yield self._windows_at(some * context, context)
            return
        for start in range(0, whole, windows * context):
            stop = min(start + windows * context, whole)
            yield self._windows(start, stop, context)
        if whole < self.size:
            yield self._windows(whole, self.size, self.size - whole)

    def _windows_at(self, starts_B: np.ndarray, context: int) -> Batch:
        windows_BT1 = self.tokens[starts_B[:, None] + np.arange(context + 1)]
        return Batch(int64(windows_BT1[:, :-1]), int64(windows_BT1[:, 1:]))

    def _windows(self, start: int, stop: int, width: int) -> Batch:
        inputs, targets = self.tokens[start:stop], self.tokens[start + 1 : stop + 1]
        return Batch(int64(inputs.reshape(-1, width)), int64(targets.reshape(-1, width)))


def spread(count: int, some: int) -> np.ndarray:
    """`some` places among `count`, evenly spread from the first on."""
    return np.arange(some) * count // some


def in_turns(places: np.ndarray, at_once: int) -> list[np.ndarray]:
    """The places, `at_once` of them at a time."""
    return np.split(places, range(at_once, len(places), at_once))


def int64(ids: np.ndarray) -> Tensor:
    return torch.from_numpy(ids.astype(np.int64, order="C"))
