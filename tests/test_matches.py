"""Verbatim matches, against a search for every stretch."""

import random

import numpy as np
import pytest

from ablate.data import matches
from ablate.data.matches import WIDTH, Index, codes, hashes, overlap, stretches


def by_search(text: str, other: str) -> float:
    covered = [False] * len(text)
    for at in range(len(text) - WIDTH + 1):
        if text[at : at + WIDTH] in other:
            covered[at : at + WIDTH] = [True] * WIDTH
    return sum(covered) / len(text)


def made(length: int, seed: int) -> str:
    return "".join(random.Random(seed).choices("ab\n é中😀", k=length))


@pytest.mark.parametrize("block", [7, 64, 1 << 20])
def test_planted_repeats_are_measured_exactly(block, monkeypatch):
    monkeypatch.setattr(matches, "BLOCK", block)
    text, one, other = made(1500, 0), made(900, 1), made(700, 2)
    one = one[:100] + text[200:280] + one[100:] + text[700 : 700 + WIDTH - 1]  # the last is too short by one
    other = text[260 : 260 + WIDTH] + other + text[-WIDTH:]

    def cut(whole: str) -> list[str]:
        return [whole[at : at + 11] for at in range(0, len(whole), 11)]

    share = overlap(cut(text), cut(one + "|" + other))
    assert share == pytest.approx(by_search(text, one + "|" + other), abs=1e-12)
    assert share == pytest.approx((310 - 200 + WIDTH) / 1500)


def test_the_same_stretches_have_the_same_hash_wherever_they_are():
    text = made(400, 3)
    whole = hashes(codes(text))
    assert len(whole) == len(text) - WIDTH + 1 == len({*whole.tolist()})
    assert (hashes(codes(text[37:])) == whole[37:]).all()
    changed = text[:200] + ("a" if text[200] != "a" else "b") + text[201:]
    assert np.flatnonzero(hashes(codes(changed)) != whole).tolist() == [*range(200 - WIDTH + 1, 201)]


@pytest.mark.parametrize("text", ["", "short", "x" * (WIDTH - 1)])
def test_a_text_shorter_than_a_stretch_has_no_matches(text):
    assert overlap([text], [text * 3]) == 0.0
    assert Index(stretches([text])).look_up(hashes(codes("x" * 99)))[0].size == 0
