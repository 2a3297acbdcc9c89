"""Splits of pairs of texts, drawn by a task or given: pairs in batches of similar length, laid out for an
encoder-decoder or as one text.

legend: B rows, S positions of the source, T of the target.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from ablate.config.identity import digest
from ablate.config.rules import ConfigError
from ablate.config.schema import ENCODER_DECODER, CorpusConfig, ModelConfig
from ablate.data.corpora.base import IGNORE_INDEX, PairsRecipe, PairTask
from ablate.data.examples import BLOCK, Blocks, blocks_of, fingerprint, hashed, ranges
from ablate.data.splits import Batch, Split, spread, target_positions
from ablate.data.text import CorpusError
from ablate.data.tokenizers import Tokenizer, WithSeparator, fitted
from ablate.rng import generator

# Batches that are ordered by length together. More of them save padding and cost learning: with 2, 4 and 16,
# 99, 97 and 71 % of number words were right after 1,000 steps, and with no order at all 99 %.
BATCHES = 2
PADDING = -1  # in a source that is shorter than the longest of its batch
KEPT = 64  # blocks kept in memory
Texts = tuple[str, str]  # a source and a target


class Pair(NamedTuple):
    """The ids of a source, (S,), and of a target, (T,), without separators."""

    source: np.ndarray
    target: np.ndarray


class DrawnPairs:
    """The pairs of one split, drawn by a task. count: how many there are; None if it is endless."""

    def __init__(self, blocks: Blocks[Texts], tokenizer: Tokenizer) -> None:
        self.blocks, self.tokenizer, self.count = blocks, tokenizer, blocks.count
        self._block = functools.lru_cache(KEPT)(lambda *place: encoded(tokenizer, blocks.block(*place)))

    def to_train(self, seed: int, places: range) -> list[Pair]:
        """The pairs at these places of an endless sequence, which starts at 0."""
        chosen = [place if self.count is None else place % self.count for place in places]
        return [self._block(seed, place // BLOCK)[place % BLOCK] for place in chosen]

    @functools.cached_property
    def held_out(self) -> Sequence[Pair]:
        """`count` different pairs, or as many as there are: each short one, of which there are few, once."""
        assert self.count is not None, "an endless split is not read as a whole"
        different: dict[Texts, None] = {}
        number, before = 0, -1
        while before < len(different) < self.count:  # until a whole block brings nothing new
            before = len(different)
            different |= dict.fromkeys(self.blocks.block(self.blocks.seed, number))
            number += 1
        return encoded(self.tokenizer, [*different][: self.count])


class GivenPairs:
    """The given pairs of one split, as DrawnPairs. Training takes each once per epoch, in an order drawn for
    that epoch."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.pairs, self.count = pairs, len(pairs)
        self._order = functools.lru_cache(2)(self._ordered)

    def to_train(self, seed: int, places: range) -> list[Pair]:
        turns = (divmod(place, len(self.pairs)) for place in places)
        return [self.pairs[self._order(seed, epoch)[at]] for epoch, at in turns]

    @property
    def held_out(self) -> Sequence[Pair]:
        return self.pairs

    def _ordered(self, seed: int, epoch: int) -> np.ndarray:
        return generator(seed, "data", f"epoch/{epoch}").permutation(len(self.pairs))


Pairs = DrawnPairs | GivenPairs


def encoded(tokenizer: Tokenizer, texts: Sequence[Texts]) -> list[Pair]:
    """The pairs as ids."""
    sources, targets = (_ids(tokenizer, [pair[side] for pair in texts]) for side in (0, 1))
    return [*map(Pair, sources, targets)]


def _ids(tokenizer: Tokenizer, texts: list[str]) -> list[np.ndarray]:
    """The ids of each text, encoded all at once if the tokenizer allows it."""
    if tokenizer.name not in ("char", "byte") or not texts:
        return [tokenizer.encode(text) for text in texts]
    ids = tokenizer.encode("".join(texts))
    lengths = [len(text) if tokenizer.name == "char" else len(text.encode()) for text in texts]
    return np.split(ids, np.cumsum(lengths)[:-1])


