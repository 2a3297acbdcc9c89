"""What of a text goes into which split: cut at two places, or whole documents, or as the text itself says.

A text of less than HELD characters is read once, into memory. A longer one is read again for each step; it
can't be unique, and is cut at two places unless split=document asks for more.

A text that is to be unique keeps each paragraph once, and no two splits share a stretch of matches.WIDTH
characters: of what training shares with the others the paragraphs in training go, of what validation shares
with test those in validation.

legend: D documents; U units, which go into a split as a whole: paragraphs or documents.
"""

import functools
import hashlib
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ablate.data.corpora import SPLITS
from ablate.data.matches import WIDTH, Index, stretches
from ablate.data.text import CorpusError, Document
from ablate.data.tokenizers import utf8
from ablate.files.atomic import digest

HELD = 10**9
TRAIN, VALIDATION, TEST = range(3)
DROPPED = -1
MANY = 50  # documents, from which on split=auto keeps them whole
# Of a held-out split, the largest document in it, unless too few are as small; 2 % of what may remain of it.
LARGEST = 0.016
Unit = Iterable[str]  # in chunks


@dataclass(frozen=True)
class Divided:
    """chunks: reads a split, by its number. sha256: of all of it as UTF-8. fingerprint: of the text and,
    unless it is cut at two places, of its division. alphabet: its characters, sorted. documents: their
    number."""

    chunks: Callable[[int], Iterator[str]]
    sha256: str
    fingerprint: str
    alphabet: str
    documents: int


def divide(documents: Iterable[Document], shares: Sequence[float], *, split: str, unique: str) -> Divided:
    """Read the text and divide it, by these shares of its characters unless it says itself what goes where.
    Raises CorpusError."""
    documents, is_held = read(documents)
    by_paragraph = unique == "paragraph"
    if by_paragraph and not is_held:
        raise CorpusError(
            f"corpus.unique=paragraph: a text of more than {HELD:,} characters is not held in memory; use"
            " corpus.unique=none, or give less text"
        )
    many = is_held and len(documents) >= MANY
    whole = split == "document" or (split == "auto" and many)
    if whole or by_paragraph or any(document.split for document in documents):
        chunks = functools.partial(of_split, *_placed(documents, shares, whole=whole, unique=by_paragraph))
        sha256, characters, alphabet = scan(map(chunks, range(3)))
        return Divided(chunks, sha256, digest([sha256, *characters]), alphabet, len(documents))
    sha256, (characters,), alphabet = scan([itertools.chain.from_iterable(documents)])
    ends = [*itertools.accumulate(split_lengths(characters, shares), initial=0)]

    def cut(split: int) -> Iterator[str]:
        return between(itertools.chain.from_iterable(documents), ends[split], ends[split + 1])

    return Divided(cut, sha256, sha256, alphabet, len(documents))


def read(documents: Iterable[Document]) -> tuple[list[Document], bool]:
    """The documents, and whether they are held in memory."""
    documents, held, room = [*documents], list[Document](), HELD
    for document in documents:
        chunks = list[str]()
        for chunk in document:
            chunks.append(chunk)
            room -= len(chunk)
            if room <= 0:
                return documents, False
        held.append(replace(document, chunks=chunks.__iter__))
    return held, True


def _placed(
    documents: Sequence[Document], shares: Sequence[float], *, whole: bool, unique: bool
) -> tuple[list[Unit], np.ndarray]:
    """The units, and (U,) the number of the split of each, or DROPPED."""
    units, document_of, known = list[Unit](), list[int](), set[bytes]()
    for d, document in enumerate(documents):
        if unique:
            units += [(one,) for one in paragraphs("".join(document)) if _is_new(one, known)]
        else:
            units.append(document)
        document_of += [d] * (len(units) - len(document_of))
    document_U = np.array(document_of, np.int64)
    size_U = np.array([sum(map(len, unit)) for unit in units], np.int64)
    if any(document.split for document in documents):
        split_U = np.array([SPLITS.index(document.split) for document in documents])[document_U]
    elif whole:
        size_D = np.bincount(document_U, size_U, len(documents))
        split_U = np.array(by_document([one.name for one in documents], size_D, shares))[document_U]
    else:
        ends = np.cumsum(split_lengths(int(size_U.sum()), shares))
        split_U = np.searchsorted(ends[:2], size_U.cumsum() - size_U, "right")
    if unique:
        _drop_what_splits_share(units, size_U, split_U)
    return units, split_U


def of_split(units: Iterable[Unit], split_U: np.ndarray, split: int) -> Iterator[str]:
    """The chunks of the units in a split."""
    return itertools.chain.from_iterable(itertools.compress(units, split_U == split))


