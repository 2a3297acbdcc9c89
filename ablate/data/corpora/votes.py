"""corpus=votes: how many ayes stand? A task that shows what attention heads are for.

A head can look for the last vote of one voter. So a layer with a head for each voter can count; with fewer
heads it has to do so in another way.

legend: N examples, T positions in each, V voters.
"""

import math
from dataclasses import dataclass

import numpy as np

from ablate.config.rules import Count
from ablate.data.corpora import IGNORE_INDEX, Task, register

LAST = 4  # the most votes from which the best guess is shown


@register("votes")
@dataclass(frozen=True, kw_only=True)
class Votes(Task):
    """Votes of some voters, who change their minds, and the question how many ayes stand.

    A vote is one word, drawn uniformly, which names the voter and says no (2·voter) or aye (2·voter + 1).
    After T − 1 votes the word 2V asks for the number of voters whose last vote is aye; who has not voted is
    none of them. The answers 0 to V are the words from 2V + 1 on. Related theory: D-retrieval, arXiv
    2510.06662.
    """

    voters: Count

    def least(self) -> dict[str, int]:
        return {"length": 2, "vocabulary": 3 * self.voters + 2}

    def draw(self, draws: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        inputs_NT = draws.integers(2 * self.voters, size=(count, self.length))
        inputs_NT[:, -1] = 2 * self.voters
        ayes_NV = np.zeros((count, self.voters), bool)
        for votes_N in inputs_NT[:, :-1].T:
            ayes_NV[np.arange(count), votes_N // 2] = votes_N % 2
        targets_NT = np.full_like(inputs_NT, IGNORE_INDEX)
        targets_NT[:, -1] = 2 * self.voters + 1 + ayes_NV.sum(1)
        return inputs_NT, targets_NT

    @property
    def known(self) -> dict[str, str]:
        shares = [f"{100 * self.best_guess(last):.1f}" for last in range(min(LAST, self.length - 1) + 1)]
        return {"best guess": f"{' %, '.join(shares)} % right, by the last 0, 1, 2, … votes"}

    def best_guess(self, last: int) -> float:
        """The largest share of right answers for who knows so many of the last votes, and nothing else."""
        before, right = self.length - 1 - last, 0.0
        for known, share in enumerate(self._having_voted(self.voters, last)):
            others = self.voters - known
            voted = self._having_voted(others, before)
            ayes = [
                sum(p * math.comb(some, n) / 2**some for some, p in enumerate(voted))
                for n in range(others + 1)
            ]
            right += share * max(ayes)
        return float(right)

    def _having_voted(self, some: int, votes: int) -> np.ndarray:
        """(some + 1,) the probabilities that 0, 1, … of some of the voters cast any of these votes."""
        share = np.eye(some + 1)[0]
        for _ in range(votes):
            new = np.arange(some, -1, -1) / self.voters  # that the next vote is by another of them
            share = share * (1 - new) + np.roll(share * new, 1)
        return share