@dataclass(frozen=True)
class Layout:
    """How pairs become the rows of a batch, each padded to the longest.

    separator: the token at the start and end of a target. two_texts: whether an encoder reads the source; if
    not, it stands in the row, before the target. The model predicts the target and the separator.
    """

    separator: int
    two_texts: bool

    @classmethod
    def of(cls, tokenizer: Tokenizer, model: ModelConfig) -> "Layout":
        """The pairs as this model reads them."""
        return cls(tokenizer.separator, two_texts=model.architecture == ENCODER_DECODER)

    def positions(self, source: int, target: int) -> int:
        """The positions of a context that a pair takes with so many tokens of source and target."""
        return max(source, target + 1) if self.two_texts else source + 1 + target

    def cut(self, pair: Pair, context: int) -> Pair:
        """The pair, cut so that it fits a context."""
        source = context if self.two_texts else context // 2
        target = context - 1 if self.two_texts else context - source - 1
        return Pair(pair.source[:source], pair.target[:target])

    def batch(self, pairs: Sequence[Pair]) -> Batch:
        inputs, answers = [], []
        for source, target in pairs:
            before = source[:0] if self.two_texts else source
            inputs.append(np.concatenate([before, [self.separator], target]))
            answers.append(np.concatenate([np.full(len(before), IGNORE_INDEX), target, [self.separator]]))
        targets = _padded(answers, IGNORE_INDEX)
        sources = _padded([pair.source for pair in pairs], PADDING) if self.two_texts else None
        return Batch(_padded(inputs, self.separator), targets, target_positions(targets), sources)


