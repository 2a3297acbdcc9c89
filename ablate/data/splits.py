"""Splits of a corpus, read in batches of rows of inputs and targets.

Legend: B rows, T positions in a row (`context`).
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ablate.rng import generator

NOT_ASKED = -100  # the target where nothing is to be predicted


class Batch(NamedTuple):
    """inputs, targets: (B, T) int64; targets are NOT_ASKED where nothing is to be predicted. asked: (K,) the
    indices of the real targets in the flattened targets; None if all of them are. source: (B, S) int64, the
    text that an encoder reads, below 0 where it is padded; None if there is none."""

    inputs: Tensor
    targets: Tensor
    asked: Tensor | None = None
    source: Tensor | None = None

    def to(self, device: torch.device) -> "Batch":
        return Batch._make(None if part is None else part.to(device, non_blocking=True) for part in self)


class Split(ABC):
    """Rows to train on or to evaluate.

    predicted_bytes: the UTF-8 bytes that its targets stand for; None where they are no text.
    asked_share: the share of positions that have a target. is_ragged: whether rows differ in length.
    """

    predicted_bytes: int | None = None
    asked_share: float = 1.0
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


class Stream(Split):
    """A text, read in windows: the target of each token is the next token.

    tokens: (tokens,) ids, memory-mapped, read-only. predicted_bytes: UTF-8 bytes of all tokens but the first.
    """

    def __init__(self, tokens: np.ndarray, predicted_bytes: int | None = None) -> None:
        self.tokens = tokens
        self.predicted_bytes = predicted_bytes

    @property
    def size(self) -> int:
        return max(len(self.tokens) - 1, 0)

    def batch(self, *, context: int, batch: int, seed: int, step: int) -> Batch:
        """Windows with uniformly drawn starts. The split must have more than `context` tokens."""
        starts = generator(seed, "data", step).integers(len(self.tokens) - context, size=batch)
        return self._windows_at(starts, context)

    def windows(self, *, context: int, windows: int, most: int | None = None) -> Iterator[Batch]:
        """The whole split in adjacent windows, so that each token but the first is a target once. A shorter
        last window comes alone, with shape (1, less than T)."""
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


def place_of(content: bytes) -> float:
    """The content of an example hashed to a number in [0, 1), which determines its split."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little") / 2**64


def asked_in(targets_BT: Tensor) -> Tensor:
    """(K,) the places of the flattened targets that are asked about."""
    return torch.nonzero(targets_BT.flatten() != NOT_ASKED).flatten()


def spread(count: int, some: int) -> np.ndarray:
    """`some` of `count` indices, evenly spread from the first on."""
    return np.arange(some) * count // some


def in_turns(places: np.ndarray, at_once: int) -> list[np.ndarray]:
    """The indices in chunks of `at_once`."""
    return np.split(places, range(at_once, len(places), at_once))


def int64(ids: np.ndarray) -> Tensor:
    return torch.from_numpy(ids.astype(np.int64, order="C"))
