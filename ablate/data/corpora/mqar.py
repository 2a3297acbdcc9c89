from dataclasses import dataclass
from typing import Literal

import numpy as np

from ablate.config.rules import Count
from ablate.data.corpora import IGNORE_INDEX, Task, distinct, register

CLOSE = 0.01  # parameter of the power law of the distance between a question and the pairs


@register("mqar")
@dataclass(frozen=True, kw_only=True)
class MQAR(Task):
    """Multi-query associative recall: pairs of a key and a value, then each key again, asking for its value.

    Keys come from the lower half of the vocabulary without 0, values from the upper half, all distinct within
    a row. A question is 2g positions after the pairs, with g drawn without replacement by p(g) ∝
    (g + 1)^(0.01 − 1); between questions is filler: random words, or the word 0 (blank).
    See: Arora et al., "Zoology: measuring and improving recall", arXiv 2312.04927.
    """

    pairs: Count
    filler: Literal["random", "blank"]

    def least(self) -> dict[str, int]:
        return {"length": 4 * self.pairs, "vocabulary": 2 * self.pairs + 2}

    def draw(self, draws: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        middle, start = self.vocabulary // 2, 2 * self.pairs
        keys_NP = 1 + distinct(draws, count, middle - 1, self.pairs)
        values_NP = middle + distinct(draws, count, self.vocabulary - middle, self.pairs)
        shape = (count, self.length)
        inputs_NT = draws.integers(self.vocabulary, size=shape) * (self.filler == "random")
        inputs_NT[:, 0:start:2], inputs_NT[:, 1:start:2] = keys_NP, values_NP
        # The smallest of exponentials with rates p, in ascending order, are a draw without replacement by p.
        gaps = (self.length - start) // 2
        waits_Ng = draws.standard_exponential((count, gaps)) * np.arange(1, gaps + 1) ** (1 - CLOSE)
        place_NP = start + 2 * waits_Ng.argsort(1)[:, : self.pairs]
        np.put_along_axis(inputs_NT, place_NP, keys_NP, 1)
        targets_NT = np.full_like(inputs_NT, IGNORE_INDEX)
        np.put_along_axis(targets_NT, place_NP, values_NP, 1)
        return inputs_NT, targets_NT
