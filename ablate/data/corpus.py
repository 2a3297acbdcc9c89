"""Opened corpora: splits of token ids, made from what ablate.data.corpora says that a corpus consists of.
Each process opens a corpus once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ablate.config.read import read
from ablate.config.rules import ConfigError
from ablate.config.schema import CorpusConfig
from ablate.data import drawn, tokenized
from ablate.data.corpora import Recipe, Task, registry
from ablate.data.corpora.pairs import Pairs
from ablate.data.examples import Examples
from ablate.data.splits import Split, Stream
from ablate.data.text import CorpusError
from ablate.data.tokenized import TextFacts
from ablate.data.tokenizers import Tokenizer
from ablate.phrases import joined

KEPT = 4  # corpora that a process keeps open
# By what a corpus is, and whether it is read as pairs.
OPENERS: dict[tuple[str, bool], Callable[..., tuple]] = {
    ("text", False): tokenized.opened,
    ("task", False): partial(drawn.opened, as_pairs=False),
    ("task", True): partial(drawn.opened, as_pairs=True),
    ("pairs", True): Pairs.opened,
}


@dataclass(frozen=True, eq=False)
class Corpus:
    """A corpus, opened. as_pairs: whether it is read as pairs of texts. sha256: of the whole text as UTF-8;
    of a task or pairs, a digest of what determines them. splits: "train", "validation", and "test", which may
    be empty. text: what is known of a text.

    Pickled, it is its config: another process opens it again.
    """

    config: CorpusConfig
    as_pairs: bool
    recipe: Recipe
    sha256: str
    tokenizer: Tokenizer
    splits: Mapping[str, Split]
    text: TextFacts | None = None

    def tokens(self, split: str) -> np.ndarray:
        """The ids of a split of a text, in order."""
        stream = self.splits[split]
        assert isinstance(stream, Stream), "examples are no text"
        return stream.tokens

    def __reduce__(self) -> tuple[Any, ...]:
        return open_corpus, (self.config, self.as_pairs, self.sha256)


_opened: dict[str, Corpus] = {}  # by what was opened


def open_corpus(config: CorpusConfig, as_pairs: bool = False, sha256: str | None = None) -> Corpus:
    """The corpus, read as pairs of texts or as one text; opened once for all runs of a process. sha256: what
    its fingerprint has to be. Raises ConfigError."""
    key = repr((config, as_pairs))
    if key not in _opened or sha256 not in (None, _opened[key].sha256):
        corpus = _open(config, as_pairs)
        if sha256 not in (None, corpus.sha256):
            raise CorpusError(
                f"corpus={config.name}: the text changed: the fingerprint of {config.called} (corpus_sha256)"
                f" was {sha256[:12]} and is {corpus.sha256[:12]}; put back what it was, or train on what it"
                " is with the same ablate run"
            )
        while len(_opened) >= KEPT:
            del _opened[next(iter(_opened))]
        _opened[key] = corpus
    return _opened[key]


def forget() -> None:
    """Open each corpus again when it is next needed: its files may have changed, or the directory that its
    path starts from."""
    _opened.clear()


def _open(config: CorpusConfig, as_pairs: bool) -> Corpus:
    kind, name = registry.named(config.recipe), config.name
    if config.tokenizer not in kind.tokenizers:
        only = joined(kind.tokenizers, "or")
        raise CorpusError(f"corpus.tokenizer={config.tokenizer}: corpus={name} takes {only}")
    if as_pairs and "pairs" not in kind.read_as:
        raise CorpusError(
            f"corpus={name}: it is one text, and a model with an encoder reads pairs of them; take one whose"
            " kind in ablate corpus list is pairs, or model=tiny"
        )
    if kind.read_as == ("pairs",) and not as_pairs:
        raise CorpusError(f"corpus={name}: it is of pairs of texts; take model=pair, which reads both")
    recipe = read(kind, config.options, "corpus")
    return Corpus(config, as_pairs, recipe, *OPENERS[kind.read_as[0], as_pairs](recipe, config))


def require_usable(corpus: Corpus, context: int) -> None:
    """Raises ConfigError unless each split of a text fills a window and its targets (test may be empty), or a
    row of a task is as long as a window, or each pair fits in one."""
    name, splits = corpus.config.name, corpus.splits
    longest = max((split.longest for split in splits.values() if isinstance(split, Examples)), default=0)
    if longest > context or (0 < longest < context and not corpus.as_pairs):
        fits = "at least as many" if corpus.as_pairs else "as many"
        way_out = "leave corpus.length out" if isinstance(corpus.recipe, Task) else "give shorter pairs"
        raise ConfigError(
            f"model.context={context}: an example of corpus={name} takes {longest:,} positions, and the"
            f" context has to have {fits}; take model.context={longest}, or {way_out}"
        )
    for of, split in splits.items():
        if isinstance(split, Examples):
            has, least, unit = split.per_epoch, 1, "examples"
        else:
            has, least, unit = len(corpus.tokens(of)), context + 1, f"tokens, with model.context={context}"
        if has is not None and has < least and (has or of != "test"):
            raise ConfigError(
                f"corpus={name}: the {of} split has {has} of at least {least} {unit}; give more text, other"
                " corpus.splits, or a smaller model.context"
            )
