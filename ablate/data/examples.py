"""Examples that are drawn when they are needed, and the splits of a task, which consist of them.

legend: N examples, B of them in a batch, T positions in each.
"""

import functools
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
KEPT = 64  # blocks of one seed that are kept, of examples that come again
TRIES = 1000  # the most draws to fill a block
Range = tuple[float, float]  # a part of [0, 1): an example belongs to the split in whose range its hash lies
Example = TypeVar("Example")
Block = TypeVar("Block")


class Kept(Generic[Block]):
    """The blocks that were read last, of each seed: of an endless split those of one batch, as none is read
    again. A seed that is read no more, while others are, is dropped: runs that are trained as one read each
    of theirs in turn.

    draw: a block, of a seed and a number. count: of the examples; None if they are endless.
    """

    def __init__(self, draw: Callable[[int, int], Block], count: int | None) -> None:
        self._draw, self._count, self._reads = draw, count, 0
        self._of_seed: dict[int, tuple[int, dict[int, Block]]] = {}  # with when it was read, oldest first

    def blocks(self, seed: int, numbers: Iterable[int]) -> list[Block]:
        _, before = self._of_seed.pop(seed, (0, {}))
        read = {
            number: before[number] if number in before else self._draw(seed, number) for number in numbers
        }
        comes_again = self._count is not None and len({*before, *read}) <= KEPT
        self._reads += 1
        self._of_seed[seed] = self._reads, {**before, **read} if comes_again else read
        while self._reads - next(iter(self._of_seed.values()))[0] > 2 * len(self._of_seed):
            del self._of_seed[next(iter(self._of_seed))]
        return [*read.values()]


@dataclass(frozen=True, eq=False)
class Blocks(Generic[Example]):
    """The examples of one split, in blocks. Example i is a function of (seed, i mod count); with count=None,
    of (seed, i), and it repeats only by chance. As content decides the split, no two splits share an example.

    draw: draws so many examples of any split. content: of an example, as bytes. stream: the random stream of
    the draws. within: the split's range. seed: of held-out examples; those of training take the seed of the
    run's batches.
    """

    draw: Callable[[np.random.Generator, int], Sequence[Example]]
    content: Callable[[Example], bytes]
    stream: str
    within: Range
    seed: int
    count: int | None

    def block(self, seed: int, number: int) -> list[Example]:
        """Block `number`, of BLOCK examples. Raises ConfigError if there are hardly any in the range."""
        low, high = self.within
        chosen: list[Example] = []
        for attempt in range(TRIES):
            drawn = self.draw(generator(seed, self.stream, f"{number}/{attempt}"), BLOCK)
            chosen += [example for example in drawn if low <= hashed(self.content(example)) < high]
            if len(chosen) >= BLOCK:
                return chosen[:BLOCK]
        raise ConfigError(
            "corpus.splits: there are too few different examples for a share of them; take a larger"
            " corpus.vocabulary or corpus.length"
        )


def blocks_of(
    task: Task,
    kind: str,
    draw: Callable[[np.random.Generator, int], Sequence[Example]],
    content: Callable[[Example], bytes],
    shares: Sequence[float],
) -> dict[str, Blocks[Example]]:
    """The blocks of each split. kind: names their random streams."""
    blocks = {}
    for split, within in ranges(shares).items():
        stream = f"data/{kind}/{task.seed}" if split == "train" else f"{kind}/{split}"
        count = task.counts[split] if within[0] < within[1] else 0
        blocks[split] = Blocks(draw, content, stream, within, task.seed, count)
    return blocks


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

    def __init__(self, task: Task, blocks: Blocks[np.ndarray]) -> None:
        self.task, self.seed, self.count = task, blocks.seed, blocks.count
        self.target_share = task.targets / task.length
        self._kept = Kept(lambda *place: np.stack(blocks.block(*place)), blocks.count)

    @property
    def size(self) -> int | None:
        return None if self.count is None else self.count * self.task.length

    def batch(self, *, context: int, batch: int, seed: int, step: int) -> Batch:
        return self.rows(seed, np.arange((step - 1) * batch, step * batch))

    def windows(self, *, context: int, windows: int, most: int | None = None) -> Iterator[Batch]:
        assert self.count is not None, "what never ends is not read as a whole"
        some = self.count if most is None else min(self.count, max(1, most // self.task.length))
        for places in in_turns(spread(self.count, some), windows):
            yield self.rows(self.seed, places)

    def rows(self, seed: int, examples_B: np.ndarray) -> Batch:
        """The examples with these numbers, as a batch."""
        places = examples_B if self.count is None else examples_B % self.count
        numbers, at_B = np.unique(places // BLOCK, return_inverse=True)
        blocks = self._kept.blocks(seed, numbers.tolist())
        rows_B2T = np.concatenate(blocks)[at_B * BLOCK + places % BLOCK]
        inputs, targets = int64(rows_B2T[:, 0]), int64(rows_B2T[:, 1])
        return Batch(inputs, targets, target_positions(targets))


def opened(task: Task, config: CorpusConfig) -> tuple[str, Tokenizer, Mapping[str, Examples]]:
    """The fingerprint of a task, its tokenizer, and its splits."""
    blocks = blocks_of(task, "episodes", functools.partial(rows_of, task), np.ndarray.tobytes, config.splits)
    splits = {name: Examples(task, of) for name, of in blocks.items()}
    some = [split.rows(task.seed, np.arange(10)) for split in splits.values() if split.count != 0]
    sha256 = fingerprint(task, [[row.tolist() for row in batch[:2]] for batch in some])
    return sha256, task.tokenizer, splits


def rows_of(task: Task, draws: np.random.Generator, count: int) -> list[np.ndarray]:
    return [*np.stack(task.draw(draws, count), 1).astype("<i4")]
