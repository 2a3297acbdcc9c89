"""The loss of counting: an interpolated n-gram model with modified Kneser–Ney smoothing.

See: Chen and Goodman, "An empirical study of smoothing techniques for language modeling", 1998, equations 18
to 22. The highest order is of raw counts, each lower one of the number of different tokens that come before;
below single tokens stands the uniform distribution over the vocabulary.

legend: L training tokens, J targets of a held-out text, U different n-grams of the training text.
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
    its first, (J,) float64.

    training: ids of one text. context: a held-out text is read in adjacent windows of so many tokens, as by a
    language model: the model sees of a window what comes before the target.
    """
    texts = {name: tokens.astype(np.int64) for name, tokens in held_out.items()}
    training = training.astype(np.int64)
    # How many tokens of its window come before each target.
    before = {name: np.arange(len(text) - 1) % context + 1 for name, text in texts.items()}
    lower = {name: np.full(len(text) - 1, 1 / vocab) for name, text in texts.items()}
    best = lower
    grams = _Grams.empty(training, texts)
    while len(training) > grams.order:
        longer = grams.longer(training, texts, vocab)
        if grams.order:
            lower = grams.probabilities(grams.different_before(longer), lower)
        full = longer.probabilities(longer.count_U, lower)
        best = {name: np.where(before[name] >= grams.order, full[name], best[name]) for name in texts}
        grams = longer
        yield best


@dataclass(frozen=True)
class _Grams:
    """The n-grams of the training text, by number, those with the same first n − 1 tokens side by side.

    at_L: the number of the n-gram that begins at each place. first_U: where each n-gram begins first.
    prefix_U: the number of its first n − 1 tokens. count_U: how often it occurs. held_out: by text, the
    number of the n-gram that ends at each place. prefixes: likewise, of the n − 1 tokens before each place.
    """

    order: int
    at_L: np.ndarray
    first_U: np.ndarray
    prefix_U: np.ndarray
    count_U: np.ndarray
    held_out: Mapping[str, np.ndarray]
    prefixes: Mapping[str, np.ndarray]

    @classmethod
    def empty(cls, training: np.ndarray, texts: Mapping[str, np.ndarray]) -> "_Grams":
        """The one n-gram without tokens."""
        zeros = {name: np.zeros(len(text), np.int64) for name, text in texts.items()}
        one = np.zeros(1, np.int64)
        return cls(0, np.zeros(len(training) + 1, np.int64), one, one, one, zeros, {})

    def longer(self, training: np.ndarray, texts: Mapping[str, np.ndarray], vocab: int) -> "_Grams":
        """The n-grams with one more token."""
        keys, first_U, at_L, count_U = np.unique(
            self.at_L[: len(training) - self.order] * vocab + training[self.order :],
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        held_out, prefixes = {}, {}
        for name, text in texts.items():
            cut_off = UNKNOWN if self.order else 0
            prefix = prefixes[name] = np.append(cut_off, self.held_out[name][:-1])
            wanted = prefix * vocab + text
            place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
            held_out[name] = np.where((prefix >= 0) & (keys[place] == wanted), place, UNKNOWN)
        return _Grams(self.order + 1, at_L, first_U, keys // vocab, count_U, held_out, prefixes)

    def different_before(self, longer: "_Grams") -> np.ndarray:
        """(U,) the number of different tokens before each n-gram. longer: those with one more token."""
        return np.bincount(self.at_L[longer.first_U + 1], minlength=len(self.count_U))

    def probabilities(self, count_U: np.ndarray, lower: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The probability of each held-out token by these counts, interpolated with `lower`, that of the next
        lower order."""
        discount_U = discounts(count_U)[np.minimum(count_U, 3)]
        prefixes = int(self.prefix_U.max()) + 1
        total = np.bincount(self.prefix_U, count_U, prefixes)
        freed = np.bincount(self.prefix_U, discount_U, prefixes)
        kept_U = count_U - discount_U
        result = {}
        for name, probability in lower.items():
            prefix, number = self.prefixes[name][1:], self.held_out[name][1:]
            known = (prefix >= 0) & (prefix < prefixes)
            known[known] = total[prefix[known]] > 0
            at = prefix[known]
            kept = np.where(number[known] >= 0, kept_U[number[known]], 0)
            result[name] = probability.copy()
            result[name][known] = (kept + freed[at] * probability[known]) / total[at]
        return result


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
