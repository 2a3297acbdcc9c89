"""The loss of counting: an interpolated n-gram model with modified Kneser–Ney smoothing.

See: Chen and Goodman, "An empirical study of smoothing techniques for language modeling", 1998, equations 18
to 22. The highest order is of raw counts, each lower one of the number of different tokens that come before;
below single tokens stands the uniform distribution over the vocabulary.

legend: L training tokens, J tokens of the held-out texts, one behind the other, U different n-grams of the
training text.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

UNKNOWN = -1  # the number of an n-gram that does not occur in the training text
UNDEFINED = 0.5  # the discount of n-grams that occur once where their number leaves it undefined


def kneser_ney(
    training: np.ndarray, held_out: Mapping[str, np.ndarray], *, vocab: int, context: int
) -> Iterator[dict[str, np.ndarray]]:
    """For n = 1, 2, … the probability that the model of order n gives each token of each held-out text but
    its first, float64.

    training: ids of one text. context: a held-out text is read in adjacent windows of so many tokens, as by a
    language model: the model sees of a window what comes before the target.
    """
    training, text_J = training.astype(np.int64), np.concatenate([*held_out.values()]).astype(np.int64)
    sizes = [*map(len, held_out.values())]
    begins = np.cumsum([0, *sizes[:-1]])
    # How many tokens of its window come before each target.
    before_J = np.concatenate([(np.arange(size) - 1) % context + 1 for size in sizes])
    best_J = lower_J = np.full(len(text_J), 1 / vocab)
    grams = _Grams.empty(training, text_J)
    while len(training) > grams.order:
        longer = grams.longer(training, text_J, begins, vocab)
        if grams.order:
            lower_J = grams.probabilities(grams.different_before(longer), lower_J)
        full_J = longer.probabilities(longer.count_U, lower_J)
        best_J = np.where(before_J >= grams.order, full_J, best_J)
        grams = longer
        parts = np.split(best_J, begins[1:])
        yield {name: part[1:] for name, part in zip(held_out, parts, strict=True)}


@dataclass(frozen=True)
class _Grams:
    """The n-grams of the training text, by number, those with the same first n − 1 tokens side by side.

    at_L: the number of the n-gram that begins at each place. first_U: where each n-gram begins first.
    prefix_U: the number of its first n − 1 tokens. count_U: how often it occurs. number_J: of the n-gram that
    ends at each place of the held-out texts. prefix_J: likewise, of the n − 1 tokens before each place.
    """

    order: int
    at_L: np.ndarray
    first_U: np.ndarray
    prefix_U: np.ndarray
    count_U: np.ndarray
    number_J: np.ndarray
    prefix_J: np.ndarray

    @classmethod
    def empty(cls, training: np.ndarray, text_J: np.ndarray) -> "_Grams":
        """The one n-gram without tokens."""
        zeros_J, one = np.zeros(len(text_J), np.int64), np.zeros(1, np.int64)
        return cls(0, np.zeros(len(training) + 1, np.int64), one, one, one, zeros_J, zeros_J)

    def longer(self, training: np.ndarray, text_J: np.ndarray, begins: np.ndarray, vocab: int) -> "_Grams":
        """The n-grams with one more token. begins: where each held-out text begins."""
        keys, first_U, at_L, count_U = np.unique(
            self.at_L[: len(training) - self.order] * vocab + training[self.order :],
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        prefix_J = np.roll(self.number_J, 1)
        prefix_J[begins] = UNKNOWN if self.order else 0
        wanted_J = prefix_J * vocab + text_J
        place_J = np.minimum(np.searchsorted(keys, wanted_J), len(keys) - 1)
        number_J = np.where((prefix_J >= 0) & (keys[place_J] == wanted_J), place_J, UNKNOWN)
        return _Grams(self.order + 1, at_L, first_U, keys // vocab, count_U, number_J, prefix_J)

    def different_before(self, longer: "_Grams") -> np.ndarray:
        """(U,) the number of different tokens before each n-gram. longer: those with one more token."""
        return np.bincount(self.at_L[longer.first_U + 1], minlength=len(self.count_U))

    def probabilities(self, count_U: np.ndarray, lower_J: np.ndarray) -> np.ndarray:
        """(J,) the probability of each held-out token by these counts, interpolated with that of the next
        lower order."""
        discount_U = discounts(count_U)[np.minimum(count_U, 3)]
        prefixes = int(self.prefix_U.max()) + 1
        total = np.bincount(self.prefix_U, count_U, prefixes)
        freed = np.bincount(self.prefix_U, discount_U, prefixes)
        known_J = (self.prefix_J >= 0) & (self.prefix_J < prefixes)
        known_J[known_J] = total[self.prefix_J[known_J]] > 0
        at, number = self.prefix_J[known_J], self.number_J[known_J]
        kept = np.where(number >= 0, (count_U - discount_U)[number], 0)
        result_J = lower_J.copy()
        result_J[known_J] = (kept + freed[at] * lower_J[known_J]) / total[at]
        return result_J


def discounts(count_U: np.ndarray) -> np.ndarray:
    """(4,) what is subtracted from a count of 0, 1, 2, and of 3 or more. A discount that the counts leave
    undefined, or that is not above 0, is that of the count below."""
    n = np.bincount(np.minimum(count_U, 5), minlength=5)
    share = n[1] / (n[1] + 2 * n[2]) if n[1] else 0.0
    result = [0.0, UNDEFINED, UNDEFINED, UNDEFINED]
    for count in (1, 2, 3):
        below = result[count - 1] or UNDEFINED
        discount = count - (count + 1) * share * n[count + 1] / n[count] if n[count] else 0.0
        result[count] = discount if share and discount > 0 else below
    return np.array(result)


def mixture(model_J: np.ndarray, counting_J: np.ndarray) -> float:
    """The weight of the model, from 0 to 1, at which the mixture of two probabilities of each token has the
    least loss. The loss is convex in it, so its slope is halved in on."""
    gain_J = model_J - counting_J
    low, high = 0.0, 1.0
    for _ in range(40):
        weight = (low + high) / 2
        if (gain_J / (counting_J + weight * gain_J)).sum() > 0:
            low = weight
        else:
            high = weight
    return (low + high) / 2
