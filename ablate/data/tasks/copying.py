"""Tasks that repeat words: in the same order, backwards, or after a distance that varies (induction)."""

from dataclasses import dataclass

import numpy as np

from ablate.config.rules import ConfigError
from ablate.data.tasks.base import Task, distinct, nothing_asked

SEPARATOR = 0


@dataclass(frozen=True)
class Halves(Task):
    """An episode with T/2 words in the first half and the answers about them in the second."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length % 2 or self.length < 4:
            even = max(4, self.length - self.length % 2)
            raise ConfigError(
                f"corpus.length={self.length}: an episode has two halves; take an even number, as {even}"
            )


@dataclass(frozen=True)
class Copy(Halves):
    """n = T/2 words, the separator 0, and the words again; all n repeated words are to be predicted.

    One head in one layer can do it, by looking n positions back.
    """

    @property
    def asked(self) -> int:
        return self.length // 2

    def draw(self, draws: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        words_Nn = draws.integers(1, self.vocabulary, (count, self.asked))
        answers_Nn = self.answers(words_Nn)
        between_N1 = np.full((count, 1), SEPARATOR)
        inputs_NT = np.concatenate([words_Nn, between_N1, answers_Nn[:, :-1]], 1)
        targets_NT = nothing_asked(inputs_NT)
        targets_NT[:, self.asked :] = answers_Nn
        return inputs_NT, targets_NT

    def answers(self, words_Nn: np.ndarray) -> np.ndarray:
        return words_Nn


@dataclass(frozen=True)
class Reverse(Copy):
    """As Copy, but the words are repeated in reverse order."""

    def answers(self, words_Nn: np.ndarray) -> np.ndarray:
        return words_Nn[:, ::-1]


@dataclass(frozen=True)
class Induction(Halves):
    """Distinct words, then the last n of them again in the same order: what followed this word before?

    n is drawn for each episode, from T/4 to T/2, so no fixed distance works: a head has to find the earlier
    occurrence of the current word and take the word after it, which one layer can't do. The last T/4 − 1
    words are to be predicted. See: Olsson et al., "In-context learning and induction heads",
    arXiv 2209.11895.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length < 8:
            raise ConfigError(
                f"corpus.length={self.length}: too short to say anything again; take 8 at least"
            )
        if self.vocabulary < self.length:
            raise ConfigError(
                f"corpus.vocabulary={self.vocabulary}: an episode has up to {self.length} different words;"
                f" take corpus.vocabulary={self.length} at least, or a smaller corpus.length"
            )

    @property
    def asked(self) -> int:
        return self.length // 4 - 1

    def draw(self, draws: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        T = self.length
        words_NT = distinct(draws, count, self.vocabulary, T)
        back_N1 = draws.integers(T // 4, T // 2 + 1, (count, 1))
        place_T = np.arange(T)
        inputs_NT = np.take_along_axis(words_NT, place_T - back_N1 * (place_T >= T - back_N1), 1)
        targets_NT = nothing_asked(inputs_NT)
        targets_NT[:, -self.asked - 1 : -1] = inputs_NT[:, -self.asked :]
        return inputs_NT, targets_NT
