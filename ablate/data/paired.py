"""A split of pairs of texts, in batches of similar length, laid out for an encoder-decoder or as one text.

legend: B rows, S positions of the source, T of the target.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch

from ablate.config.rules import ConfigError
from ablate.config.schema import ENCODER_DECODER, CorpusConfig, ModelConfig
from ablate.data.pairs import Opened, Pair, Pairs
from ablate.data.splits import NOT_ASKED, Batch, Split, asked_in, in_turns, spread
from ablate.rng import generator

# Batches that are ordered by length together. More of them save padding and cost learning: with 2, 4 and 16,
# 99, 97 and 71 % of number words were right after 1,000 steps, and with no order at all 99 % (docs/pairs.md).
BATCHES = 2
PADDING = -1  # in a source that is shorter than the longest of its batch


class Layout(ABC):
    """How a pair becomes a row of a batch. edge: the token at the start and end of a target, which also
    separates it from its source."""

    def __init__(self, edge: int) -> None:
        self.edge = edge

    @abstractmethod
    def positions(self, source: int, target: int) -> int:
        """The positions of a context that a pair takes with so many tokens of source and target."""

    @abstractmethod
    def cut(self, pair: Pair, context: int) -> Pair:
        """The pair, cut so that it fits a context."""

    @abstractmethod
    def batch(self, pairs: Sequence[Pair]) -> Batch:
        """One row per pair, padded to the longest."""


class TwoTexts(Layout):
    """The encoder reads the source; the decoder reads edge and target, and predicts target and edge."""

    def positions(self, source: int, target: int) -> int:
        return max(source, target + 1)

    def cut(self, pair: Pair, context: int) -> Pair:
        return Pair(pair.source[:context], pair.target[: context - 1])

    def batch(self, pairs: Sequence[Pair]) -> Batch:
        edge = [self.edge]
        inputs = _padded([np.concatenate([edge, pair.target]) for pair in pairs], self.edge)
        targets = _padded([np.concatenate([pair.target, edge]) for pair in pairs], NOT_ASKED)
        source = _padded([pair.source for pair in pairs], PADDING)
        return Batch(inputs, targets, asked_in(targets), source)


class OneText(Layout):
    """Source, edge and target in one row, where the model predicts target and edge."""

    def positions(self, source: int, target: int) -> int:
        return source + 1 + target

    def cut(self, pair: Pair, context: int) -> Pair:
        half = context // 2
        return Pair(pair.source[:half], pair.target[: context - half - 1])

    def batch(self, pairs: Sequence[Pair]) -> Batch:
        edge = [self.edge]
        inputs = _padded([np.concatenate([pair.source, edge, pair.target]) for pair in pairs], self.edge)
        answers = (
            np.concatenate([np.full(len(pair.source), NOT_ASKED), pair.target, edge]) for pair in pairs
        )
        targets = _padded([*answers], NOT_ASKED)
        return Batch(inputs, targets, asked_in(targets))


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
        return sum(len(pair.target) + 1 for pair in self.pairs.held_out())

    def read_per_row(self, context: int) -> float:
        return float(np.mean([len(pair.source) + len(pair.target) + 1 for pair in self._some]))

    def batch(self, *, context: int, batch: int, seed: int, step: int) -> Batch:
        together, at = divmod(step - 1, BATCHES)
        return self.layout.batch(self._together(batch, seed, together)[at])

    def windows(self, *, context: int, windows: int, most: int | None = None) -> Iterator[Batch]:
        pairs = self.pairs.held_out()
        if most is not None and pairs:
            each = np.mean([len(pair.target) + 1 for pair in pairs])
            pairs = [pairs[at] for at in spread(len(pairs), min(len(pairs), max(1, int(most // each))))]
        pairs.sort(key=_length)
        for places in in_turns(np.arange(len(pairs)), windows) if pairs else ():
            yield self.layout.batch([pairs[at] for at in places])

    def _ordered(self, batch: int, seed: int, together: int) -> list[list[Pair]]:
        first = together * BATCHES * batch
        pairs = sorted(self.pairs.to_train(seed, range(first, first + BATCHES * batch)), key=_length)
        order = generator(seed, "data", f"batches/{together}").permutation(BATCHES)
        return [pairs[at * batch : (at + 1) * batch] for at in order]

    @functools.cached_property
    def _some(self) -> list[Pair]:
        return self.pairs.to_train(0, range(1000))


def laid_out(opened: Opened, config: CorpusConfig, model: ModelConfig) -> dict[str, Paired]:
    """The splits as this model reads them. Pairs of files that are too long for it are dropped or cut
    (corpus.long). Raises ConfigError."""
    layout = (TwoTexts if model.architecture == ENCODER_DECODER else OneText)(opened.edge)
    if opened.task is None:
        splits = _fitted(opened.splits, layout, config.long, model.context)
    else:
        splits = opened.splits
        if (longest := layout.positions(*opened.task.longest)) > model.context:
            shorter = ", or a smaller corpus.length" if config.length else ""
            raise ConfigError(
                f"model.context={model.context}: the longest pair of corpus={config.name} takes {longest}"
                f" positions; take model.context={longest} at least{shorter}"
            )
    return {name: Paired(of, layout) for name, of in splits.items()}


def _fitted(
    splits: Mapping[str, Pairs], layout: Layout, long: str | None, context: int
) -> Mapping[str, Pairs]:
    """The pairs that fit a context, and with long=cut the others, cut."""
    every = [layout.positions(*_length(pair)) for of in splits.values() for pair in of.held_out()]
    if (longer := sum(taken > context for taken in every)) and long is None:
        raise ConfigError(
            f"model.context={context}: {longer:,} of {len(every):,} pairs are longer, the longest"
            f" {max(every):,}; take a larger model.context, corpus.long=drop (without them), or"
            " corpus.long=cut"
        )

    def fitted(pair: Pair) -> Pair | None:
        if layout.positions(*_length(pair)) <= context:
            return pair
        return layout.cut(pair, context) if long == "cut" else None

    kept = {name: of.keep(fitted) for name, of in splits.items()}
    for name in ("train", "validation"):
        if not kept[name].count:
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
