"""Tasks whose target has the words of the source: in the same order, reversed, or sorted."""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from ablate.config.rules import ConfigError
from ablate.data.pairs.base import PairTask

EDGE = 0  # the word at the ends of a text, which no text contains


@dataclass(frozen=True)
class WordTask(PairTask):
    """Texts of 1 to `most` words, each length equally often; the words are numbers from 1 to vocabulary − 1.

    length: the most tokens of source and target together, with an edge each. Raises ConfigError if the sizes
    leave too few words or positions.
    """

    length: int
    vocabulary: int

    def __post_init__(self) -> None:
        if self.vocabulary < 3:
            raise ConfigError(
                f"corpus.vocabulary={self.vocabulary}: the word 0 stands at the ends, and one other leaves"
                " nothing to choose from; take 3 words at least"
            )
        if self.most < 1:
            raise ConfigError(
                f"corpus.length={self.length}: a source, a target and their ends take 4 positions; take 4 at"
                " least"
            )

    @property
    def most(self) -> int:
        return self.length // 2 - 1

    @property
    def longest(self) -> tuple[int, int]:
        return self.most, self.most

    def draw(self, draws: np.random.Generator, count: int) -> list[tuple[str, str]]:
        lengths_N = draws.integers(1, self.most + 1, count)
        words_Nn = draws.integers(1, self.vocabulary, (count, self.most))
        sources = [words[:length] for words, length in zip(words_Nn, lengths_N, strict=True)]
        return [(_written(source), _written(self.answer(source))) for source in sources]

    def aligned(self, source: str, target: str) -> np.ndarray:
        return self.origins(np.array(source.split(), int))

    @abstractmethod
    def answer(self, words_n: np.ndarray) -> np.ndarray:
        """The target of a source."""

    @abstractmethod
    def origins(self, words_n: np.ndarray) -> np.ndarray:
        """(n, n) booleans: whether a word of the target comes from a word of the source."""


@dataclass(frozen=True)
class Copy(WordTask):
    """The same words in the same order."""

    def answer(self, words_n: np.ndarray) -> np.ndarray:
        return words_n

    def origins(self, words_n: np.ndarray) -> np.ndarray:
        return np.eye(len(words_n), dtype=bool)


@dataclass(frozen=True)
class Reverse(WordTask):
    """The same words, from last to first."""

    def answer(self, words_n: np.ndarray) -> np.ndarray:
        return words_n[::-1]

    def origins(self, words_n: np.ndarray) -> np.ndarray:
        return np.eye(len(words_n), dtype=bool)[::-1]


@dataclass(frozen=True)
class Sort(WordTask):
    """The same words, from the smallest to the largest. Equal words are the same, so each comes from all."""

    def answer(self, words_n: np.ndarray) -> np.ndarray:
        return np.sort(words_n)

    def origins(self, words_n: np.ndarray) -> np.ndarray:
        return np.sort(words_n)[:, None] == words_n[None]


def _written(words_n: np.ndarray) -> str:
    return " ".join(map(str, words_n.tolist()))
