"""Pairs of texts that a user gives."""

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ablate.config.schema import CorpusConfig
from ablate.data.corpora.pairs import Pairs
from ablate.data.drawn import content_of, hashed, ranges
from ablate.data.examples import Example, Examples, length
from ablate.data.text import CorpusError
from ablate.data.tokenizers import Tokenizer, WithSeparator, fitted
from ablate.files.atomic import digest
from ablate.rng import generator


class Given(Examples):
    """The given pairs of one split. Training takes each once per epoch, in an order drawn for that epoch."""

    is_ragged = True

    def __init__(self, held_out: Sequence[Example]) -> None:
        self._held_out, self.per_epoch = held_out, len(held_out)
        self.longest = max((max(length(one)) for one in held_out), default=0)
        self._order = functools.lru_cache(64)(self._shuffled)  # seeds of a group take turns

    @property
    def held_out(self) -> Sequence[Example]:
        return self._held_out

    def at(self, seed: int, places: Iterable[int]) -> list[Example]:
        turns = (divmod(place, self.per_epoch or 1) for place in places)
        return [self.held_out[self._order(seed, epoch)[at]] for epoch, at in turns]

    def _shuffled(self, seed: int, epoch: int) -> np.ndarray:
        return generator(seed, "data", f"epoch/{epoch}").permutation(self.per_epoch or 0)


def opened(recipe: Pairs, config: CorpusConfig) -> tuple[str, Tokenizer, Mapping[str, Examples]]:
    """The fingerprint of given pairs, their tokenizer, and the splits, which a hash of their source decides:
    of one source there may be several targets. Raises ConfigError."""
    pairs = recipe.pairs()
    texts = {
        name: [pair for pair in pairs if low <= hashed(content_of(pair[:1])) < high]
        for name, (low, high) in ranges(config.splits).items()
    }
    for name, share in zip(("train", "validation"), config.splits[:2], strict=True):
        if not texts[name]:
            raise CorpusError(
                f"corpus.splits: {len(pairs):,} pairs leave none for {name}, whose share is {share:g}; give"
                " more pairs, or a larger share"
            )
    of_all, of_training = (itertools.chain.from_iterable(some) for some in (pairs, texts["train"]))
    tokenizer = WithSeparator(fitted(config.tokenizer, of_all, of_training, config.bpe_vocab))
    encode = tokenizer.encode
    splits = {
        name: Given(
            [Example.of_pair(encode(one), encode(other), tokenizer.separator) for one, other in chosen]
        )
        for name, chosen in texts.items()
    }
    return digest(["pairs by source", pairs]), tokenizer, splits
