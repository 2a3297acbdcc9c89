"""What counting makes of a text, without a model.

The counting line is the loss of the n-gram model of ablate.data.counting that is best on validation, on the
windows that a model is evaluated on.
"""

import contextlib
import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ablate.data.corpora import SPLITS
from ablate.data.corpus import Corpus
from ablate.data.counting import kneser_ney
from ablate.data.splits import spread
from ablate.files import cache
from ablate.files.atomic import digest, said_if_long

VERSION = 2  # raise it when a figure changes
ORDERS = {"bpe": 6}  # the longest n-grams, in tokens
LETTERS = 10  # the same where a token is a character or a byte
MOST = 4_000_000  # training tokens that are counted
PIECE = 1 << 16  # tokens in a piece, of evenly spread ones, where there are more


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
    models = kneser_ney(some, held_out, vocab=tokenizer.vocab_size, context=context)
    losses, best = list[dict[str, float]](), dict[str, np.ndarray]()
    for probabilities in itertools.islice(models, ORDERS.get(tokenizer.name, LETTERS)):
        losses.append({name: float(-np.log(p).mean()) for name, p in probabilities.items()})
        if losses[-1]["validation"] == min(loss["validation"] for loss in losses):
            best = {name: p.astype(np.float32) for name, p in probabilities.items()}
    order = min(range(len(losses)), key=lambda at: losses[at]["validation"])
    return TextStatistics(order + 1, losses[order], len(some) / len(training), best)


def evenly(tokens: np.ndarray, most: int) -> np.ndarray:
    """The tokens, or `most` of them in evenly spread pieces."""
    if len(tokens) <= most:
        return tokens
    places = spread(len(tokens) // PIECE, most // PIECE) * PIECE
    return np.concatenate([tokens[place : place + PIECE] for place in places])
