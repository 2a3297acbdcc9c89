"""What is known of a text without a model: how much of it repeats, and the loss of counting.

The counting line is the loss of the n-gram model of ablate.data.counting that is best on validation, on the
windows that a model is evaluated on.
"""

import functools
import itertools
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ablate.config.identity import digest
from ablate.data.corpora.base import SPLITS
from ablate.data.corpus import Corpus
from ablate.data.counting import kneser_ney
from ablate.data.matches import overlap
from ablate.data.splits import Stream, spread
from ablate.data.tokenizers import Tokenizer
from ablate.files import cache

VERSION = 1  # raise it when a figure changes
ORDERS = {"bpe": 6}  # the longest n-grams, in tokens
LETTERS = 10  # the same where a token is a character or a byte
MOST = 4_000_000  # training tokens that are counted
LONG = 2_000_000  # training tokens from which on a line says that it takes a while
PIECE = 1 << 16  # tokens in a piece, of evenly spread ones, where there are more; and decoded at a time
HELD_OUT = SPLITS[1:]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Measured:
    """characters: in each split. overlap: by (split, other split) the share of the characters of the first in
    stretches of 50 or more that the other has, too. order: of the n-grams, in tokens. loss: of counting, in
    nats a token, by split. Splits that are empty are in neither. counted: the share of the training tokens
    that was read. directory: of the probabilities."""

    characters: Mapping[str, int]
    overlap: Mapping[tuple[str, str], float]
    order: int
    loss: Mapping[str, float]
    counted: float
    directory: Path

    def probabilities(self, split: str) -> np.ndarray:
        """(targets,) float32: those that counting gives the tokens of a split, but for the first."""
        return np.load(self.directory / f"{split}.npy", mmap_mode="r")


def measured(corpus: Corpus, context: int) -> Measured | None:
    """The figures of a text that is read in windows of `context` tokens, from the cache if they are there;
    None for anything else than one text. It takes seconds, a minute for the largest texts."""
    texts = {name: split for name, split in corpus.splits.items() if isinstance(split, Stream)}
    if not texts:
        return None
    about = [corpus.sha256, corpus.tokenizer.name, corpus.tokenizer.vocab_size, corpus.config.splits]
    key = f"measured-{digest([VERSION, *about, context])}"
    entry = cache.find(key) or cache.publish(key, functools.partial(_measure, corpus, texts, context))
    directory, figures = entry
    overlaps = {(name, other): share for name, other, share in figures.pop("overlap")}
    return Measured(**figures, overlap=overlaps, directory=directory)


def _measure(corpus: Corpus, texts: Mapping[str, Stream], context: int, directory: Path) -> dict:
    tokenizer, training = corpus.tokenizer, texts["train"].tokens
    if len(training) > LONG:
        log.warning("corpus=%s: measuring overlap and counting; once, up to a minute", corpus.name)
    held_out = {name: texts[name].tokens for name in HELD_OUT if texts[name].size}
    some = evenly(training, MOST)
    models = kneser_ney(some, held_out, vocab=tokenizer.vocab_size, context=context)
    losses = list[dict[str, float]]()
    for probabilities in itertools.islice(models, ORDERS.get(tokenizer.name, LETTERS)):
        losses.append({name: float(-np.log(p).mean()) for name, p in probabilities.items()})
        if losses[-1]["validation"] == min(loss["validation"] for loss in losses):
            for name, p in probabilities.items():
                np.save(directory / f"{name}.npy", p.astype(np.float32))
    order = min(range(len(losses)), key=lambda at: losses[at]["validation"])
    return {
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
