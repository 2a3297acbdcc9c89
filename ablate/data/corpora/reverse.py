import numpy as np

from ablate.data.corpora import register
from ablate.data.corpora.copy import WordTask


@register("reverse")
class Reverse(WordTask):
    """Words, then the same words from last to first."""

    def answer(self, words: np.ndarray) -> np.ndarray:
        return words[..., ::-1]