class Paired(Split):
    """Pairs in batches. Batch t is a function of (seed, t): the pairs of BATCHES batches are sorted by length
    and split into batches, which are then shuffled."""

    is_ragged = True

    def __init__(self, pairs: Pairs, layout: Layout) -> None:
        self.pairs, self.layout = pairs, layout
        self._together = functools.lru_cache(4)(self._ordered)

    @property
    def size(self) -> int | None:
        if self.pairs.count is None:
            return None
        return sum(len(pair.target) + 1 for pair in self.pairs.held_out)

    def read_per_row(self, context: int) -> float:
        return float(np.mean([len(pair.source) + len(pair.target) + 1 for pair in self._some]))

    def batch(self, *, context: int, batch: int, seed: int, step: int) -> Batch:
        together, at = divmod(step - 1, BATCHES)
        return self.layout.batch(self._together(batch, seed, together)[at])

    def windows(self, *, context: int, windows: int, most: int | None = None) -> Iterator[Batch]:
        pairs = self.pairs.held_out
        if most is not None and most < (self.size or 0):
            each = np.mean([len(pair.target) + 1 for pair in pairs])
            pairs = [pairs[at] for at in spread(len(pairs), min(len(pairs), max(1, int(most // each))))]
        pairs = sorted(pairs, key=_length)
        for start in range(0, len(pairs), windows):
            yield self.layout.batch(pairs[start : start + windows])

    def _ordered(self, batch: int, seed: int, together: int) -> list[list[Pair]]:
        first = together * BATCHES * batch
        pairs = sorted(self.pairs.to_train(seed, range(first, first + BATCHES * batch)), key=_length)
        order = generator(seed, "data", f"batches/{together}").permutation(BATCHES)
        return [pairs[at * batch : (at + 1) * batch] for at in order]

    @functools.cached_property
    def _some(self) -> list[Pair]:
        return self.pairs.to_train(0, range(1000))


def open_pairs(
    recipe: PairTask | PairsRecipe, config: CorpusConfig, model: ModelConfig
) -> tuple[str, Tokenizer, Mapping[str, Paired]]:
    """The fingerprint of pairs, their tokenizer, and the splits as this model reads them. Given pairs that
    are too long for it are dropped or cut (corpus.long). Raises ConfigError."""
    if isinstance(recipe, PairsRecipe):
        sha256, tokenizer, encoded_pairs = _given(recipe, config)
        layout = Layout.of(tokenizer, model)
        kept = _fitted(encoded_pairs, layout, recipe.long, model.context)
        before, after = ([[*map(_length, of)] for of in by.values()] for by in (encoded_pairs, kept))
        if before != after:  # with another context or architecture, this is another text
            sha256 = digest([sha256, after])
        splits: Mapping[str, Pairs] = {name: GivenPairs(pairs) for name, pairs in kept.items()}
    else:
        tokenizer = recipe.tokenizer(config.tokenizer)
        layout = Layout.of(tokenizer, model)
        if (longest := layout.positions(*recipe.longest)) > model.context:
            shorter = ", or a smaller corpus.length" if "length" in recipe.sizes else ""
            raise ConfigError(
                f"model.context={model.context}: the longest pair of corpus={recipe.name} takes {longest}"
                f" positions; take model.context={longest} at least{shorter}"
            )
        blocks = blocks_of(recipe, "pairs", recipe.draw_pairs, _content, config.splits)
        some = [of.block(of.seed, 0)[:10] for of in blocks.values() if of.count != 0]
        sha256 = fingerprint(recipe, some, "pairs")
        splits = {name: DrawnPairs(of, tokenizer) for name, of in blocks.items()}
    return sha256, tokenizer, {name: Paired(pairs, layout) for name, pairs in splits.items()}


def _given(recipe: PairsRecipe, config: CorpusConfig) -> tuple[str, Tokenizer, dict[str, list[Pair]]]:
    """The fingerprint of given pairs, their tokenizer, and the pairs of each split."""
    pairs = recipe.pairs()
    texts = {
        name: [pair for pair in pairs if low <= hashed(_content(recipe.split_by(pair))) < high]
        for name, (low, high) in ranges(config.splits).items()
    }
    for name, share in zip(("train", "validation"), config.splits[:2], strict=True):
        if not texts[name]:
            raise CorpusError(
                f"corpus.splits: {len(pairs):,} pairs leave none for {name}, whose share is {share:g}; give"
                " more pairs, or a larger share"
            )
    alphabet = "".join(sorted({*"".join(map("".join, pairs))}))
    training = (text for pair in texts["train"] for text in pair)
    plain = fitted(config.tokenizer, alphabet, training, config.bpe_vocab)
    splits = {name: encoded(plain, chosen) for name, chosen in texts.items()}
    return digest(["pairs by source", pairs]), WithSeparator(plain), splits


def _content(texts: Sequence[str]) -> bytes:
    """The texts that decide the split of a pair."""
    return "\n".join(texts).encode("utf-8", "surrogatepass")


def _fitted(
    splits: Mapping[str, list[Pair]], layout: Layout, long: str | None, context: int
) -> dict[str, list[Pair]]:
    """The pairs that fit a context, and with long=cut the others, cut."""
    every = [layout.positions(*_length(pair)) for pairs in splits.values() for pair in pairs]
    if (longer := sum(taken > context for taken in every)) and long is None:
        raise ConfigError(
            f"model.context={context}: {longer:,} of {len(every):,} pairs are longer, the longest"
            f" {max(every):,}; take a larger model.context, corpus.long=drop (without them), or"
            " corpus.long=cut"
        )

    def fitted(pair: Pair) -> list[Pair]:
        if layout.positions(*_length(pair)) <= context:
            return [pair]
        return [layout.cut(pair, context)] if long == "cut" else []

    kept = {name: [one for pair in pairs for one in fitted(pair)] for name, pairs in splits.items()}
    for name in ("train", "validation"):
        if not kept[name]:
            raise ConfigError(
                f"corpus.long=drop: no pairs left for {name}: all are longer than"
                f" model.context={context}; take a larger one, or corpus.long=cut"
            )
    return kept


def _length(pair: Pair) -> tuple[int, int]:
    return len(pair.source), len(pair.target)


def _padded(rows: Sequence[np.ndarray], filler: int) -> torch.Tensor:
    """The rows, padded with filler: (B, length of the longest row), int64."""
    padded = np.full((len(rows), max(map(len, rows))), filler, np.int64)
    for at, row in enumerate(rows):
        padded[at, : len(row)] = row
    return torch.from_numpy(padded)
