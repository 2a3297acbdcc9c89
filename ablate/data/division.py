"""What of a text goes into which split: cut at two places, or whole documents, or as the text itself says.

A text that is to be unique keeps each paragraph once, and no two splits share a stretch of matches.WIDTH
characters: of what training shares with the others the paragraphs in training go, of what validation shares
with test those in validation.

legend: D documents; U units, which go into a split as a whole: paragraphs or documents.
"""

import functools
import hashlib
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ablate.data.corpora import SPLITS
from ablate.data.matches import WIDTH, Index, stretches
from ablate.data.text import CorpusError, Document, Text
from ablate.data.tokenizers import utf8
from ablate.files.atomic import digest
from ablate.phrases import counted

TRAIN, VALIDATION, TEST = range(3)
DROPPED = -1
MANY = 50  # documents, from which on split=auto keeps them whole
# Of a held-out split, the largest document in it, unless too few are as small; 2 % of what may remain of it.
LARGEST = 0.016
LONGEST = 1 << 20  # characters in a paragraph; where none ends earlier, it ends with a chunk


@dataclass(frozen=True)
class Divided:
    """parts: the text by split, as (number of the split, chunk), training first. layout: a digest of the
    names and sizes of the documents that are held out whole. sha256: of all of it as UTF-8. fingerprint: of
    the text and, unless it is cut at two places, of its division. alphabet: its characters, sorted."""

    parts: Callable[[], Iterator[tuple[int, str]]]
    layout: str
    sha256: str
    fingerprint: str
    characters: int
    alphabet: str
    documents: int


def divide(text: Text, shares: Sequence[float]) -> Divided:
    """Read the text and divide it, by these shares of its characters unless it says itself what goes where.
    Raises CorpusError, also if a split that is to have text gets none."""
    documents = [*text.documents()]
    given = any(document.split for document in documents)
    whole = text.split == "document" or (text.split == "auto" and len(documents) >= MANY)
    if not (given or whole or text.unique == "paragraph"):
        sha256, characters, alphabet = scan(text.chunks())
        lengths = split_lengths(characters, shares)
        parts = functools.partial(_cut, text, lengths)
        return Divided(parts, "", sha256, sha256, characters, alphabet, len(documents))
    units = Units(documents, by_paragraph=text.unique == "paragraph")
    if given:
        split_U = np.array([SPLITS.index(document.split) for document in documents])[units.document_U]
    elif whole:
        size_D = np.bincount(units.document_U, units.size_U, len(documents))
        if (full := int(np.count_nonzero(size_D))) < (splits := int(np.count_nonzero(shares))):
            gone = " without what repeats" if text.unique == "paragraph" else ""
            raise CorpusError(
                f"corpus.split=document: {counted(full, 'document')}{gone} for {splits} splits; give a"
                " directory with more files, or use corpus.split=position"
            )
        split_U = np.array(by_document([one.name for one in documents], size_D, shares))[units.document_U]
    else:
        first, second, _ = split_lengths(int(units.size_U.sum()), shares)
        split_U = np.searchsorted([first, first + second], units.size_U.cumsum() - units.size_U, "right")
    split_U[units.size_U == 0] = DROPPED
    before = units.lengths(split_U)
    if text.unique == "paragraph":
        units.drop_what_splits_share(split_U)
    lengths = units.lengths(split_U)
    for split, share in enumerate(shares):
        if not lengths[split] and (before[split] or (share and not given)):
            rest = ", ".join(f"{name} {n:,}" for name, n in zip(SPLITS, lengths, strict=True))
            raise CorpusError(
                f"corpus.unique=paragraph: all of the {SPLITS[split]} split is elsewhere in the text, too, so"
                f" nothing of it remains (characters: {rest}); use corpus.unique=none, or give other text"
            )

    def parts() -> Iterator[tuple[int, str]]:
        for split in range(3):
            for _, chunk in units.of(split_U, split):
                yield split, chunk

    sha256, characters, alphabet = scan(chunk for _, chunk in parts())
    fingerprint = digest([sha256, *lengths])
    names = _names(documents) if given or whole else []
    size_U = np.where(split_U > TRAIN, units.size_U, 0)
    held_D = np.bincount(units.document_U, size_U, len(documents)).astype(int).tolist()
    layout = digest([one for one in zip(names, held_D, strict=False) if one[1]])
    return Divided(parts, layout, sha256, fingerprint, characters, alphabet, len(documents))


def _names(documents: Iterable[Document]) -> list[str]:
    """The names of these, printable; one that comes again gets a number."""
    names, seen = list[str](), Counter[str]()
    for document in documents:
        name = document.name if document.name.isprintable() else ascii(document.name)
        seen[name] += 1
        names.append(name if seen[name] == 1 and name else f"{name} ({seen[name]})".strip())
    return names


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


