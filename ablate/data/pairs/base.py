"""Pairs of texts, a source and a target: tasks that draw them, and the pairs of a split.

legend: S tokens of a source, T of a target.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ablate.config.rules import ConfigError
from ablate.data.splits import place_of
from ablate.data.tokenizers import Tokenizer
from ablate.rng import generator

BLOCK = 1024  # pairs drawn at a time
KEPT = 64  # blocks kept in memory
TRIES = 1000  # the most draws to fill a block


class Pair(NamedTuple):
    """The ids of a source, (S,), and of a target, (T,), without edges."""

    source: np.ndarray
    target: np.ndarray


@dataclass(frozen=True)
class PairTask(ABC):
    """Draws pairs whose alignment is known."""

    @abstractmethod
    def draw(self, draws: np.random.Generator, count: int) -> list[tuple[str, str]]:
        """Draw `count` pairs, each a source and a target."""

    @property
    @abstractmethod
    def longest(self) -> tuple[int, int]:
        """The number of tokens in the longest source, and in the longest target."""

    @abstractmethod
    def aligned(self, source: str, target: str) -> np.ndarray:
        """(T, S) booleans: whether a token of the target comes from a token of the source."""


class Pairs(ABC):
    """The pairs of one split. count: how many there are; None if it is endless."""

    count: int | None

    @abstractmethod
    def to_train(self, seed: int, places: range) -> list[Pair]:
        """The pairs at these places of an endless sequence, which starts at 0."""

    @abstractmethod
    def keep(self, fits: Callable[[Pair], Pair | None]) -> "Pairs":
        """The pairs as `fits` returns them, without those for which it returns None. Drawn pairs all fit."""

    @abstractmethod
    def held_out(self) -> list[Pair]:
        """All pairs, once each. The split must not be endless."""


class Drawn(Pairs):
    """Pairs drawn by a task. Pair i is a function of (seed, i mod count), like an episode
    (ablate.data.episodes). Held-out pairs are all different: short ones, of which there are few, come once.

    within: the split's part of [0, 1); it has the pairs whose `place` is inside. seed: for held-out pairs.
    """

    def __init__(
        self,
        task: PairTask,
        tokenizer: Tokenizer,
        stream: str,
        within: tuple[float, float],
        *,
        seed: int,
        count: int | None,
    ) -> None:
        self.task, self.tokenizer, self.stream, self.within = task, tokenizer, stream, within
        self.seed, self.count = seed, count
        self._block = functools.lru_cache(KEPT)(self._drawn)

    def to_train(self, seed: int, places: range) -> list[Pair]:
        return self._at(seed, [place if self.count is None else place % self.count for place in places])

    def held_out(self) -> list[Pair]:
        return [*self._held_out]

    def keep(self, fits: Callable[[Pair], Pair | None]) -> "Drawn":
        return self

    def first(self, count: int) -> list[tuple[str, str]]:
        """The first ones drawn, as texts: they tell one task from another."""
        return self._texts(self.seed, 0)[:count]

    @functools.cached_property
    def _held_out(self) -> list[Pair]:
        """`count` of them, or as many as there are."""
        assert self.count is not None, "an endless split is not read as a whole"
        found: dict[tuple[str, str], None] = {}
        block = 0
        while self.count and len(found) < self.count:
            before = len(found)
            found |= dict.fromkeys(self._texts(self.seed, block))
            if len(found) == before:  # a whole block brought nothing new
                break
            block += 1
        return encoded(self.tokenizer, [*found][: self.count])

    def _at(self, seed: int, places: Sequence[int]) -> list[Pair]:
        return [self._block(seed, place // BLOCK)[place % BLOCK] for place in places]

    def _drawn(self, seed: int, block: int) -> list[Pair]:
        return encoded(self.tokenizer, self._texts(seed, block))

    def _texts(self, seed: int, block: int) -> list[tuple[str, str]]:
        low, high = self.within
        found: list[tuple[str, str]] = []
        for attempt in range(TRIES):
            drawn = self.task.draw(generator(seed, self.stream, f"{block}/{attempt}"), BLOCK)
            found += [pair for pair in drawn if low <= place(*pair) < high]
            if len(found) >= BLOCK:
                return found[:BLOCK]
        raise ConfigError(
            "corpus.splits: there are too few different pairs for a share of them; take longer ones, or more"
            " words"
        )


class Read(Pairs):
    """Pairs read from files. Training takes each once per epoch, in an order drawn for that epoch."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.pairs, self.count = pairs, len(pairs)
        self._order = functools.lru_cache(2)(self._ordered)

    def to_train(self, seed: int, places: range) -> list[Pair]:
        turns = (divmod(place, len(self.pairs)) for place in places)
        return [self.pairs[self._order(seed, epoch)[at]] for epoch, at in turns]

    def keep(self, fits: Callable[[Pair], Pair | None]) -> "Read":
        return Read([pair for pair in map(fits, self.pairs) if pair is not None])

    def held_out(self) -> list[Pair]:
        return [*self.pairs]

    def _ordered(self, seed: int, epoch: int) -> np.ndarray:
        return generator(seed, "data", f"epoch/{epoch}").permutation(len(self.pairs))


def place(source: str, target: str) -> float:
    """As of `place_of`, by the content of a pair."""
    return place_of(f"{source}\n{target}".encode("utf-8", "surrogatepass"))


def encoded(tokenizer: Tokenizer, texts: Sequence[tuple[str, str]]) -> list[Pair]:
    """The pairs as ids."""
    sources, targets = (_ids(tokenizer, [pair[side] for pair in texts]) for side in (0, 1))
    return [*map(Pair, sources, targets)]


def _ids(tokenizer: Tokenizer, texts: list[str]) -> list[np.ndarray]:
    """The ids of each text, encoded all at once if the tokenizer allows it."""
    if tokenizer.name not in ("char", "byte") or not texts:
        return [tokenizer.encode(text) for text in texts]
    ids = tokenizer.encode("".join(texts))
    lengths = [len(text) if tokenizer.name == "char" else len(text.encode()) for text in texts]
    return np.split(ids, np.cumsum(lengths)[:-1])
