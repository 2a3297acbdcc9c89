"""corpus=numbers: number words up to 999,999 in German and English, a translation whose rules are all known.

"dreihunderteinundvierzig" is "three hundred and forty-one": compounds have to be split, and German has units
before tens, so the order changes.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ablate.data.corpora.base import PairTask, register
from ablate.data.tokenizers import Byte, Char, Tokenizer, WithSeparator

DIGITS = 6  # of the largest number
Key = tuple[str, str]
Part = tuple[str, Key | None]  # a piece of text and what it stands for; None if it has no counterpart

WORDS = re.compile(r"\w+").findall
GERMAN = WORDS(
    "null ein zwei drei vier fünf sechs sieben acht neun"
    " zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn"
)
GERMAN_TENS = WORDS("zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig")
ENGLISH = WORDS(
    "zero one two three four five six seven eight nine"
    " ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
)
ENGLISH_TENS = WORDS("twenty thirty forty fifty sixty seventy eighty ninety")


@register("numbers")
@dataclass(frozen=True, kw_only=True)
class NumberWords(PairTask):
    """Number words in German and English. Numbers have 1 to 6 digits, each length equally often."""

    tokenizers = ("char", "byte")  # of drawn letters there is no text to learn byte pairs from
    direction: Literal["de-en", "en-de"]

    def tokenizer(self, kind: str) -> Tokenizer:
        return WithSeparator(Byte() if kind == "byte" else Char(ALPHABET))

    def draw_pairs(self, draws: np.random.Generator, count: int) -> list[tuple[str, str]]:
        digits_N = draws.integers(1, DIGITS + 1, count)
        lowest_N = np.where(digits_N == 1, 0, 10 ** (digits_N - 1))
        numbers_N = draws.integers(lowest_N, 10**digits_N)
        return [(_text(self.source(n)), _text(self.target(n))) for n in numbers_N.tolist()]

    @property
    def longest(self) -> tuple[int, int]:
        return _longest(self.source), _longest(self.target)

    def aligned(self, source: str, target: str) -> np.ndarray:
        number = number_of(source, self.source)
        from_S = [*_letters(self.source(number))]
        to_T = [*_letters(self.target(number))]
        assert (len(to_T), len(from_S)) == (len(target), len(source))
        return np.array([[key is not None and key == other for other in from_S] for key in to_T], bool)

    @property
    def source(self) -> Callable[[int], list[Part]]:
        return german if self.direction == "de-en" else english

    @property
    def target(self) -> Callable[[int], list[Part]]:
        return english if self.direction == "de-en" else german


ALPHABET = "".join(
    sorted({*"".join([*GERMAN, *GERMAN_TENS, *ENGLISH, *ENGLISH_TENS, "hundertausend", " -"])})
)


def german(number: int) -> list[Part]:
    """The parts of a number; 341 is drei·hundert·ein·und·vierzig."""
    if number == 0:
        return [(GERMAN[0], ("low", "units"))]
    high, low = divmod(number, 1000)
    parts = [*_german(high, "high"), ("tausend", ("high", "thousand"))] if high else []
    parts += _german(low, "low")
    word, key = parts[-1]
    return [*parts[:-1], ("eins", key)] if word == "ein" else parts


def _german(number: int, group: str) -> list[Part]:
    hundreds, rest = divmod(number, 100)
    parts: list[Part] = []
    if hundreds:
        parts += [(GERMAN[hundreds], (group, "hundreds")), ("hundert", (group, "hundred"))]
    if rest >= 20:
        tens, units = divmod(rest, 10)
        parts += [(GERMAN[units], (group, "units")), ("und", None)] if units else []
        parts.append((GERMAN_TENS[tens - 2], (group, "tens")))
    elif rest:
        parts.append((GERMAN[rest], (group, "units")))
    return parts


def english(number: int) -> list[Part]:
    """The parts of a number; 341 is three· ·hundred· and ·forty·-·one."""
    if number == 0:
        return [(ENGLISH[0], ("low", "units"))]
    high, low = divmod(number, 1000)
    parts: list[Part] = []
    if high:
        parts += [*_english(high, "high"), (" ", None), ("thousand", ("high", "thousand"))]
        parts += [(" and " if low < 100 else " ", None)] if low else []
    return [*parts, *_english(low, "low")]


def _english(number: int, group: str) -> list[Part]:
    hundreds, rest = divmod(number, 100)
    parts: list[Part] = []
    if hundreds:
        parts += [(ENGLISH[hundreds], (group, "hundreds")), (" ", None), ("hundred", (group, "hundred"))]
        parts += [(" and ", None)] if rest else []
    if rest >= 20:
        tens, units = divmod(rest, 10)
        parts.append((ENGLISH_TENS[tens - 2], (group, "tens")))
        parts += [("-", None), (ENGLISH[units], (group, "units"))] if units else []
    elif rest:
        parts.append((ENGLISH[rest], (group, "units")))
    return parts


def _longest(spell: Callable[[int], list[Part]]) -> int:
    """The length of the longest text, with the longest number below 1000 as thousands and as the rest."""
    most = max(range(200, 1000), key=lambda number: len(_text(spell(number))))
    return len(_text(spell(1001 * most)))


def _text(parts: list[Part]) -> str:
    return "".join(word for word, _ in parts)


def _letters(parts: list[Part]) -> Iterator[Key | None]:
    """What each letter stands for, as in Part."""
    return itertools.chain.from_iterable(itertools.repeat(key, len(word)) for word, key in parts)


def number_of(text: str, spell: Callable[[int], list[Part]]) -> int:
    """The number that a text of `german` or `english` means. Raises KeyError for one that means none."""
    thousand = _text(spell(1000)).removeprefix("ein").removeprefix("one")
    high, _, low = text.rpartition(thousand)
    low = low.removeprefix(" and ").removeprefix(" ")
    below = _below_thousand(spell)
    return 1000 * (below[high] if high else 0) + (below[low] if low else 0)


@functools.cache
def _below_thousand(spell: Callable[[int], list[Part]]) -> dict[str, int]:
    """The number of each text below a thousand, with the form it has before `tausend`, as `ein` for 1."""
    numbers = {_text(spell(number)): number for number in range(1000)}
    thousand = spell(1000)[1:]
    return numbers | {_text(spell(1000 * n)[: -len(thousand)]): n for n in range(1, 1000)}
