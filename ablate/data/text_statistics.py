"""What is known of a text without a model: how much of it repeats, and the loss of counting.

The counting line is the loss of the n-gram model of ablate.data.counting that is best on validation, on the
windows that a model is evaluated on.
"""

import contextlib
import functools
import itertools
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ablate.data.corpora import SPLITS
from ablate.data.corpus import Corpus
from ablate.data.counting import kneser_ney
from ablate.data.matches import overlap
from ablate.data.splits import Stream, spread
from ablate.data.tokenizers import Tokenizer
from ablate.files import cache
from ablate.files.atomic import digest

VERSION = 1  # raise it when a figure changes
ORDERS = {"bpe": 6}  # the longest n-grams, in tokens
LETTERS = 10  # the same where a token is a character or a byte
MOST = 4_000_000  # training tokens that are counted
LONG = 2_000_000  # training tokens from which on a line says that it takes a while
PIECE = 1 << 16  # tokens in a piece, of evenly spread ones, where there are more; and decoded at a time
HELD_OUT = SPLITS[1:]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TextStatistics:
    """characters: in each split. overlap: by (split, other split) the share of the characters of the first in
    stretches of 50 or more that the other has, too. order: of the n-grams, in tokens. loss: of counting, in
    nats a token, by split; probabilities: those that it gives the tokens of a split, but for the first,
    (targets,) float32. Splits that are empty are in none of these. counted: the share of the training tokens
    that was read."""

    characters: Mapping[str, int]
    overlap: Mapping[tuple[str, str], float]
    order: int
    loss: Mapping[str, float]
    counted: float
    probabilities: Mapping[str, np.ndarray] = field(compare=False)


def text_statistics(corpus: Corpus, context: int) -> TextStatistics | None:
    """The figures of a text that is read in windows of `context` tokens, from the cache if they are there;
    None for anything else than one text. It takes seconds, a minute for the largest texts."""
    texts = {name: split for name, split in corpus.splits.items() if isinstance(split, Stream)}
    if not texts:
        return None
    about = [corpus.sha256, corpus.tokenizer.sha256, corpus.config.splits]
    key = f"measured-{digest([VERSION, *about, context])}"
    if entry := cache.find(key):
        directory, figures = entry
        probabilities = {name: np.load(directory / f"{name}.npy", mmap_mode="r") for name in figures["loss"]}
    else:
        figures, probabilities = _measure(corpus, texts, context)
        with contextlib.suppress(OSError):  # a full disk ends no training
            cache.publish(key, functools.partial(_write, figures, probabilities))
    overlaps = {(name, other): share for name, other, share in figures["overlap"]}
    return TextStatistics(**{**figures, "overlap": overlaps}, probabilities=probabilities)


def _write(figures: dict, probabilities: Mapping[str, np.ndarray], directory: Path) -> dict:
    for name, of_split in probabilities.items():
        np.save(directory / f"{name}.npy", of_split)
    return figures


def _measure(
    corpus: Corpus, texts: Mapping[str, Stream], context: int
) -> tuple[dict, Mapping[str, np.ndarray]]:
    """All that `TextStatistics` has, as plain data, and the probabilities."""
    tokenizer, training = corpus.tokenizer, texts["train"].tokens
    if len(training) > LONG:
        log.warning("corpus=%s: measuring overlap and counting; once, up to a minute", corpus.name)
    held_out = {name: texts[name].tokens for name in HELD_OUT if texts[name].size}
    some = evenly(training, MOST)
    models = kneser_ney(some, held_out, vocab=tokenizer.vocab_size, context=context)
    losses, best = list[dict[str, float]](), dict[str, np.ndarray]()
    for probabilities in itertools.islice(models, ORDERS.get(tokenizer.name, LETTERS)):
        losses.append({name: float(-np.log(p).mean()) for name, p in probabilities.items()})
        if losses[-1]["validation"] == min(loss["validation"] for loss in losses):
            best = {name: p.astype(np.float32) for name, p in probabilities.items()}
    order = min(range(len(losses)), key=lambda at: losses[at]["validation"])
    figures = {
        "characters": {name: sum(map(len, decoded(text.tokens, tokenizer))) for name, text in texts.items()},
        "overlap": [
            (name, other, overlap(decoded(tokens, tokenizer), decoded(texts[other].tokens, tokenizer)))
            for name, tokens in held_out.items()
            for other in SPLITS[: SPLITS.index(name)]
        ],
        "order": order + 1,
        "loss": losses[order],
        "counted": len(some) / len(training),
    }
    return figures, best


def evenly(tokens: np.ndarray, most: int) -> np.ndarray:
    """The tokens, or `most` of them in evenly spread pieces."""
    if len(tokens) <= most:
        return tokens
    places = spread(len(tokens) // PIECE, most // PIECE) * PIECE
    return np.concatenate([tokens[place : place + PIECE] for place in places])


def decoded(tokens: np.ndarray, tokenizer: Tokenizer) -> Iterator[str]:
    """The text of these tokens, in pieces that end with a whole character."""
    start = 0
    while start < len(tokens):
        end = min(start + PIECE, len(tokens))
        text = tokenizer.decode(tokens[start:end])
        for shorter in range(end - 1, max(end - 4, start), -1):
            if end < len(tokens) and text.endswith("\ufffd"):  # a character has at most four tokens
                text, end = tokenizer.decode(tokens[start:shorter]), shorter
        yield text
        start = end
