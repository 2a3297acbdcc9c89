"""Splits of pairs of texts, drawn by a task or given: pairs in batches of similar length, for an
encoder-decoder.

legend: B rows, S positions of the source, T of the target.
"""

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ablate.config.schema import CorpusConfig
from ablate.data.corpora import IGNORE_INDEX, Recipe
from ablate.data.corpora.copy import WordTask
from ablate.data.corpora.pairs import Pairs
from ablate.data.examples import Drawn, fingerprint, hashed, ranges
from ablate.data.splits import Batch, Split, spread, target_positions
from ablate.data.text import CorpusError
from ablate.data.tokenizers import Tokenizer, WithSeparator, fitted
from ablate.files.atomic import digest
from ablate.lazy import torch
from ablate.rng import generator

# Batches that are ordered by length together. More of them save padding and cost learning: with 2, 4 and 16,
# 99, 97 and 71 % of the lines of a task were right after 1,000 steps, and with no order at all 99 %.
BATCHES = 2
PADDING = -1  # in a source that is shorter than the longest of its batch
Texts = tuple[str, str]  # a source and a target


class Pair(NamedTuple):
    """The ids of a source, (S,), and of a target, (T,), without separators."""

    source: np.ndarray
    target: np.ndarray


class DrawnPairs:
    """The pairs of one split, drawn by a task. count: how many there are; None if it is endless. longest: the
    positions that a pair takes at most."""

    def __init__(self, drawn: Drawn[Texts], task: WordTask) -> None:
        self.drawn, self.at, self.count, self.longest = drawn, drawn.at, drawn.count, task.longest + 1

    @functools.cached_property
    def held_out(self) -> Sequence[Pair]:
        """`count` different pairs, or as many as there are: each short one, of which there are few, once."""
        assert self.count is not None, "an endless split is not read as a whole"
        different: dict[Texts, None] = {}
        number, before = 0, -1
        while before < len(different) < self.count:  # until a whole block brings nothing new
            before = len(different)
            different |= dict.fromkeys(self.drawn.block(self.drawn.seed, number))
            number += 1
        return self.drawn.encode([*different][: self.count])


