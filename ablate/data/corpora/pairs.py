"""corpus=pairs: a user's own pairs, from two files that correspond line by line."""

import functools
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ablate.config.schema import CorpusConfig
from ablate.data import text
from ablate.data.corpora import Decoded, Recipe, register
from ablate.data.drawn import hashed, ranges
from ablate.data.examples import Example, Examples, length
from ablate.data.text import CorpusError
from ablate.data.tokenizers import Tokenizer, fitted, utf8
from ablate.files.atomic import digest
from ablate.rng import generator


@register("pairs")
@dataclass(frozen=True, kw_only=True)
class Pairs(Decoded, Recipe):
    """Your own pairs of texts, line by line.

    path: the file of the sources; target: of the targets. Pairs with an empty side are left out."""

    read_as = ("pairs",)
    path: str | None
    target: str | None

    def __post_init__(self) -> None:
        if not (self.path and self.target):
            raise CorpusError(
                "corpus=pairs: which texts? add corpus.path=SOURCES corpus.target=TARGETS (2 files, no tabs)"
            )

    def pairs(self) -> list[tuple[str, str]]:
        """The pairs, in neither of which a text is empty. Raises CorpusError."""
        sources, targets = (self._lines(path or "") for path in (self.path, self.target))
        both = f"corpus.path={self.path} corpus.target={self.target}"
        if len(sources) != len(targets):
            raise CorpusError(
                f"{both}: {len(sources):,} lines and {len(targets):,}; line n of one has to belong to line n"
                " of the other"
            )
        pairs = [pair for pair in zip(sources, targets, strict=True) if all(pair)]
        if not pairs:
            raise CorpusError(f"{both}: no line has a text on both sides; give some that do")
        return pairs

    def _lines(self, path: str) -> list[str]:
        """The lines without the blanks at their ends; after the last \\n there may be one."""
        if path == "-" or len(files := text.find(path)) != 1:
            raise CorpusError(f"corpus.path={path}: corpus=pairs reads one file of each language; name it")
        whole = text.read(files[0], self.encoding, self.errors)
        return [line.strip() for line in whole.removesuffix("\n").split("\n") if whole]

    def opened(self, config: CorpusConfig) -> tuple[str, Tokenizer, dict[str, Examples]]:
        """The fingerprint, the tokenizer, and the splits, which a hash of their source decides: of one source
        there may be several targets. Raises ConfigError."""
        pairs = self.pairs()
        texts = {
            name: [pair for pair in pairs if low <= hashed(utf8(pair[0])) < high]
            for name, (low, high) in ranges(config.splits).items()
        }
        of_all, of_training = (itertools.chain.from_iterable(some) for some in (pairs, texts["train"]))
        tokenizer = fitted(config.tokenizer, of_all, of_training, config.bpe_vocab)
        tokenizer.add_separator()

        def example(source: str, target: str) -> Example:
            return Example.of_pair(tokenizer.encode(source), tokenizer.encode(target), tokenizer.separator)

        splits = {name: Given([example(*pair) for pair in chosen]) for name, chosen in texts.items()}
        return digest(["pairs by source", pairs]), tokenizer, {**splits}


class Given(Examples):
    """The given pairs of one split. Training takes each once per epoch, in an order drawn for that epoch."""

    is_ragged = True

    def __init__(self, held_out: Sequence[Example]) -> None:
        self.held_out, self.per_epoch = held_out, len(held_out)
        self.longest = max((max(length(one)) for one in held_out), default=0)
        self._order = functools.lru_cache(64)(self._shuffled)  # seeds of a group take turns

    def at(self, seed: int, places: Iterable[int]) -> list[Example]:
        turns = (divmod(place, len(self.held_out)) for place in places)
        return [self.held_out[self._order(seed, epoch)[at]] for epoch, at in turns]

    def _shuffled(self, seed: int, epoch: int) -> np.ndarray:
        return generator(seed, "data", f"epoch/{epoch}").permutation(len(self.held_out))
