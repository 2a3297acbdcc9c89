"""The contract of a task of synthetic examples.

legend: N episodes, T positions in each.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from ablate.config.rules import ConfigError
from ablate.data.splits import NOT_ASKED


@dataclass(frozen=True)
class Task(ABC):
    """Draws episodes: rows of words, some of which are to be predicted from the words before them.

    length: words in an episode, T. vocabulary: the number of words, which are 0 to vocabulary − 1. asked: how
    many words are to be predicted, the same in every episode. Raises ConfigError for incompatible sizes.
    """

    length: int
    vocabulary: int

    def __post_init__(self) -> None:
        if self.vocabulary < 2:
            raise ConfigError(
                f"corpus.vocabulary={self.vocabulary}: there is nothing to choose from; take 2 words at least"
            )

    @property
    @abstractmethod
    def asked(self) -> int: ...

    @abstractmethod
    def draw(self, draws: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """`count` episodes: inputs and targets, each (N, T), NOT_ASKED where nothing is to be predicted."""


def nothing_asked(inputs_NT: np.ndarray) -> np.ndarray:
    """Targets that are NOT_ASKED everywhere."""
    return np.full_like(inputs_NT, NOT_ASKED)


def distinct(draws: np.random.Generator, count: int, of: int, some: int) -> np.ndarray:
    """(count, some): in each row `some` distinct numbers below `of`, all choices and orders equally likely.

    See: Floyd in Bentley, "Programming pearls: a sample of brilliance", 1987.
    """
    chosen = np.empty((count, some), np.int64)
    for place, top in enumerate(range(of - some, of)):
        number = draws.integers(top + 1, size=count)
        taken = (chosen[:, :place] == number[:, None]).any(1)
        chosen[:, place] = np.where(taken, top, number)
    return draws.permuted(chosen, axis=1)
