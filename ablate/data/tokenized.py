"""Split a text and write it to the cache as token ids."""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ablate.config.schema import CorpusConfig
from ablate.data.corpora import SPLITS, TextRecipe
from ablate.data.division import Divided, divide
from ablate.data.matches import overlap
from ablate.data.splits import Stream
from ablate.data.text import CorpusError
from ablate.data.tokenizers import Tokenizer, fitted, load, utf8
from ablate.files import cache
from ablate.files.atomic import digest, said_if_long
from ablate.files.owned import create

FORMAT = 11  # the format that `write` produces: raise it when the files, or the ids in them, change
PIECE = 1 << 16  # characters encoded at a time


@dataclass(frozen=True)
class TextFacts:
    """What is known of a text, as it stands in its cache entry. sha256: its fingerprint. documents: their
    number. characters: in each split; predicted_bytes: of all its tokens but the first. overlap: by held-out
    split and other split the share of the characters of the first in stretches of 50 or more that the other
    has, too; empty splits are left out."""

    sha256: str
    documents: int
    characters: Mapping[str, int]
    predicted_bytes: Mapping[str, int]
    overlap: Mapping[str, Mapping[str, float]]

    @property
    def most_shared(self) -> float:
        """The largest share."""
        return max(share for of_split in self.overlap.values() for share in of_split.values())


def opened(recipe: TextRecipe, config: CorpusConfig) -> tuple[str, Tokenizer, dict[str, Stream], TextFacts]:
    """The fingerprint of a text, its tokenizer, its splits, and what is known of it, from the cache if they
    are there: they are found by the stamp of the text, or by its content where that is all that tells. Raises
    CorpusError."""
    text = recipe.text()

    @functools.cache
    def divided() -> Divided:
        return divide(text.documents(), config.splits, split=recipe.split, unique=recipe.unique)

    vocab = config.bpe_vocab if config.tokenizer == "bpe" else None
    with said_if_long(f"corpus={config.name}: reading its text and what its splits share, once"):
        about = [text.stamp or divided().fingerprint, recipe.split, recipe.unique]
        key = digest([FORMAT, *about, config.tokenizer, vocab, config.splits])
        try:
            entry = cache.find(key) or cache.publish(key, lambda place: write(place, divided(), config))
        except OSError as error:
            raise CorpusError(
                f"{cache.directory()}: the cache can't be used ({error.strerror or error});"
                " set ABLATE_CACHE to a directory with room"
            ) from None
    directory, facts = entry[0], TextFacts(**entry[1])
    splits = {
        name: Stream(np.load(directory / f"{name}.npy", mmap_mode="r"), predicted_bytes)
        for name, predicted_bytes in facts.predicted_bytes.items()
    }
    return facts.sha256, load(directory / "tokenizer.json"), splits, facts


def write(directory: Path, divided: Divided, config: CorpusConfig) -> dict[str, Any]:
    """Write tokenizer.json and the ids of each split into `directory`. Returns the TextFacts as plain data.
    Raises CorpusError if the text is empty."""
    if not any(divided.splits):
        raise CorpusError(f"corpus={config.name}: {config.called} is empty; give text to train on")
    training = pieces(divided.splits[0])
    tokenizer = fitted(config.tokenizer, divided.splits, training, config.bpe_vocab)
    create(directory / "tokenizer.json", tokenizer.dump())
    dtype = "<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4"
    texts, predicted_bytes = dict(zip(SPLITS, divided.splits, strict=True)), {}
    for name, text in texts.items():
        ids = np.concatenate([tokenizer.encode(piece).astype(dtype) for piece in pieces(text)])
        np.save(directory / f"{name}.npy", ids)
        predicted_bytes[name] = len(utf8(text)) - sum(map(tokenizer.bytes_of, ids[:1].tolist()))
    return {
        "sha256": divided.fingerprint,
        "documents": divided.documents,
        "predicted_bytes": predicted_bytes,
        "characters": {name: len(text) for name, text in texts.items()},
        "overlap": {
            name: {other: overlap(texts[name], texts[other]) for other in SPLITS[: SPLITS.index(name)]}
            for name in filter(texts.get, SPLITS[1:])
        },
    }


def pieces(text: str) -> Iterator[str]:
    """The same text in pieces of at most PIECE characters, at least one.

    Cuts are before the white space after a word, if there is any: byte-level BPE never merges across such a
    place, so the pieces have the same ids as the whole text.
    """
    most = rf".{{1,{PIECE}}}"
    found = re.finditer(rf"\A\Z|{most}(?:\Z|(?<!\s)(?=[ \t\r\n]))|{most}", text, re.DOTALL)
    return (piece[0] for piece in found)
