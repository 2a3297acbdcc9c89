from dataclasses import dataclass

import numpy as np

from ablate.data.corpora import IGNORE_INDEX, Task, distinct, register


@register("induction")
@dataclass(frozen=True, kw_only=True)
class Induction(Task):
    """Distinct words, then the last n of them again in the same order: what followed this word before?

    n is drawn for each row, from T/4 to T/2, so no fixed distance works: a head has to find the earlier
    occurrence of the current word and take the word after it, which one layer can't do. The last T/4 − 1
    words are to be predicted. See: Olsson et al., "In-context learning and induction heads",
    arXiv 2209.11895.
    """

    def least(self) -> dict[str, int]:
        return {"length": 8, "vocabulary": self.length}

    def draw(self, draws: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        T = self.length
        words_NT = distinct(draws, count, self.vocabulary, T)
        back_N1 = draws.integers(T // 4, T // 2 + 1, (count, 1))
        place_T = np.arange(T)
        inputs_NT = np.take_along_axis(words_NT, place_T - back_N1 * (place_T >= T - back_N1), 1)
        targets_NT = np.full_like(inputs_NT, IGNORE_INDEX)
        asked = T // 4 - 1
        targets_NT[:, -asked - 1 : -1] = inputs_NT[:, -asked:]
        return inputs_NT, targets_NT
