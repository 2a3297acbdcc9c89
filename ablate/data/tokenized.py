"""Split a text and write it to disk as token ids, in passes that hold little of it in memory."""

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

FORMAT = 2  # the format that `write` produces: raise it when the files, or the ids in them, change
SPLITS = ("train", "validation", "test")
PIECE = 1 << 16  # characters encoded at a time


@dataclass(frozen=True)
class Scan:
    """What one pass over a text finds. sha256: of the text as UTF-8. alphabet: its characters, sorted."""

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
    """Write tokenizer.json and the ids of each split that is not empty into `directory`.

    Returns {split: {"tokens", "predicted_bytes"}}. Raises CorpusError if the text changed since the scan.
    """
    lengths = split_lengths(scanned.characters, config.splits)
    tokenizer = _tokenizer(text, scanned, config, lengths)
    (directory / "tokenizer.json").write_text(tokenizer.dump(), encoding="utf-8")
    digest = hashlib.sha256()
    about = {split: {"tokens": 0, "predicted_bytes": 0} for split in SPLITS}
    for split, parts in _by_split(_hashed(text.chunks(), digest), lengths):
        tokens, size, first = 0, 0, 0  # how many tokens; the UTF-8 bytes of all of them, and of the first
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
    """The (tokens,) ids of a split, memory-mapped, read-only."""
    if tokens:
        return np.memmap(directory / f"{split}.bin", tokenizer.dtype, mode="r", shape=(tokens,))
    empty = np.empty(0, tokenizer.dtype)  # an empty file can't be mapped
    empty.flags.writeable = False
    return empty


def split_lengths(characters: int, shares: Iterable[float]) -> list[int]:
    """Characters in each split: its share, rounded down; the last split that is not empty gets the rest."""
    train, validation, test = shares
    first = int(characters * train)
    second = int(characters * validation) if test else characters - first
    return [first, second, characters - first - second]


def pieces(parts: Iterable[str]) -> Iterator[str]:
    """The same text in pieces of at most PIECE characters, cut at places that do not depend on `parts`.

    Cuts are before the white space after a word, if there is any: byte-level BPE never merges across such a
    place, so the pieces have the same ids as the whole text.
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
    """(name of the split, its text in parts), in order, for the splits that are not empty."""
    for index, parts in itertools.groupby(_cut(chunks, lengths), key=itemgetter(0)):
        yield SPLITS[index], map(itemgetter(1), parts)


def _cut(chunks: Iterable[str], lengths: list[int]) -> Iterator[tuple[int, str]]:
    """(index of the split, part of its text). The last split takes all text beyond the lengths."""
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
