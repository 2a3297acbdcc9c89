"""The contract of a corpus: a registered class, whose fields are the keys that its YAML has of its own.

To add a corpus: one file here with a registered subclass of TextRecipe or Task, and a YAML of the same
name in configs/corpus. The tests over the registry then cover it. Loads no torch, so that a shell can ask for
the values of a key.

legend: N examples, T positions in each.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from ablate.config.registry import Registry
from ablate.config.rules import ConfigError, Count, Size
from ablate.data.text import Text

SPLITS = ("train", "validation", "test")
IGNORE_INDEX = -100  # the target where nothing is to be predicted


@dataclass(frozen=True, kw_only=True)
class Recipe(ABC):
    """What a corpus consists of, as a function of its options. The first sentence of the docstring of each is
    what `ablate corpus list` says of it."""

    name: ClassVar[str]  # the name in configs, set by `register`
    tokenizers: ClassVar[tuple[str, ...]] = ("char", "byte", "bpe")  # the values of corpus.tokenizer
    read_as: ClassVar[tuple[str, ...]]  # how a model can: as text, as rows of a task, as pairs

    @property
    def known(self) -> dict[str, str]:
        """What is known of it without training, by name, for readers."""
        return {}


registry: Registry[Recipe] = Registry("corpus", Recipe, "ablate.data.corpora", noun="corpus")
register = registry.register


class TextRecipe(Recipe):
    """One text. What split and unique mean: ablate.data.division."""

    read_as = ("text",)
    split, unique = "position", "none"

    @abstractmethod
    def text(self) -> Text:
        """The text, not yet read. Raises CorpusError if it can't be read."""


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """The options of a corpus that is read from files. encoding: its name in Python."""

    encoding: str
    errors: Literal["strict", "replace", "ignore"]


@dataclass(frozen=True, kw_only=True)
class OfDocuments:
    """The options of a text of documents. split: document keeps each in one split, position cuts the text at
    two places, auto takes one of these by the number of documents. unique: paragraph keeps each paragraph
    once, and nothing that two splits share (ablate.data.division)."""

    split: Literal["auto", "document", "position"]
    unique: Literal["none", "paragraph"]


@dataclass(frozen=True, kw_only=True)
class Task(Recipe):
    """Rows of words, drawn at random, some of which are to be predicted from the words before them.

    seed: of the held-out examples; those of training depend on that of the batches, too. examples: of
    training, which are repeated; None: none is repeated, but by chance. held_out: examples for validation,
    and as many for test. length: words in a row, T. vocabulary: the number of words, which are 0 to
    vocabulary − 1. Raises ConfigError for incompatible sizes.
    """

    read_as = ("task",)
    tokenizers = ("number",)
    seed: int
    examples: Count | None
    held_out: Count
    length: Size
    vocabulary: Size

    def __post_init__(self) -> None:
        for key, least in self.least().items():
            if (given := self.sizes[key]) < least:
                raise ConfigError(
                    f"corpus.{key}={given}: corpus={self.name} takes {least} at least at its other sizes;"
                    " give as many (corpus.length follows model.context)"
                )

    @property
    def counts(self) -> dict[str, int | None]:
        """The number of examples in each split."""
        return {"train": self.examples, "validation": self.held_out, "test": self.held_out}

    @property
    def sizes(self) -> dict[str, Any]:
        """The options that say what an example is like."""
        common = ("seed", "examples", "held_out")
        return {key: value for key, value in vars(self).items() if key not in common}

    @abstractmethod
    def least(self) -> dict[str, int]:
        """The length and the vocabulary that a row takes at least."""

    @abstractmethod
    def draw(self, draws: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        """`count` rows with equally many targets: inputs and targets, each (N, T); IGNORE_INDEX where there
        is no target. Raises ConfigError for a length that makes no rows."""


def distinct(draws: np.random.Generator, count: int, of: int, some: int) -> np.ndarray:
    """(count, some): in each row `some` distinct numbers below `of`, all choices and orders equally likely.

    See: Floyd in Bentley, "Programming pearls: a sample of brilliance", 1987.
    """
    chosen = np.empty((count, some), np.int64)
    for place, top in enumerate(range(of - some, of)):
        number = draws.integers(top + 1, size=count)
        taken = (chosen[:, :place] == number[:, None]).any(1)
        chosen[:, place] = np.where(taken, top, number)
    return draws.permuted(chosen, axis=1)
