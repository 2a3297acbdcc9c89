"""corpus=copy, and the base of the tasks whose target has the source's words, as one text or as pairs."""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from ablate.config.rules import ConfigError
from ablate.data.corpora import IGNORE_INDEX, Task, register

SEPARATOR = 0  # the word between a source and its target, which neither contains


@dataclass(frozen=True, kw_only=True)
class WordTask(Task):
    """Random words and their answer: as one row, n = T/2 words, the separator 0 and n words of answer, to
    be predicted; as a pair, 1 to T/2 − 1 words, each number of them equally often.

    length: of a row, T; of a source and a target together, with a separator each, at most.
    """

    read_as = ("task", "pairs")

    def least(self) -> dict[str, int]:
        return {"length": 4, "vocabulary": 3}

    def draw(self, draws: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        if self.length % 2:
            raise ConfigError(
                f"corpus.length={self.length}: a row has two halves; take an even number, {self.length - 1}"
            )
        n = self.length // 2
        words_Nn = draws.integers(1, self.vocabulary, (count, n))
        answers_Nn = self.answer(words_Nn)
        between_N1 = np.full((count, 1), SEPARATOR)
        inputs_NT = np.concatenate([words_Nn, between_N1, answers_Nn[:, :-1]], 1)
        targets_NT = np.full_like(inputs_NT, IGNORE_INDEX)
        targets_NT[:, n:] = answers_Nn
        return inputs_NT, targets_NT

    def draw_pairs(self, draws: np.random.Generator, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Draw `count` pairs, each the words of a source and of a target."""
        longest = self.length // 2 - 1
        lengths_N = draws.integers(1, longest + 1, count)
        words_Nn = draws.integers(1, self.vocabulary, (count, longest))
        sources = [words[:length] for words, length in zip(words_Nn, lengths_N, strict=True)]
        return [(source, self.answer(source)) for source in sources]

    @abstractmethod
    def answer(self, words: np.ndarray) -> np.ndarray:
        """The answer to words, (…, n), of the same shape."""


@register("copy")
class Copy(WordTask):
    """Words, then the same words in the same order. One head in one layer can do it, by looking n positions
    back."""

    def answer(self, words: np.ndarray) -> np.ndarray:
        return words
