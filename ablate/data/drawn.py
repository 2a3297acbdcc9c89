"""Examples that a task draws when they are needed, as rows or as pairs."""

import functools
import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ablate.config.rules import ConfigError
from ablate.config.schema import CorpusConfig
from ablate.data.corpora import IGNORE_INDEX, SPLITS, Task
from ablate.data.corpora.copy import SEPARATOR, WordTask
from ablate.data.examples import Example, Examples
from ablate.data.tokenizers import Numbers, Tokenizer
from ablate.files.atomic import digest
from ablate.rng import generator

BLOCK = 1024  # examples drawn at a time
KEPT = 512  # seeds, more than there are that are read in turn
TRIES = 1000  # the most draws to fill a block
Range = tuple[float, float]  # a part of [0, 1): an example belongs to the split in whose range its hash lies


class Drawn(Examples):
    """The examples of one split of a task, drawn in blocks. Example i is a function of (seed, i mod
    per_epoch); of an endless split of (seed, i), where it repeats only by chance. As content decides the
    split, no two splits share an example.

    Of each seed the blocks that were read last are kept.
    """

    def __init__(self, task: Task, split: str, within: Range, as_pairs: bool = False) -> None:
        self.task, self.is_ragged, self._within = task, as_pairs, within
        self.per_epoch = task.counts[split] if within[0] < within[1] else 0
        self.longest = task.length // 2 if as_pairs else task.length
        kind = "pairs" if as_pairs else "episodes"
        self._stream = f"data/{kind}/{task.seed}" if split == "train" else f"{kind}/{split}"
        self._kept = dict[int, dict[int, list[Example]]]()  # by seed, and the number of the block

    @functools.cached_property
    def target_share(self) -> float:
        if self.is_ragged or self.per_epoch == 0:
            return 1.0
        return float(np.mean([one.targets != IGNORE_INDEX for one in self.at(self.task.seed, range(10))]))

    @functools.cached_property
    def held_out(self) -> Sequence[Example]:
        """Of pairs different ones, or as many as there are: each short one, of which there are few, once."""
        assert self.per_epoch is not None, "an endless split is not read as a whole"
        if not self.is_ragged:
            return self.at(self.task.seed, range(self.per_epoch))
        different: dict[bytes, Example] = {}
        number, before = 0, -1
        while before < len(different) < self.per_epoch:  # until a whole block brings nothing new
            before = len(different)
            different |= {self.content(one): one for one in self.block(self.task.seed, number)}
            number += 1
        return [*different.values()][: self.per_epoch]

    def at(self, seed: int, places: Iterable[int]) -> list[Example]:
        places = [place if self.per_epoch is None else place % self.per_epoch for place in places]
        if len(self._kept) > KEPT:
            self._kept.clear()
        before, numbers = self._kept.get(seed, {}), {place // BLOCK for place in places}
        blocks = {at: before.get(at) or self.block(seed, at) for at in numbers}
        self._kept[seed] = blocks
        return [blocks[place // BLOCK][place % BLOCK] for place in places]

    def block(self, seed: int, number: int) -> list[Example]:
        """Block `number`, of BLOCK examples. Raises ConfigError if there are hardly any in the range."""
        (low, high), chosen = self._within, list[Example]()
        for attempt in range(TRIES):
            drawn = self._draw(generator(seed, self._stream, f"{number}/{attempt}"))
            chosen += [one for one in drawn if low <= hashed(self.content(one)) < high]
            if len(chosen) >= BLOCK:
                return chosen[:BLOCK]
        raise ConfigError(
            "corpus.splits: there are too few different examples for a share of them; take a larger"
            " corpus.vocabulary or corpus.length"
        )

    def _draw(self, draws: np.random.Generator) -> list[Example]:
        """BLOCK examples of any split."""
        if not self.is_ragged:
            return [Example(*row_2T) for row_2T in np.stack(self.task.draw(draws, BLOCK), 1).astype("<i4")]
        assert isinstance(self.task, WordTask), "no other task has pairs"
        return [Example.of_pair(*pair, SEPARATOR) for pair in self.task.draw_pairs(draws, BLOCK)]

    def content(self, example: Example) -> bytes:
        """What decides the split of an example."""
        if self.is_ragged:
            return "\n".join(self.texts(example)).encode()
        return example.inputs.tobytes() + example.targets.tobytes()

    def texts(self, pair: Example) -> list[str]:
        return [*map(Numbers(self.task.vocabulary).decode, pair.question_and_answer)]


def opened(task: Task, config: CorpusConfig, as_pairs: bool) -> tuple[str, Tokenizer, Mapping[str, Examples]]:
    """The fingerprint of a task, over what determines its examples and over a few of them; its tokenizer, and
    its splits."""
    splits = {name: Drawn(task, name, within, as_pairs) for name, within in ranges(config.splits).items()}
    first = [_first(split) for split in splits.values() if split.per_epoch != 0]
    kind = ["pairs"] if as_pairs else []
    sha256 = digest([*kind, task.name, task.sizes, task.counts, task.seed, first])
    return sha256, Numbers(task.vocabulary), splits


def _first(split: Drawn) -> list:
    if split.is_ragged:
        return [split.texts(one) for one in split.block(split.task.seed, 0)[:10]]
    rows = split.at(split.task.seed, range(10))
    return [[one.inputs.tolist() for one in rows], [one.targets.tolist() for one in rows]]


def ranges(shares: Sequence[float]) -> dict[str, Range]:
    """The range of each split."""
    return dict(zip(SPLITS, itertools.pairwise(itertools.accumulate(shares, initial=0.0)), strict=True))


def hashed(content: bytes) -> float:
    """The content of an example hashed to a number in [0, 1), which determines its split."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little") / 2**64
