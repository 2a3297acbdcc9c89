"""A text, split and written to disk as token ids, in passes that hold little of it at a time."""

import hashlib
import itertools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from ablate.config.schema import CorpusConfig
from ablate.data.text import CorpusError, Text
from ablate.data.tokenizers import Bpe, Byte, Char, Tokenizer, utf8

FORMAT = 2  # of what `write` writes: raise it when the files, or the ids in them, change
SPLITS = ("train", "validation", "test")
PIECE = 1 << 16  # characters encoded at a time


@dataclass(frozen=True)
class Scan:
    """One pass over a text. sha256: of all of it as UTF-8. alphabet: its characters, sorted."""

    sha256: str
    characters: int
    alphabet: str


def scan(text: Text) -> Scan:
    digest, characters, seen = hashlib.sha256(), 0, np.zeros(sys.maxunicode + 1, bool)
    for chunk in text.chunks():
        digest.update(utf8(chunk))
        characters += len(chunk)
        seen[np.frombuffer(chunk.encode("utf-32-le"), "<u4")] = True
    return Scan(digest.hexdigest(), characters, "".join(map(chr, np.flatnonzero(seen))))


def write(directory: Path, text: Text, scanned: Scan, config: CorpusConfig) -> dict[str, Any]:
    """Fill `directory`: tokenizer.json and, for each split that is not empty, its ids.

    Returns {split: {"tokens", "predicted_bytes"}}. Raises CorpusError if the text is not the scanned one.
    """
    lengths = split_lengths(scanned.characters, config.splits)
    tokenizer = _tokenizer(text, scanned, config, lengths)
    (directory / "tokenizer.json").write_text(tokenizer.dump(), encoding="utf-8")
    digest = hashlib.sha256()
    about = {split: {"tokens": 0, "predicted_bytes": 0} for split in SPLITS}
    for split, parts in _by_split(_hashed(text.chunks(), digest), lengths):
        tokens, size, first = 0, 0, 0  # size and first: UTF-8 bytes of all tokens, and of the first
        with (directory / f"{split}.bin").open("wb") as file:
            for piece in pieces(parts):
                ids = tokenizer.encode(piece)
                file.write(ids.data)
                lengths_of_ids = tokenizer.byte_lengths[ids]
                first = first if tokens else int(lengths_of_ids[0])
                tokens, size = tokens + len(ids), size + int(lengths_of_ids.sum())
        about[split] = {"tokens": tokens, "predicted_bytes": size - first}
    if digest.hexdigest() != scanned.sha256:
        raise CorpusError(f"corpus={config.name}: the text changed while it was being read; run again")
    return about


def read(directory: Path, split: str, tokens: int, tokenizer: Tokenizer) -> np.ndarray:
    """(tokens,) ids, mapped from disk, read-only."""
    if tokens:
        return np.memmap(directory / f"{split}.bin", tokenizer.dtype, mode="r", shape=(tokens,))
    empty = np.empty(0, tokenizer.dtype)  # an empty file can't be mapped
    empty.flags.writeable = False
    return empty


def split_lengths(characters: int, shares: Iterable[float]) -> list[int]:
    """Characters in each split: the share, rounded down; the last split that is not empty takes the rest."""
    train, validation, test = shares
    first = int(characters * train)
    second = int(characters * validation) if test else characters - first
    return [first, second, characters - first - second]


def pieces(parts: Iterable[str]) -> Iterator[str]:
    """The same text in pieces of at most PIECE characters, cut at the same places however it comes.

    The cut is before the white space after a word, if there is any: byte-level BPE never merges
    over such a place, so the ids of the pieces are those of the text as a whole.
    """
    held = ""
    for part in parts:
        held += part
        start = 0
        while len(held) - start > PIECE:
            end = _cut_before(held, start, start + PIECE)
            yield held[start:end]
            start = end
        held = held[start:]
    if held:
        yield held


def _cut_before(text: str, start: int, stop: int) -> int:
    places = (i for i in range(stop, start, -1) if text[i] in " \t\r\n" and not text[i - 1].isspace())
    return next(places, stop)


def _by_split(chunks: Iterable[str], lengths: list[int]) -> Iterator[tuple[str, Iterator[str]]]:
    """(split, its text in parts), in order, for the splits that are not empty."""
    for index, parts in itertools.groupby(_cut(chunks, lengths), key=itemgetter(0)):
        yield SPLITS[index], map(itemgetter(1), parts)


def _cut(chunks: Iterable[str], lengths: list[int]) -> Iterator[tuple[int, str]]:
    """(index of the split, part of its text). The last index takes whatever there is beyond."""
    index, room = 0, lengths[0]
    for chunk in chunks:
        start = 0
        while start < len(chunk):
            while room == 0:
                index += 1
                room = lengths[index] if index < len(lengths) - 1 else sys.maxsize
            part = chunk[start : start + room]
            start, room = start + len(part), room - len(part)
            yield index, part


def _hashed(chunks: Iterable[str], digest: Any) -> Iterator[str]:
    for chunk in chunks:
        digest.update(utf8(chunk))
        yield chunk


def _tokenizer(text: Text, scanned: Scan, config: CorpusConfig, lengths: list[int]) -> Tokenizer:
    match config.tokenizer:
        case "char":
            return Char(scanned.alphabet)
        case "byte":
            return Byte()
        case "bpe":
            splits = _by_split(text.chunks(), lengths)
            train = next((parts for split, parts in splits if split == "train"), iter(()))
            return Bpe.train(pieces(train), config.bpe_vocab)
        case "number":
            raise AssertionError("a text has no numbers for tokens")