def by_document(names: Sequence[str], sizes: np.ndarray, shares: Sequence[float]) -> list[int]:
    """The split of each document, by number. In the order of a hash of their names they fill test, then
    validation; larger ones than LARGEST, and all others, go to training. sizes: in characters."""
    wanted = {split: shares[split] * sum(sizes) for split in (TEST, VALIDATION) if shares[split]}
    limit, most = LARGEST * min(wanted.values()), sum(sizes) / 2
    while sum(size for size in sizes if size <= limit) < sum(wanted.values()) and limit < most:
        limit = min(2 * limit, most)
    small = [d for d, size in enumerate(sizes) if 0 < size <= limit]
    small.sort(key=lambda d: hashlib.sha256(names[d].encode()).digest())
    splits, filled = [TRAIN] * len(names), dict.fromkeys(wanted, 0.0)
    for left, d in zip(range(len(small), 0, -1), small, strict=True):
        room = [split for split in wanted if filled[split] < wanted[split]]
        empty = [split for split in room if not filled[split]]
        if room:
            split = empty[0] if left <= len(empty) else room[0]
            splits[d] = split
            filled[split] += sizes[d]
    return splits


def _drop_what_splits_share(units: Sequence[Unit], size_U: np.ndarray, split_U: np.ndarray) -> None:
    for split, others in ((VALIDATION, (TEST,)), (TRAIN, (VALIDATION, TEST))):
        index = Index(block for other in others for block in stretches(of_split(units, split_U, other)))
        # Where a paragraph goes, its neighbours meet, and may have a stretch together.
        while len(shared := _in_matches(units, size_U, split_U, split, index)):
            split_U[shared] = DROPPED


def _in_matches(
    units: Sequence[Unit], size_U: np.ndarray, split_U: np.ndarray, split: int, index: Index
) -> np.ndarray:
    """The numbers of the units of a split in which a stretch of the index lies, or a part of one."""
    begins, start = [np.empty(0, np.int64)], 0
    for block in stretches(of_split(units, split_U, split)):
        begins.append(start + index.look_up(block)[0])
        start += len(block)
    begin = np.concatenate(begins)
    numbers = np.flatnonzero(split_U == split)
    ends = size_U[numbers].cumsum()
    steps = np.zeros(len(numbers) + 1, np.int64)  # up where a stretch begins, down behind its end
    np.add.at(steps, np.searchsorted(ends, begin, "right"), 1)
    np.add.at(steps, np.searchsorted(ends, begin + WIDTH - 1, "right") + 1, -1)
    return numbers[steps[:-1].cumsum() > 0]


# --- paragraphs -------------------------------------------------------------------------------------

BLANK = re.compile(r"\n(?:[^\S\n]*\n)+")  # the end of a line, and lines without a word


def paragraphs(text: str) -> Iterator[str]:
    """The same text in paragraphs, each with the blank lines behind it."""
    start = 0
    for blank in BLANK.finditer(text):
        yield text[start : blank.end()]
        start = blank.end()
    if start < len(text):
        yield text[start:]


def _is_new(paragraph: str, known: set[bytes]) -> bool:
    """Whether the paragraph is not known, case and space aside; from now on it is, unless it is blank."""
    words = " ".join(paragraph.casefold().split())
    key = hashlib.blake2b(words.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    is_new = not words or key not in known
    known.add(key)
    return is_new


# --- by position --------------------------------------------------------------------------------------


def scan(parts: Iterable[Iterable[str]]) -> tuple[str, list[int], str]:
    """Of a text in parts, which come in chunks: its SHA-256 as UTF-8, the characters in each part, and which
    there are, sorted."""
    sha256, characters, occurs = hashlib.sha256(), list[int](), np.zeros(sys.maxunicode + 1, bool)
    for part in parts:
        characters.append(0)
        for chunk in part:
            sha256.update(utf8(chunk))
            characters[-1] += len(chunk)
            occurs[np.frombuffer(chunk.encode("utf-32-le"), "<u4")] = True
    return sha256.hexdigest(), characters, "".join(map(chr, np.flatnonzero(occurs)))


def split_lengths(characters: int, shares: Iterable[float]) -> list[int]:
    """Characters in each split: its share, rounded down; the last split that is not empty gets the rest."""
    train, validation, test = shares
    first = int(characters * train)
    second = int(characters * validation) if test else characters - first
    return [first, second, characters - first - second]


def between(chunks: Iterable[str], start: int, stop: int) -> Iterator[str]:
    """The characters of a text from one place to another."""
    at = 0
    for chunk in chunks:
        if part := chunk[max(start - at, 0) : max(stop - at, 0)]:
            yield part
        at += len(chunk)
        if at >= stop:
            return
