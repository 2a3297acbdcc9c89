"""What of a text goes into which split: cut at two places, or whole documents, or as the text itself says.

A text is read once, into memory. One of LONG characters or more is cut at two places, unless split=document
asks for more.

A text that is to be unique keeps each paragraph once, and no two splits share a stretch of matches.WIDTH
characters: of what training shares with the others the paragraphs in training go, of what validation shares
with test those in validation.

legend: D documents; U units, which go into a split as a whole: paragraphs or documents.
"""

import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ablate.data.corpora import SPLITS
from ablate.data.matches import ABSENT, WIDTH, blocks, hashes, places
from ablate.data.text import Document
from ablate.data.tokenizers import utf8
from ablate.files.atomic import digest

LONG = 10**9
TRAIN, VALIDATION, TEST = range(3)
DROPPED = -1
MANY = 50  # documents, from which on split=auto keeps them whole
# Of a held-out split, the largest document in it, unless too few are as small; 2 % of what may remain of it.
LARGEST = 0.016


@dataclass(frozen=True)
class Divided:
    """splits: the text of each. fingerprint: of the text and, unless it is cut at two places, of its
    division. documents: their number."""

    splits: list[str]
    fingerprint: str
    documents: int


def divide(documents: Iterable[Document], shares: Sequence[float], *, split: str, unique: str) -> Divided:
    """Read the text and divide it, by these shares of its characters unless it says itself what goes where.
    Raises CorpusError."""
    documents = [*documents]
    characters = sum(len(document.text) for document in documents)
    whole = split == "document" or (split == "auto" and len(documents) >= MANY and characters < LONG)
    by_paragraph = unique == "paragraph"
    in_units = whole or by_paragraph or any(document.split for document in documents)
    if in_units:
        units, split_U = placed(documents, shares, whole=whole, unique=by_paragraph)
        splits = ["".join(itertools.compress(units, split_U == number)) for number in range(3)]
    else:
        text = "".join(document.text for document in documents)
        first, second = cuts(characters, shares)
        splits = [text[:first], text[first:second], text[second:]]
    sha256 = hashlib.sha256()
    for part in splits:
        sha256.update(utf8(part))
    of_text = sha256.hexdigest()
    fingerprint = digest([of_text, *map(len, splits)]) if in_units else of_text
    return Divided(splits, fingerprint, len(documents))


def cuts(characters: int, shares: Sequence[float]) -> tuple[int, int]:
    """Where validation begins, and where test does: shares are rounded down, and the last split that is not
    empty gets the rest."""
    train, validation, test = shares
    first = int(characters * train)
    return first, first + int(characters * validation) if test else characters


def placed(
    documents: Sequence[Document], shares: Sequence[float], *, whole: bool, unique: bool
) -> tuple[list[str], np.ndarray]:
    """The units, and (U,) the number of the split of each, or DROPPED."""
    known = set[bytes]()
    units_D = [
        [one for one in paragraphs(document.text) if _is_new(one, known)] if unique else [document.text]
        for document in documents
    ]
    units = [*itertools.chain.from_iterable(units_D)]
    document_U = np.repeat(np.arange(len(documents)), [*map(len, units_D)])
    size_U = np.array([*map(len, units)], np.int64)
    if any(document.split for document in documents):
        split_U = np.array([SPLITS.index(document.split) for document in documents])[document_U]
    elif whole:
        size_D = np.bincount(document_U, size_U, len(documents))
        split_U = np.array(by_document([one.name for one in documents], size_D, shares))[document_U]
    else:
        split_U = np.searchsorted(cuts(int(size_U.sum()), shares), size_U.cumsum() - size_U, "right")
    if unique:
        _drop_what_splits_share(units, split_U)
    return units, split_U


def by_document(names: Sequence[str], sizes: np.ndarray, shares: Sequence[float]) -> list[int]:
    """The split of each document, by number. In the order of a hash of their names they fill test, then
    validation; larger ones than LARGEST, and all others, go to training. sizes: in characters."""
    wanted = {split: shares[split] * sum(sizes) for split in (TEST, VALIDATION) if shares[split]}
    limit, most = LARGEST * min(wanted.values()), sum(sizes) / 2
    while sum(size for size in sizes if size <= limit) < sum(wanted.values()) and limit < most:
        limit = min(2 * limit, most)
    small = [d for d, size in enumerate(sizes) if 0 < size <= limit]
    small.sort(key=lambda d: hashlib.sha256(names[d].encode(errors="surrogateescape")).digest())
    splits, filled = [TRAIN] * len(names), dict.fromkeys(wanted, 0.0)
    for left, d in zip(range(len(small), 0, -1), small, strict=True):
        room = [split for split in wanted if filled[split] < wanted[split]]
        empty = [split for split in room if not filled[split]]
        if room:
            split = empty[0] if left <= len(empty) else room[0]
            splits[d] = split
            filled[split] += sizes[d]
    return splits


def _drop_what_splits_share(units: Sequence[str], split_U: np.ndarray) -> None:
    for split, others in ((VALIDATION, (TEST,)), (TRAIN, (VALIDATION, TEST))):
        texts = ["".join(itertools.compress(units, split_U == other)) for other in others]
        sorted_N = np.sort(np.concatenate([*map(hashes, texts)]))
        # Where a paragraph goes, its neighbours meet, and may have a stretch together.
        while (shared := _in_matches([*itertools.compress(units, split_U == split)], sorted_N)).any():
            split_U[split_U == split] = np.where(shared, DROPPED, split)


def _in_matches(units: Sequence[str], sorted_N: np.ndarray) -> np.ndarray:
    """(U,) whether a stretch with such a hash lies in a unit, or a part of one does."""
    is_shared = [places(block, sorted_N) != ABSENT for block in blocks("".join(units))]
    begin = np.flatnonzero(np.concatenate([np.empty(0, bool), *is_shared]))
    ends = np.cumsum([*map(len, units)])
    steps = np.zeros(len(units) + 1, np.int64)  # up where a stretch begins, down behind its end
    np.add.at(steps, np.searchsorted(ends, begin, "right"), 1)
    np.add.at(steps, np.searchsorted(ends, begin + WIDTH - 1, "right") + 1, -1)
    return steps[:-1].cumsum() > 0


# --- paragraphs -------------------------------------------------------------------------------------

BLANK = re.compile(r"\n(?:[^\S\n]*\n)+")  # the end of a line, and lines without a word


def paragraphs(text: str) -> Iterator[str]:
    """The same text in paragraphs, each with the blank lines behind it."""
    ends = itertools.chain([0], (blank.end() for blank in BLANK.finditer(text)), [len(text)])
    return (text[start:end] for start, end in itertools.pairwise(ends) if start < end)


def _is_new(paragraph: str, known: set[bytes]) -> bool:
    """Whether the paragraph is not known, case and space aside; from now on it is, unless it is blank."""
    words = " ".join(paragraph.casefold().split())
    key = hashlib.blake2b(words.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    is_new = not words or key not in known
    known.add(key)
    return is_new
