"""corpus=lags: a text whose next letter depends on the letters a few places back.

The next letter is drawn from a table with one row for each combination of letters at `lags` places back, in
that order. So a model has to fetch each of these letters and to know which is which.

legend: s symbols, L lags.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from ablate.config.rules import AtLeast, AtMost, ConfigError, Count, as_override
from ablate.data.corpora import TextRecipe, register
from ablate.data.text import Document, Text

VERSION = 1  # raise it when the drawn text changes: cached texts are found by it
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
FAVOURED = (27, 9, 3)  # weights of the three likeliest letters in a row; all others have 1
ROWS = 10**6


@register("lags")
@dataclass(frozen=True, kw_only=True)
class Lags(TextRecipe):
    """Letters that depend on those a few places back.

    lags: how many letters back the letters are that decide the next one. symbols: the number of different
    letters. Raises ConfigError for lags that can't make a text."""

    seed: int
    characters: Count
    lags: tuple[Count, ...]
    symbols: Annotated[int, AtLeast(2), AtMost(len(LETTERS))]

    def __post_init__(self) -> None:
        lags, cases = self.lags, self.symbols ** len(self.lags)
        if not lags or len({*lags}) < len(lags) or cases > ROWS:
            raise ConfigError(
                f"corpus.lags={as_override(lags)}: {cases:,} cases to look up; take from 1 to {ROWS:,}, and"
                " each lag once, as corpus.lags=[2,3]"
            )

    def text(self) -> Text:
        stamp = ["lags", VERSION, self.seed, self.characters, self.lags, self.symbols]
        return Text(lambda: [Document("", text(self.seed, self.characters, self.lags, self.symbols))], stamp)


def table(seed: int, lags: Sequence[int], symbols: int) -> np.ndarray:
    """Integer weights of the next letter, shape (s,)·L + (s,): one axis for each lag, in the given order."""
    draws = random.Random(seed)
    weights = [*FAVOURED, *[1] * symbols][:symbols]
    rows = []
    for _ in range(symbols ** len(lags)):
        order = sorted(range(symbols), key=lambda _: draws.random())
        rows.append([weights[place] for place in order])
    return np.array(rows).reshape((symbols,) * (len(lags) + 1))


def text(seed: int, characters: int, lags: Sequence[int], symbols: int) -> str:
    """The first `characters` letters, the same on every machine and Python: all draws are `random()`, which
    Python keeps stable."""
    rows = table(seed, lags, symbols).reshape(-1, symbols)
    # Each row lists every letter as often as its weight, so that a uniform index is a draw.
    likely = [np.repeat(np.arange(symbols), row).tolist() for row in rows]
    total, longest = len(likely[0]), max(lags)
    draws = random.Random(f"{seed}/text")
    letters = [int(draws.random() * symbols) for _ in range(longest)]
    for _ in range(characters):
        row = 0
        for lag in lags:
            row = row * symbols + letters[-lag]
        letters.append(likely[row][int(draws.random() * total)])
    return "".join(LETTERS[letter] for letter in letters[longest:])
