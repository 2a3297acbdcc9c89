"""The grammar: its bytes, its one derivation for each sentence, and its entropy."""

import hashlib
import itertools
import math
import re
from functools import cache

import pytest

from ablate.data.corpora import grammar
from ablate.data.corpora.grammar import GRAMMAR, read_rules, sentences, text
from benchmarks.grammar import entropy_per_character

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


def test_the_count_of_derivations_sees_an_ambiguity(monkeypatch: pytest.MonkeyPatch):
    """With modifiers on verbs too, `the dog sees the cat near the house` has two readings."""
    modified = (1, ("transitive-one", "np", "preposition", "np"))
    monkeypatch.setitem(GRAMMAR, "vp-one", [*GRAMMAR["vp-one"], modified])
    assert derivations("the dog sees the cat near the house") == 2


@pytest.mark.slow
def test_entropy_is_that_of_sampled_sentences():
    sample = list(itertools.islice(sentences(3), 20_000))
    characters = sum(len(line) for line, _ in sample)
    floor = entropy_per_character()
    # The ratio of two means: its standard error by the delta method. Five of them, and below 1 %.
    residuals = [nats - floor * len(line) for line, nats in sample]
    error = math.sqrt(sum(r * r for r in residuals)) / characters
    assert abs(sum(nats for _, nats in sample) / characters - floor) < 5 * error < 0.01 * floor


def test_entropy_by_hand(monkeypatch: pytest.MonkeyPatch):
    """sentence: go, or very and a sentence, at even odds: n times very, p = 2^-(n+1).

    ln 2 for each of the two expected choices; `go.` and a line end, and `very ` once on average: 4 + 5.
    """
    monkeypatch.setattr(grammar, "GRAMMAR", read_rules("sentence: 1 go | 1 very sentence\n"))
    assert entropy_per_character() == pytest.approx(2 * math.log(2) / 9, rel=1e-12)


def test_rules_are_read_for_both_numbers():
    assert read_rules("np-#: 3 a-# b | 2 c\nnp-one: 5 d\n") == {
        "np-one": [(3, ("a-one", "b")), (2, ("c",)), (5, ("d",))],
        "np-many": [(3, ("a-many", "b")), (2, ("c",))],
    }


# --- what each word is part of ------------------------------------------------------------------


def agreements(sentence: str) -> list[tuple[str, str, int]]:
    """(verb, its subject, nouns of the other number between) of a sentence, which the grammar may draw."""
    start, verbs = 0, []
    for line, _ in itertools.islice(sentences(0), 20_000):
        if line == sentence:
            break
        start += len(line)
    whole = "".join(text(0, start + len(sentence)))
    for word in grammar.words(0, len(whole)):
        if word.start >= start and word.subject:
            verbs.append((whole[word.start : word.stop], whole[slice(*word.subject)], word.between))
    return verbs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        (r"(?:the|some) (\w+) near the (?:cat|dog|house) (sleep|run|wait)\.\n", [(2, 1, 1)]),
        (r"(?:the|a) (\w+) that (\w+) the (?:dogs|cats|houses) (\w+s)\.\n", [(2, 1, 0), (3, 1, 1)]),
        (r"(?:the|a) (dog|cat|house) that the (\w+s) (\w+) (\w+s)\.\n", [(3, 2, 0), (4, 1, 1)]),
    ],
)
def test_verbs_know_their_subjects(pattern, wanted):
    """wanted: groups of the pattern, (verb, subject), and how many nouns of the other number lie between."""
    lines = (line for line, _ in itertools.islice(sentences(0), 40_000))
    match = next(match for line in lines if (match := re.fullmatch(pattern, line)))
    assert agreements(match[0]) == [(match[verb], match[of], between) for verb, of, between in wanted]


def spelled(*heads: str) -> set[str]:
    return {body[0] for head in heads for _, body in GRAMMAR[head]}


def test_words_stand_where_they_are_said_to_and_agree():
    whole = "".join(text(3, 50_000))
    spans = [word for word in grammar.words(3, 50_000) if word.stop <= 50_000]
    words = [whole[word.start : word.stop] for word in spans]
    assert "".join(whole.split()).replace(".", "").startswith("".join(words)) and len(words) > 8000
    verbs = [(whole[w.start : w.stop], whole[slice(*w.subject)]) for w in spans if w.subject]
    assert len(verbs) > 1500
    for number in ("one", "many"):
        agreeing = spelled(f"transitive-{number}", f"intransitive-{number}", f"be-{number}")
        assert {verb for verb, noun in verbs if noun in spelled(f"noun-{number}")} <= agreeing
    assert {noun for _, noun in verbs} == spelled("noun-one", "noun-many")
    assert {whole[w.start : w.stop] for w in spans if w.is_two} == grammar.TWO
    assert {"watch", "guard", "duck", "cook", "train", "watches", "trains"} <= grammar.TWO
    assert "dog" not in grammar.TWO and {w.between for w in spans} >= {0, 1, 2}
