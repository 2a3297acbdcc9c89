"""What of a text goes into which split: by position, by document, and without what repeats."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ablate.config.rules import ConfigError
from ablate.data import division, matches
from ablate.data.division import by_document, divide, paragraphs
from ablate.data.matches import WIDTH, overlap
from ablate.data.text import Document, of_files

SHARES = (0.8, 0.1, 0.1)
CHUNK = 13
Dividing = Callable[[Sequence[float]], division.Divided]  # by these shares


def text_of(*contents: str, split: str = "auto", unique: str = "none", given: Sequence[str] = ()) -> Dividing:
    documents = [
        Document(
            f"{number}.txt",
            lambda text=text: [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)],
            of,
        )
        for number, (text, of) in enumerate(zip(contents, given or [""] * len(contents), strict=True))
    ]
    return partial(divide, documents, split=split, unique=unique)


def split_up(text: Dividing, shares: Sequence[float] = SHARES) -> list[str]:
    return ["".join(divided.chunks(split)) for divided in [text(shares)] for split in range(3)]


def sentences(count: int, seed: int) -> list[str]:
    draws = random.Random(seed)
    return [
        "".join(draws.choices("abcdefgh ", k=draws.randint(60, 90))) + f" {i}-{seed}.\n\n"
        for i in range(count)
    ]


def test_auto_keeps_documents_whole_from_fifty_on():
    contents = [f"document {number} " * 9 for number in range(60)]
    some, whole = split_up(text_of(*contents[:49])), split_up(text_of(*contents))
    assert "".join(some) == "".join(contents[:49])
    assert some == split_up(text_of(*contents[:49], split="position"))
    assert (
        whole
        == split_up(text_of(*contents, split="document"))
        != split_up(text_of(*contents, split="position"))
    )
    for text in contents:
        assert sum(text in part for part in whole) == 1
    assert "".join(sorted(contents)) == "".join(
        sorted(text for part in whole for text in contents if text in part)
    )


def test_documents_fill_test_then_validation_and_large_ones_train():
    draws = np.random.default_rng(0)
    sizes = np.array([*draws.integers(100, 1000, 900), 40_000, 50_000])
    splits = np.array(by_document([f"d{i}" for i in range(902)], sizes, SHARES))
    for split in (1, 2):
        of_split = sizes[splits == split]
        assert 0 <= of_split.sum() - 0.1 * sizes.sum() < 1000
        assert of_split.max() <= 0.02 * of_split.sum()
    again = by_document([f"d{i}" for i in range(902)][::-1], sizes[::-1], SHARES)
    assert (splits == again[::-1]).all()  # by their names, not by their order


@pytest.mark.parametrize("sizes", [[5, 5, 90], [33, 33, 34], [25] * 4])
def test_few_documents_still_give_each_split_one(sizes):
    splits = by_document([f"d{i}" for i in range(len(sizes))], np.array(sizes), SHARES)
    assert {*splits} == {0, 1, 2}
    assert splits[int(np.argmax(sizes))] == 0 or max(sizes) < 50


def test_splits_of_its_own_are_kept():
    text = text_of("last", "first", "held", "more", given=("test", "train", "validation", "train"))
    assert split_up(text) == ["firstmore", "held", "last"]
    text = text_of("first", "held", given=("train", "validation"), unique="paragraph")
    assert split_up(text) == ["first", "held", ""]


def test_paragraphs_end_with_their_blank_lines():
    text = "one\ntwo\n\nthree\n \t\n\n\nfour\r\n\r\nfive\n\n"
    assert [*paragraphs(text)] == ["one\ntwo\n\n", "three\n \t\n\n\n", "four\r\n\r\n", "five\n\n"]


@pytest.mark.parametrize("block", [200, 1 << 20])
def test_unique_text_keeps_each_paragraph_once_and_no_match_between_splits(block, monkeypatch):
    monkeypatch.setattr(matches, "BLOCK", block)
    draws, contents = random.Random(1), []
    for number in range(80):
        own = sentences(12, number)
        if number:
            borrowed = draws.choice(contents)
            own.insert(3, "Licence:\n  of   all\n\n" if number % 2 else "licence: OF ALL\n\n")
            start = draws.randrange(len(borrowed) // 2, len(borrowed) - 80)
            own[5] = own[5][:20] + borrowed[start : start + 70].replace("\n", " ") + own[5][20:]
        contents.append("".join(own))
    text = text_of(*contents, unique="paragraph")
    train, validation, test = split_up(text)
    assert (train + validation + test).lower().count("licence:") == 1
    assert overlap([validation, test], [train]) == overlap([test], [validation]) == 0
    before = split_up(text_of(*contents))
    assert overlap([before[2]], [before[0]]) > 0
    assert len(train) > 0.6 * len(before[0]) and len(test) > 0.8 * len(before[2])


def test_a_paragraph_in_training_goes_and_not_the_one_held_out():
    shared = "a stretch of characters that is as long as it has to be, and more"
    assert len(shared) > WIDTH
    own = [f"paragraph {i}: {'xyzw'[i % 4] * 3} {i * 7919}\n\n" for i in range(100)]
    own[10] = f"training {shared} here\n\n"
    own[85] = f"validation {shared}\n\n"
    own[97] = f"test {shared}\n\n"
    train, validation, test = split_up(text_of("".join(own), split="position", unique="paragraph"))
    assert shared not in train + validation and shared in test
    assert "".join(own[11:60]) in train and own[9] in train


def test_the_fingerprint_is_of_the_text_and_its_division():
    contents = [f"document {number}\n\n" * 9 for number in range(60)]
    made = {
        text_of(*contents, split=split, unique=unique)(SHARES).fingerprint
        for split in ("position", "document")
        for unique in ("none", "paragraph")
    }
    assert len(made) == 4
    assert len({text_of(*contents)(shares).fingerprint for shares in (SHARES, (0.6, 0.2, 0.2))}) == 2


@pytest.mark.parametrize("is_held", [True, False])
def test_a_text_that_is_too_long_to_be_held_is_read_again_and_cut_by_position(is_held, monkeypatch):
    contents, reads = [f"document {number} " * 9 for number in range(60)], Counter[int]()
    monkeypatch.setattr(division, "HELD", sum(map(len, contents)) + is_held)

    def counted(number: int) -> list[str]:
        reads[number] += 1
        return [contents[number]]

    def text(split: str, unique: str = "none") -> Dividing:
        documents = [Document(f"{n}.txt", partial(counted, n)) for n in range(60)]
        return partial(divide, documents, split=split, unique=unique)

    assert split_up(text(split="document")) == split_up(text_of(*contents, split="document"))
    assert ({*reads.values()} == {1}) == is_held
    assert split_up(text(split="auto")) == split_up(
        text_of(*contents, split="auto" if is_held else "position")
    )
    if not is_held:
        with pytest.raises(ConfigError, match=r"unique=paragraph: a text of more than 6,390 characters"):
            text("auto", "paragraph")(SHARES)


def test_files_are_documents_named_from_the_directory_that_all_are_in(tmp_path: Path):
    for name in ("a/x.txt", "a/b/y.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    files = [tmp_path / "a/b/y.txt", tmp_path / "a/x.txt"]
    assert [document.name for document in of_files(files, "utf-8", "strict").documents] == [
        "b/y.txt",
        "x.txt",
    ]