class GivenPairs:
    """The given pairs of one split, as DrawnPairs. Training takes each once per epoch, in an order drawn for
    that epoch."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.held_out, self.count = pairs, len(pairs)
        self.longest = max((max(len(source), len(target) + 1) for source, target in pairs), default=0)
        self._order = functools.lru_cache(2)(self._ordered)

    def at(self, seed: int, places: Iterable[int]) -> list[Pair]:
        turns = (divmod(place, self.count) for place in places)
        return [self.held_out[self._order(seed, epoch)[at]] for epoch, at in turns]

    def _ordered(self, seed: int, epoch: int) -> np.ndarray:
        return generator(seed, "data", f"epoch/{epoch}").permutation(self.count)


def encoded(tokenizer: Tokenizer, texts: Sequence[Texts]) -> list[Pair]:
    """The pairs as ids."""
    return [Pair(*map(tokenizer.encode, pair)) for pair in texts]


def batch_of(pairs: Sequence[Pair], separator: int) -> Batch:
    """Pairs as the rows of a batch, each padded to the longest. The model predicts the target and the
    separator, which also stands before the target."""
    inputs = [np.concatenate([[separator], target]) for _, target in pairs]
    targets = _padded([np.concatenate([target, [separator]]) for _, target in pairs], IGNORE_INDEX)
    sources = _padded([source for source, _ in pairs], PADDING)
    return Batch(_padded(inputs, separator), targets, target_positions(targets), sources)


class Paired(Split):
    """Pairs in batches. Batch t is a function of (seed, t): the pairs of BATCHES batches are sorted by length
    and split into batches, which are then shuffled."""

    is_ragged = True

    def __init__(self, pairs: DrawnPairs | GivenPairs, separator: int) -> None:
        self.pairs, self.separator = pairs, separator
        self._together = functools.lru_cache(4)(self._ordered)

    @functools.cached_property
    def count(self) -> int | None:
        return None if self.pairs.count is None else len(self.pairs.held_out)

    @property
    def size(self) -> int | None:
        return None if self.count is None else sum(len(pair.target) + 1 for pair in self.pairs.held_out)

    def read_per_row(self, context: int) -> float:
        return float(np.mean([len(pair.source) + len(pair.target) + 1 for pair in self._some]))

    def batch(self, *, context: int, batch: int, seed: int, step: int) -> Batch:
        together, at = divmod(step - 1, BATCHES)
        return batch_of(self._together(batch, seed, together)[at], self.separator)

    def windows(self, *, context: int, windows: int, most: int | None = None) -> Iterator[Batch]:
        pairs = self.pairs.held_out
        if most is not None and most < (self.size or 0):
            each = np.mean([len(pair.target) + 1 for pair in pairs])
            pairs = [pairs[at] for at in spread(len(pairs), min(len(pairs), max(1, int(most // each))))]
        pairs = sorted(pairs, key=_length)
        for start in range(0, len(pairs), windows):
            yield batch_of(pairs[start : start + windows], self.separator)

    def _ordered(self, batch: int, seed: int, together: int) -> list[list[Pair]]:
        first = together * BATCHES * batch
        pairs = sorted(self.pairs.at(seed, range(first, first + BATCHES * batch)), key=_length)
        order = generator(seed, "data", f"batches/{together}").permutation(BATCHES)
        return [pairs[at * batch : (at + 1) * batch] for at in order]

    @functools.cached_property
    def _some(self) -> list[Pair]:
        return self.pairs.at(0, range(1000))


def opened(recipe: Recipe, config: CorpusConfig) -> tuple[str, Tokenizer, Mapping[str, Paired]]:
    """The fingerprint of pairs, their tokenizer, and the splits. Raises ConfigError."""
    if isinstance(recipe, Pairs):
        sha256, tokenizer, given = _given(recipe, config)
        splits: Mapping[str, DrawnPairs | GivenPairs] = {name: GivenPairs(of) for name, of in given.items()}
    else:
        assert isinstance(recipe, WordTask), "no other corpus has pairs"
        encode = functools.partial(encoded, recipe.tokenizer)
        of_splits = {
            name: Drawn(recipe, "pairs", recipe.draw_pairs, _content, name, within, encode)
            for name, within in ranges(config.splits).items()
        }
        some = [of.block(of.seed, 0)[:10] for of in of_splits.values() if of.count != 0]
        sha256, tokenizer = fingerprint(recipe, some, "pairs"), recipe.tokenizer
        splits = {name: DrawnPairs(of, recipe) for name, of in of_splits.items()}
    return sha256, tokenizer, {name: Paired(of, tokenizer.separator) for name, of in splits.items()}


def _given(recipe: Pairs, config: CorpusConfig) -> tuple[str, Tokenizer, dict[str, list[Pair]]]:
    """The fingerprint of given pairs, their tokenizer, and the pairs of each split, which a hash of their
    source decides: of one source there may be several targets."""
    pairs = recipe.pairs()
    texts = {
        name: [pair for pair in pairs if low <= hashed(_content(pair[:1])) < high]
        for name, (low, high) in ranges(config.splits).items()
    }
    for name, share in zip(("train", "validation"), config.splits[:2], strict=True):
        if not texts[name]:
            raise CorpusError(
                f"corpus.splits: {len(pairs):,} pairs leave none for {name}, whose share is {share:g}; give"
                " more pairs, or a larger share"
            )
    of_all, of_training = (itertools.chain.from_iterable(some) for some in (pairs, texts["train"]))
    plain = fitted(config.tokenizer, of_all, of_training, config.bpe_vocab)
    splits = {name: encoded(plain, chosen) for name, chosen in texts.items()}
    return digest(["pairs by source", pairs]), WithSeparator(plain), splits


def _content(texts: Sequence[str]) -> bytes:
    """The texts that decide the split of a pair."""
    return "\n".join(texts).encode("utf-8", "surrogatepass")


def _length(pair: Pair) -> tuple[int, int]:
    return len(pair.source), len(pair.target)


def _padded(rows: Sequence[np.ndarray], filler: int) -> "torch.Tensor":
    """The rows, padded with filler: (B, length of the longest row), int64."""
    padded = np.full((len(rows), max(map(len, rows))), filler, np.int64)
    for at, row in enumerate(rows):
        padded[at, : len(row)] = row
    return torch.from_numpy(padded)
