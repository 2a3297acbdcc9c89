"""Splits of examples: rows of a task, or pairs of texts for an encoder-decoder.

legend: B rows, S positions of the source, T of the inputs and of the targets.
"""

import functools
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ablate.data.corpora import IGNORE_INDEX
from ablate.data.splits import Batch, Split, spread
from ablate.lazy import Tensor, torch
from ablate.rng import generator

# Batches of pairs that are ordered by length together. More of them save padding and cost learning: with 2, 4
# and 16, 99, 97 and 71 % of the lines of a task were right after 1,000 steps, and with no order at all 99 %.
BATCHES = 2
PADDING = -1  # in a source that is shorter than the longest of its batch


class Example(NamedTuple):
    """inputs, targets: (T,) ids; targets are IGNORE_INDEX where nothing is to be predicted. source: (S,) the
    ids that an encoder reads; None if there is none."""

    inputs: np.ndarray
    targets: np.ndarray
    source: np.ndarray | None = None

    @classmethod
    def of_pair(cls, source: np.ndarray, target: np.ndarray, separator: int) -> "Example":
        """The model predicts the target and the separator, which also stands before the target."""
        both_ends = np.concatenate([[separator], target, [separator]])
        return cls(both_ends[:-1], both_ends[1:], source)

    @property
    def question_and_answer(self) -> tuple[np.ndarray, np.ndarray]:
        """The ids that a model reads, and those that are right, without separators."""
        if self.source is None:
            return self.inputs, self.targets[self.targets != IGNORE_INDEX]
        return self.source, self.inputs[1:]


def batch_of(examples: Sequence[Example]) -> Batch:
    """The examples as the rows of a batch, each padded to the longest: inputs with what pairs begin with, the
    separator."""
    targets = _padded([one.targets for one in examples], IGNORE_INDEX)
    inputs = _padded([one.inputs for one in examples], int(examples[0].inputs[0]))
    sources = [one.source for one in examples if one.source is not None]
    source = _padded(sources, PADDING) if sources else None
    return Batch(inputs, targets, torch.nonzero(targets.flatten() != IGNORE_INDEX).flatten(), source)


def _padded(rows: Sequence[np.ndarray], filler: int) -> Tensor:
    """(B, length of the longest row), int64."""
    tensors = [torch.from_numpy(row.astype(np.int64)) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=filler)


class Examples(Split):
    """Examples in batches. Batch t is a function of (seed, t): the pairs of BATCHES batches are sorted by
    length and split into batches, which are then shuffled; rows of a task, of equal lengths, stay in order.

    per_epoch: the examples that training reads before it repeats them; None if they are endless. longest: the
    positions that one takes at most. held_out: the examples that are evaluated, of a split that ends.
    """

    per_epoch: int | None
    longest: int
    held_out: Sequence[Example]

    @abstractmethod
    def at(self, seed: int, places: Iterable[int]) -> list[Example]:
        """The examples of training at these places, which count from 0."""

    @property
    def size(self) -> int | None:
        if self.is_ragged and self.per_epoch is not None:
            return sum(len(one.targets) for one in self.held_out)
        return self.per_epoch and self.per_epoch * self.longest

    def read_per_row(self, context: int) -> float:
        return self._mean_of_pairs if self.is_ragged else context

    @functools.cached_property
    def _mean_of_pairs(self) -> float:
        return float(np.mean([sum(length(one)) for one in self.at(0, range(1000))]))

    def batch(self, *, context: int, batch: int, seed: int, step: int) -> Batch:
        batches = BATCHES if self.is_ragged else 1
        together, at = divmod(step - 1, batches)
        first = together * batches * batch
        examples = sorted(self.at(seed, range(first, first + batches * batch)), key=length)
        start = generator(seed, "data", f"batches/{together}").permutation(batches)[at] * batch
        return batch_of(examples[start : start + batch])

    def windows(self, *, context: int, windows: int, most: int | None = None) -> Iterator[Batch]:
        examples, size = self.held_out, self.size or 0
        if most is not None and most < size:
            some = max(1, int(most // (size / len(examples))))
            examples = [examples[at] for at in spread(len(examples), some)]
        examples = sorted(examples, key=length)
        for start in range(0, len(examples), windows):
            yield batch_of(examples[start : start + windows])


def length(example: Example) -> tuple[int, int]:
    """Of its source, and of its targets."""
    return 0 if example.source is None else len(example.source), len(example.targets)
