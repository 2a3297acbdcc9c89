from dataclasses import dataclass

import numpy as np

from ablate.config.rules import ConfigError
from ablate.data.tasks.base import Task, distinct, nothing_asked

CLOSE = 0.01  # parameter of the power law of the distance between a question and the pairs


@dataclass(frozen=True)
class MQAR(Task):
    """Multi-query associative recall: pairs of a key and a value, then each key again, asking for its value.

    Keys come from the lower half of the vocabulary without 0, values from the upper half, all distinct within
    an episode. A question is 2g positions after the pairs, with g drawn without replacement by p(g) ∝
    (g + 1)^(0.01 − 1); between questions is filler: random words, or the word 0 (blank).
    See: Arora et al., "Zoology: measuring and improving recall", arXiv 2312.04927.
    """

    pairs: int
    filler: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if 4 * self.pairs > self.length:
            raise ConfigError(
                f"corpus.pairs={self.pairs}: pairs and questions take {4 * self.pairs} positions, and"
                f" corpus.length={self.length} has fewer; take {self.length // 4} pairs at most"
            )
        if self.pairs > (keys := self.vocabulary // 2 - 1):
            raise ConfigError(
                f"corpus.pairs={self.pairs}: corpus.vocabulary={self.vocabulary} holds {keys} keys; take"
                f" corpus.vocabulary={2 * self.pairs + 2} at least, or fewer pairs"
            )

    @property
    def asked(self) -> int:
        return self.pairs

    def draw(self, draws: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        middle, told = self.vocabulary // 2, 2 * self.pairs
        keys_NP = 1 + distinct(draws, count, middle - 1, self.pairs)
        values_NP = middle + distinct(draws, count, self.vocabulary - middle, self.pairs)
        shape = (count, self.length)
        inputs_NT = draws.integers(self.vocabulary, size=shape) * (self.filler == "random")
        inputs_NT[:, 0:told:2], inputs_NT[:, 1:told:2] = keys_NP, values_NP
        # The smallest of exponentials with rates p, in ascending order, are a draw without replacement by p.
        gaps = (self.length - told) // 2
        waits_Ng = draws.standard_exponential((count, gaps)) * np.arange(1, gaps + 1) ** (1 - CLOSE)
        asked_NP = told + 2 * waits_Ng.argsort(1)[:, : self.pairs]
        np.put_along_axis(inputs_NT, asked_NP, keys_NP, 1)
        targets_NT = nothing_asked(inputs_NT)
        np.put_along_axis(targets_NT, asked_NP, values_NP, 1)
        return inputs_NT, targets_NT
