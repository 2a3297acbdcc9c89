import numpy as np

from ablate.data.corpora import register
from ablate.data.corpora.copy import WordTask


@register("sort")
class Sort(WordTask):
    """Words, then the same words from the smallest to the largest."""

    def answer(self, words: np.ndarray) -> np.ndarray:
        return np.sort(words)
