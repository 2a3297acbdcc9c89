"""The loss of counting: an interpolated n-gram model with modified Kneser–Ney smoothing.

See: Chen and Goodman, "An empirical study of smoothing techniques for language modeling", 1998, equations 18
to 22. The highest order is of raw counts, each lower one of the number of different tokens that come before;
below single tokens stands the uniform distribution over the vocabulary. The counting line is the loss of the
order that is best on validation, on the windows that a model is evaluated on.

legend: L training tokens, J tokens of the held-out texts, one behind the other, U different n-grams of the
training text.
"""

import bisect
import contextlib
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ablate.data.corpora import SPLITS
from ablate.data.corpus import Corpus
from ablate.data.splits import spread
from ablate.files import cache
from ablate.files.atomic import digest, said_if_long

VERSION = 2  # raise it when a figure changes
ORDERS = {"bpe": 6}  # the longest n-grams, in tokens
LETTERS = 10  # the same where a token is a character or a byte
MOST = 4_000_000  # training tokens that are counted
PIECE = 1 << 16  # tokens in a piece, of evenly spread ones, where there are more
UNKNOWN = -1  # the number of an n-gram that does not occur in the training text
WEIGHTS = 1 << 40  # that a mixture is tried at, from 0 to 1
UNDEFINED = 0.5  # the discount of n-grams that occur once where their number leaves it undefined


@dataclass(frozen=True)
class TextStatistics:
    """order: of the n-grams, in tokens. loss: of counting, in nats a token, by split; probabilities: those
    that it gives the tokens of a split, but for the first, (targets,) float32. Splits that are empty are in
    neither. counted: the share of the training tokens that was read."""

    order: int
    loss: Mapping[str, float]
    counted: float
    probabilities: Mapping[str, np.ndarray] = field(compare=False)


def text_statistics(corpus: Corpus, context: int) -> TextStatistics | None:
    """The figures of a text that is read in windows of `context` tokens, from the cache if they are there;
    None for anything else than one text. It takes seconds, a minute for the largest texts."""
    if corpus.text is None:
        return None
    about = [corpus.sha256, corpus.tokenizer.sha256, corpus.config.splits]
    key = f"measured-{digest([VERSION, *about, context])}"
    if entry := cache.find(key):
        directory, figures = entry
        probabilities = {name: np.load(directory / f"{name}.npy", mmap_mode="r") for name in figures["loss"]}
        return TextStatistics(**figures, probabilities=probabilities)
    with said_if_long(f"corpus={corpus.config.name}: counting its n-grams, once"):
        measured = _measure(corpus, context)
    with contextlib.suppress(OSError):  # a full disk ends no training
        cache.publish(key, functools.partial(_write, measured))
    return measured


def _write(measured: TextStatistics, directory: Path) -> dict:
    for name, of_split in measured.probabilities.items():
        np.save(directory / f"{name}.npy", of_split)
    return {"order": measured.order, "loss": measured.loss, "counted": measured.counted}


def _measure(corpus: Corpus, context: int) -> TextStatistics:
    tokenizer, training = corpus.tokenizer, corpus.tokens("train")
    held_out = {name: corpus.tokens(name) for name in SPLITS[1:] if corpus.splits[name].size}
    some = evenly(training, MOST)

    def of_order(order: int, probabilities: dict[str, np.ndarray]) -> TextStatistics:
        loss = {name: float(-np.log(p).mean()) for name, p in probabilities.items()}
        kept = {name: p.astype(np.float32) for name, p in probabilities.items()}
        return TextStatistics(order, loss, len(some) / len(training), kept)

    models = kneser_ney(some, held_out, vocab=tokenizer.vocab_size, context=context)
    orders = range(1, ORDERS.get(tokenizer.name, LETTERS) + 1)
    return min(map(of_order, orders, models), key=lambda one: one.loss["validation"])


def evenly(tokens: np.ndarray, most: int) -> np.ndarray:
    """The tokens, or `most` of them in evenly spread pieces."""
    if len(tokens) <= most:
        return tokens
    places = spread(len(tokens) // PIECE, most // PIECE) * PIECE
    return np.concatenate([tokens[place : place + PIECE] for place in places])


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
    # Of the order that is read: the number of the n-gram that begins at each place of training, and of that
    # which ends with each token; prefix: of the first n − 1 tokens of either. UNKNOWN if there is none.
    at_L, number_J = np.zeros(len(training) + 1, np.int64), np.zeros(len(text_J), np.int64)
    prefix_U = prefix_J = number_J
    best_J = lower_J = np.full(len(text_J), 1 / vocab)  # lower_J: of the next lower order

    def interpolated(count_U: np.ndarray) -> np.ndarray:
        """(J,) the probability of each token by these counts of n-grams, interpolated with lower_J."""
        discount_U = discounts(count_U)[np.minimum(count_U, 3)]
        prefixes = max(prefix_U.max(), prefix_J.max()) + 2  # the last, which is UNKNOWN's, has no n-grams
        total_J, freed_J = (np.bincount(prefix_U, of, prefixes)[prefix_J] for of in (count_U, discount_U))
        kept_J = np.where(number_J >= 0, (count_U - discount_U)[number_J], 0)
        return np.divide(kept_J + freed_J * lower_J, total_J, out=lower_J.copy(), where=total_J > 0)

    for n in range(1, len(training) + 1):
        keys, first_U, longer_L, count_U = np.unique(
            at_L[: len(training) - n + 1] * vocab + training[n - 1 :],
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        if n > 1:
            before_U = np.bincount(at_L[first_U + 1], minlength=len(prefix_U))  # different tokens before each
            lower_J = interpolated(before_U)
        at_L, prefix_U = longer_L, keys // vocab
        prefix_J = np.roll(number_J, 1)
        prefix_J[begins] = UNKNOWN if n > 1 else 0
        wanted_J = prefix_J * vocab + text_J
        place_J = np.minimum(np.searchsorted(keys, wanted_J), len(keys) - 1)
        number_J = np.where((prefix_J >= 0) & (keys[place_J] == wanted_J), place_J, UNKNOWN)
        best_J = np.where(before_J >= n - 1, interpolated(count_U), best_J)
        parts = np.split(best_J, begins[1:])
        yield {name: part[1:] for name, part in zip(held_out, parts, strict=True)}


def discounts(count_U: np.ndarray) -> np.ndarray:
    """(4,) what is subtracted from a count of 0, 1, 2, and of 3 or more. A discount that the counts leave
    undefined, or that is not above 0, is that of the count below."""
    n = np.bincount(np.minimum(count_U, 5), minlength=5)
    share = n[1] / (n[1] + 2 * n[2]) if n[1] else 0.0
    result = [0.0]
    for count in (1, 2, 3):
        discount = count - (count + 1) * share * n[count + 1] / n[count] if n[count] else 0.0
        result.append(discount if share and discount > 0 else result[-1] or UNDEFINED)
    return np.array(result)


def mixture(model_J: np.ndarray, counting_J: np.ndarray) -> float:
    """The weight of the model, from 0 to 1, at which the mixture of two probabilities of each token has the
    least loss. The loss is convex in it, so its slope is halved in on."""
    gain_J = model_J - counting_J

    def slope(step: int) -> float:
        return -(gain_J / (counting_J + step / WEIGHTS * gain_J)).sum()

    return (bisect.bisect_left(range(1, WEIGHTS), 0, key=slope) + 0.5) / WEIGHTS
