"""The counting model: its probabilities by the formula, written again with dictionaries."""

import itertools
from collections import Counter, defaultdict

import numpy as np
import pytest

from ablate.data.counting import discounts, kneser_ney


class ByTheBook:
    """Modified Kneser–Ney of one order, a count at a time."""

    def __init__(self, text: list[int], vocab: int, order: int) -> None:
        self.vocab, self.order = vocab, order
        self.counts: dict[int, Counter[tuple[int, ...]]] = {}
        for n in range(1, order + 1):
            whole = Counter(tuple(text[i : i + n]) for i in range(len(text) - n + 1))
            if n < order:
                longer = {tuple(text[i : i + n + 1]) for i in range(len(text) - n)}
                whole = Counter(gram[1:] for gram in longer)
            self.counts[n] = whole
        self.discounts = {n: self.discount(counts) for n, counts in self.counts.items()}

    @staticmethod
    def discount(counts: Counter[tuple[int, ...]]) -> dict[int, float]:
        of = Counter(counts.values())
        result, last = {}, 0.5
        for c in (1, 2, 3):
            if of[1] and of[c]:
                value = c - (c + 1) * of[1] / (of[1] + 2 * of[2]) * of[c + 1] / of[c]
                last = value if value > 0 else last
            result[c] = last
        return result

    def probability(self, history: tuple[int, ...], token: int) -> float:
        history = history[-(self.order - 1) :] if self.order > 1 else ()
        return self.recurse(len(history) + 1, history, token)

    def recurse(self, n: int, history: tuple[int, ...], token: int) -> float:
        if n == 0:
            return 1 / self.vocab
        lower = self.recurse(n - 1, history[1:], token)
        follow = {gram[-1]: c for gram, c in self.counts[n].items() if gram[:-1] == history and c}
        if not follow:
            return lower
        taken = self.discounts[n]
        kept = max(follow.get(token, 0) - taken[min(follow[token], 3)], 0) if token in follow else 0
        freed = sum(taken[min(c, 3)] for c in follow.values())
        return (kept + freed * lower) / sum(follow.values())


def made_text(length: int, vocab: int, seed: int) -> np.ndarray:
    """A text in which what comes next depends on two tokens before, with rare tokens."""
    draws = np.random.default_rng(seed)
    table = draws.dirichlet(np.full(vocab, 0.15), size=(vocab, vocab))
    text = [0, 1]
    while len(text) < length:
        text.append(int(draws.choice(vocab, p=table[text[-2], text[-1]])))
    return np.array(text)


@pytest.mark.parametrize("context", [1, 3, 50])
def test_its_loss_is_that_of_the_formula(context):
    training, other, vocab = made_text(400, 9, 0), made_text(60, 9, 1), 10
    models = kneser_ney(training, {"other": other}, vocab=vocab, context=context)
    for order, probabilities in enumerate(itertools.islice(models, 5), 1):
        expected = []
        for place in range(1, len(other)):
            start = (place - 1) // context * context
            history = tuple(other[start:place].tolist())
            book = ByTheBook(training.tolist(), vocab, min(order, len(history) + 1))
            expected.append(book.probability(history, int(other[place])))
        assert probabilities["other"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    "training", [made_text(300, 7, 2), np.zeros(40, int), np.arange(7), np.array([3, 3])]
)
def test_its_probabilities_sum_to_one(training):
    history, vocab = [1, 0, 2, 1], 7
    total = defaultdict(float)
    for token in range(vocab):
        text = np.array([*history, token])
        for order, probabilities in enumerate(kneser_ney(training, {"": text}, vocab=vocab, context=9)):
            assert probabilities[""][-1] > 0
            total[order] += probabilities[""][-1]
            if order == 5:
                break
    assert [*total.values()] == pytest.approx([1.0] * len(total), abs=1e-9) and total


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([1, 1, 1, 1, 2, 2, 3, 4], [0.5, 2 - 3 * 0.5 / 2, 3 - 4 * 0.5]),  # 4, 2, 1, 1 of them: a share of 1/2
        ([1, 1, 1], [1.0, 1.0, 1.0]),
        ([2, 2, 5], [0.5, 0.5, 0.5]),
        ([1, 2, 3, 3, 3], [1 / 3, 1 / 3, 3.0]),  # that of 2 would be 2 − 3 · 1/3 · 3 = −1
    ],
)
def test_discounts_where_counts_leave_them_undefined(counts, expected):
    assert discounts(np.array(counts)) == pytest.approx([0.0, *expected])
