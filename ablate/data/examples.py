"""Examples that are drawn when they are needed, and the splits of a task, which consist of them.

legend: B examples in a batch, T positions in each.
"""

import functools
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from ablate.config.rules import ConfigError
from ablate.config.schema import CorpusConfig
from ablate.data.corpora import SPLITS, Task
from ablate.data.splits import Batch, Split, in_turns, int64, spread, target_positions
from ablate.data.tokenizers import Tokenizer
from ablate.files.atomic import digest
from ablate.rng import generator

BLOCK = 1024  # examples drawn at a time
KEPT = 512  # blocks, of all seeds: more than there are seeds that are read in turn
TRIES = 1000  # the most draws to fill a block
Range = tuple[float, float]  # a part of [0, 1): an example belongs to the split in whose range its hash lies
Example = TypeVar("Example")


class Drawn(Generic[Example]):
    """The examples of one split, drawn in blocks. Example i is a function of (seed, i mod count); with
    count=None, of (seed, i), and it repeats only by chance. As content decides the split, no two splits share
    an example.

    kind: names the random streams. draw: draws so many examples of any split. content: of an example, as
    bytes. within: the split's range. encode: what a block is kept as. seed: of held-out examples; those of
    training take the seed of the run's batches.

    Of each seed the blocks that were read are kept, until there are KEPT; of an endless split, which are not
    read again, those that were read last.
    """

    def __init__(
        self,
        task: Task,
        kind: str,
        draw: Callable[[np.random.Generator, int], Sequence[Example]],
        content: Callable[[Example], bytes],
        split: str,
        within: Range,
        encode: Callable[[list[Example]], list[Any]] = list,
    ) -> None:
        self._draw, self._content, self._within, self.encode = draw, content, within, encode
        self.seed, self.count = task.seed, task.counts[split] if within[0] < within[1] else 0
        self._stream = f"data/{kind}/{task.seed}" if split == "train" else f"{kind}/{split}"
        self._kept = dict[int, dict[int, list]]()  # by seed, and the number of the block

    def at(self, seed: int, places: Iterable[int]) -> list[Any]:
        """The examples at these places, which count from 0."""
        places = [place if self.count is None else place % self.count for place in places]
        if sum(map(len, self._kept.values())) > KEPT:
            self._kept.clear()
        before = self._kept.get(seed, {})
        numbers = dict.fromkeys(place // BLOCK for place in places)
        blocks = {at: before[at] if at in before else self.encode(self.block(seed, at)) for at in numbers}
        self._kept[seed] = blocks if self.count is None else {**before, **blocks}
        return [blocks[place // BLOCK][place % BLOCK] for place in places]

    def block(self, seed: int, number: int) -> list[Example]:
        """Block `number`, of BLOCK examples. Raises ConfigError if there are hardly any in the range."""
        low, high = self._within
        chosen: list[Example] = []
        for attempt in range(TRIES):
            drawn = self._draw(generator(seed, self._stream, f"{number}/{attempt}"), BLOCK)
            chosen += [example for example in drawn if low <= hashed(self._content(example)) < high]
            if len(chosen) >= BLOCK:
                return chosen[:BLOCK]
        raise ConfigError(
            "corpus.splits: there are too few different examples for a share of them; take a larger"
            " corpus.vocabulary or corpus.length"
        )


def fingerprint(task: Task, first: list[Any], *kind: str) -> str:
    """A digest of what determines the examples. first: a few of them."""
    return digest([*kind, task.name, task.sizes, task.counts, task.seed, first])


def ranges(shares: Sequence[float]) -> dict[str, Range]:
    """The range of each split."""
    return dict(zip(SPLITS, itertools.pairwise(itertools.accumulate(shares, initial=0.0)), strict=True))


def hashed(content: bytes) -> float:
    """The content of an example hashed to a number in [0, 1), which determines its split."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little") / 2**64


class Examples(Split):
    """The rows of a task in one split. Each is an array of inputs and targets, (2, T) int32."""

    def __init__(self, task: Task, drawn: Drawn[np.ndarray]) -> None:
        self.task, self.drawn = task, drawn
        self.seed, self.count = drawn.seed, drawn.count
        self.target_share = task.targets / task.length

    @property
    def size(self) -> int | None:
        return None if self.count is None else self.count * self.task.length

    def batch(self, *, context: int, batch: int, seed: int, step: int) -> Batch:
        return self.rows(seed, range((step - 1) * batch, step * batch))

    def windows(self, *, context: int, windows: int, most: int | None = None) -> Iterator[Batch]:
        assert self.count is not None, "what never ends is not read as a whole"
        some = self.count if most is None else min(self.count, max(1, most // self.task.length))
        for places in in_turns(spread(self.count, some), windows):
            yield self.rows(self.seed, places)

    def rows(self, seed: int, places_B: Sequence[int] | np.ndarray) -> Batch:
        """The examples at these places, as a batch."""
        rows_B2T = np.stack(self.drawn.at(seed, np.asarray(places_B).tolist()))
        inputs, targets = int64(rows_B2T[:, 0]), int64(rows_B2T[:, 1])
        return Batch(inputs, targets, target_positions(targets))


def opened(task: Task, config: CorpusConfig) -> tuple[str, Tokenizer, Mapping[str, Examples]]:
    """The fingerprint of a task, its tokenizer, and its splits."""
    draw = functools.partial(rows_of, task)
    splits = {
        name: Examples(task, Drawn(task, "episodes", draw, np.ndarray.tobytes, name, within))
        for name, within in ranges(config.splits).items()
    }
    some = [split.rows(task.seed, range(10)) for split in splits.values() if split.count != 0]
    sha256 = fingerprint(task, [[row.tolist() for row in batch[:2]] for batch in some])
    return sha256, task.tokenizer, splits


def rows_of(task: Task, draws: np.random.Generator, count: int) -> list[np.ndarray]:
    return [*np.stack(task.draw(draws, count), 1).astype("<i4")]
