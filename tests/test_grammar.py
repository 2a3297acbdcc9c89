"""The grammar: its bytes, its one derivation for each sentence, and its entropy."""

import hashlib
import itertools
import math
from functools import cache

import numpy as np
import pytest

from ablate.data.corpora import grammar
from ablate.data.corpora.grammar import GRAMMAR, read_rules, sentences, text
from tests.helpers import ROOT

PINNED = "0ac66fc7e849d079139774826a3bebcc161b0925d993620b90fcbcd18ed0d3c6"


def derivations(sentence: str) -> int:
    """In how many ways the grammar derives a sentence: counted over all spans, without its sampler."""
    words = sentence.removesuffix(".\n").split(" ")

    @cache
    def ways(symbols: tuple[str, ...], start: int, stop: int) -> int:
        if not symbols:
            return int(start == stop)
        if len(symbols) > stop - start:
            return 0
        first, *rest = symbols
        if not rest and first in GRAMMAR:
            return sum(ways(body, start, stop) for _, body in GRAMMAR[first])
        if not rest:
            return int(stop - start == 1 and words[start] == first)
        return sum(ways((first,), start, at) * ways(tuple(rest), at, stop) for at in range(start + 1, stop))

    return ways(("sentence",), 0, len(words))


def entropy_per_character() -> float:
    """The entropy rate of the text in nats per character: entropy of a sentence / its expected length.

    Both are sums over a derivation. The expected contribution of a symbol X with all that it expands to is

        E[X] = own[X] + Σ_rules p(rule) Σ_{Y in rule} E[Y],   own = entropy of the choice of rule, or length

    which is one linear equation for each head. Sentences are independent and end in ".\\n", which occurs
    nowhere else, so the ratio is the rate. See: Soule, "Entropies of probabilistic grammars", 1974.
    """
    heads = list(grammar.GRAMMAR)
    below = np.zeros((len(heads), len(heads)))  # expected number of each head in the body of each head
    entropy, length = np.zeros(len(heads)), np.zeros(len(heads))
    for row, head in enumerate(heads):
        total = sum(weight for weight, _ in grammar.GRAMMAR[head])
        for weight, body in grammar.GRAMMAR[head]:
            p = weight / total
            entropy[row] -= p * math.log(p)
            for symbol in body:
                if symbol in grammar.GRAMMAR:
                    below[row, heads.index(symbol)] += p
                else:
                    length[row] += p * (len(symbol) + 1)  # with the space, or the full stop, after it
    expected = np.linalg.solve(np.eye(len(heads)) - below, np.stack([entropy, length], axis=1))
    sentence_entropy, sentence_length = expected[heads.index("sentence")]
    return float(sentence_entropy / (sentence_length + 1))  # the line end


def test_the_text_is_the_same_everywhere():
    whole = "".join(text(0, 10_000))
    assert len(whole) == 10_000
    assert hashlib.sha256(whole.encode()).hexdigest() == PINNED
    assert "".join(text(1, 10_000)) != whole
    assert "".join(text(0, 9_973)) == whole[:9_973]


@pytest.mark.slow
def test_every_sentence_has_one_derivation():
    shortish = (line for line, _ in sentences(5) if len(line) < 120)
    assert {derivations(line) for line in itertools.islice(shortish, 150)} == {1}


@pytest.mark.parametrize(
    ("sentence", "ways"),
    [
        ("the dogs near the cat sleep", 1),
        ("the dogs near the cat sleeps", 0),  # the verb agrees with the distractor
        ("the ducks that the guard sees duck", 1),  # a noun, then the same form as a verb
        ("the watch watches the watches", 1),
        ("the the dog sleeps", 0),
    ],
)
def test_agreement_and_ambiguous_words(sentence: str, ways: int):
    assert derivations(sentence) == ways


@pytest.mark.slow
def test_entropy_is_that_of_sampled_sentences():
    sample = list(itertools.islice(sentences(3), 20_000))
    characters = sum(len(line) for line, _ in sample)
    floor = entropy_per_character()
    # The ratio of two means: its standard error by the delta method. Five of them, and below 1 %.
    residuals = [nats - floor * len(line) for line, nats in sample]
    error = math.sqrt(sum(r * r for r in residuals)) / characters
    assert abs(sum(nats for _, nats in sample) / characters - floor) < 5 * error < 0.01 * floor


def test_the_docs_say_the_entropy():
    said = f"of {entropy_per_character():.4f} nats per character"
    assert said in (ROOT / "docs/corpora.md").read_text(encoding="utf-8")


def test_rules_are_read_for_both_numbers():
    assert read_rules("np-#: 3 a-# b | 2 c\nnp-one: 5 d\n") == {
        "np-one": [(3, ("a-one", "b")), (2, ("c",)), (5, ("d",))],
        "np-many": [(3, ("a-many", "b")), (2, ("c",))],
    }