class Units:
    """The units of a text. document_U: the number of the document of each. size_U: its characters; 0 for a
    paragraph that has come before, case and space aside."""

    def __init__(self, documents: Sequence[Document], *, by_paragraph: bool) -> None:
        self._documents, self._by_paragraph, self._first_D = documents, by_paragraph, [0]
        sizes, document_of, known = list[int](), list[int](), set[bytes]()
        for d, document in enumerate(documents):
            if by_paragraph:
                sizes += [
                    0 if _repeats(piece, known) else len(piece) for piece in paragraphs(document.chunks())
                ]
            else:
                sizes.append(sum(map(len, document.chunks())))
            document_of += [d] * (len(sizes) - self._first_D[-1])
            self._first_D.append(len(sizes))
        self.size_U, self.document_U = np.array(sizes, np.int64), np.array(document_of, np.int64)

    def of(self, split_U: np.ndarray, split: int) -> Iterator[tuple[int, str]]:
        """(number of the unit, chunk) of all text in a split."""
        for document, first, end in zip(self._documents, self._first_D, self._first_D[1:], strict=False):
            if (split_U[first:end] != split).all():
                continue
            if not self._by_paragraph:
                yield from ((first, chunk) for chunk in document.chunks())
                continue
            for number, paragraph in enumerate(paragraphs(document.chunks()), first):
                if split_U[number] == split:
                    yield number, paragraph

    def lengths(self, split_U: np.ndarray) -> list[int]:
        """The characters in each split."""
        return [int(self.size_U[split_U == split].sum()) for split in range(3)]

    def drop_what_splits_share(self, split_U: np.ndarray) -> None:
        for split, others in ((VALIDATION, (TEST,)), (TRAIN, (VALIDATION, TEST))):
            index = Index(block for other in others for block in self._stretches(split_U, other))
            # Where a paragraph goes, its neighbours meet, and may have a stretch together.
            while len(shared := self._in_matches(split_U, split, index)):
                split_U[shared] = DROPPED

    def _stretches(self, split_U: np.ndarray, split: int) -> Iterator[np.ndarray]:
        """The hashes of all stretches of a split."""
        return stretches(chunk for _, chunk in self.of(split_U, split))

    def _in_matches(self, split_U: np.ndarray, split: int, index: Index) -> np.ndarray:
        """The numbers of the units of a split in which a stretch of the index lies, or a part of one."""
        begins, start = [np.empty(0, np.int64)], 0
        for block in self._stretches(split_U, split):
            begins.append(start + index.look_up(block)[0])
            start += len(block)
        begin = np.concatenate(begins)
        numbers = np.flatnonzero(split_U == split)
        ends = self.size_U[numbers].cumsum()
        steps = np.zeros(len(numbers) + 1, np.int64)  # up where a stretch begins, down behind its end
        np.add.at(steps, np.searchsorted(ends, begin, "right"), 1)
        np.add.at(steps, np.searchsorted(ends, begin + WIDTH - 1, "right") + 1, -1)
        return numbers[steps[:-1].cumsum() > 0]


# --- paragraphs -------------------------------------------------------------------------------------

BLANK = re.compile(r"\n(?:[^\S\n]*\n)+")  # the end of a line, and lines without a word


def paragraphs(chunks: Iterable[str]) -> Iterator[str]:
    """The same text in paragraphs, each with the blank lines behind it."""
    held = ""
    for chunk in chunks:
        held += chunk
        start, end = 0, len(held.rstrip())  # blank lines at the end may go on in the next chunk
        for blank in BLANK.finditer(held, 0, end):
            yield held[start : blank.end()]
            start = blank.end()
        held = held[start:]
        if len(held) > LONGEST:
            yield held
            held = ""
    if held:
        yield held


def _repeats(paragraph: str, known: set[bytes]) -> bool:
    """Whether the paragraph is known, case and space aside; from now on it is."""
    words = " ".join(paragraph.casefold().split())
    key = hashlib.blake2b(words.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    repeats = bool(words) and key in known
    known.add(key)
    return repeats


# --- by position --------------------------------------------------------------------------------------


def scan(chunks: Iterable[str]) -> tuple[str, int, str]:
    """The SHA-256 of a text as UTF-8, its number of characters, and which there are, sorted."""
    sha256, characters, occurs = hashlib.sha256(), 0, np.zeros(sys.maxunicode + 1, bool)
    for chunk in chunks:
        sha256.update(utf8(chunk))
        characters += len(chunk)
        occurs[np.frombuffer(chunk.encode("utf-32-le"), "<u4")] = True
    return sha256.hexdigest(), characters, "".join(map(chr, np.flatnonzero(occurs)))


def split_lengths(characters: int, shares: Iterable[float]) -> list[int]:
    """Characters in each split: its share, rounded down; the last split that is not empty gets the rest."""
    train, validation, test = shares
    first = int(characters * train)
    second = int(characters * validation) if test else characters - first
    return [first, second, characters - first - second]


def _cut(text: Text, lengths: list[int]) -> Iterator[tuple[int, str]]:
    """(number of the split, part of its text). The last split takes all text beyond the lengths."""
    index, room = 0, lengths[0]
    for chunk in text.chunks():
        start = 0
        while start < len(chunk):
            while room == 0:
                index += 1
                room = lengths[index] if index < len(lengths) - 1 else sys.maxsize
            part = chunk[start : start + room]
            start, room = start + len(part), room - len(part)
            yield index, part
