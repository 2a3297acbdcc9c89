"""Split a text and write it to the cache as token ids."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ablate.config.schema import CorpusConfig
from ablate.data.corpora import SPLITS, TextRecipe
from ablate.data.division import Divided, divide
from ablate.data.splits import Stream
from ablate.data.text import CorpusError
from ablate.data.tokenizers import Tokenizer, fitted, load, utf8
from ablate.files import cache
from ablate.files.atomic import digest
from ablate.files.owned import create

FORMAT = 9  # the format that `write` produces: raise it when the files, or the ids in them, change
PIECE = 1 << 16  # characters encoded at a time


def opened(recipe: TextRecipe, config: CorpusConfig) -> tuple[str, Tokenizer, dict[str, Stream], int]:
    """The fingerprint of a text, its tokenizer, its splits, and how many documents it has, from the cache if
    they are there. Raises CorpusError."""
    try:
        directory, about = _entry(recipe, config)
    except OSError as error:
        raise CorpusError(
            f"{cache.directory()}: the cache can't be used ({error.strerror or error});"
            " set ABLATE_CACHE to a directory with room"
        ) from None
    tokenizer = load(directory / "tokenizer.json")
    splits = {
        split: Stream(read(directory, split, facts["tokens"], tokenizer), facts["predicted_bytes"])
        for split, facts in about["splits"].items()
    }
    return about["sha256"], tokenizer, splits, about["documents"]


def _entry(recipe: TextRecipe, config: CorpusConfig) -> tuple[Path, dict]:
    """The directory of the cache entry, and what `write` returned. It is found by the stamp of the text, or
    by its content where that is all that tells."""
    text = recipe.text()

    def divided() -> Divided:
        return divide(text.documents(), config.splits, split=recipe.split, unique=recipe.unique)

    known = divided() if text.stamp is None else None
    about = [text.stamp, recipe.split, recipe.unique] if known is None else [known.fingerprint]
    vocab = config.bpe_vocab if config.tokenizer == "bpe" else None
    key = digest([FORMAT, *about, config.tokenizer, vocab, config.splits])
    return cache.find(key) or cache.publish(key, lambda part: write(part, known or divided(), config))


def write(directory: Path, divided: Divided, config: CorpusConfig) -> dict[str, Any]:
    """Write tokenizer.json and the ids of each split into `directory`.

    Returns {"sha256", "documents", "splits": {split: {"tokens", "predicted_bytes"}}}. Raises CorpusError if
    the text is empty.
    """
    if not any(divided.splits):
        raise CorpusError(f"corpus={config.name}: {config.called} is empty; give text to train on")
    training = pieces(divided.splits[0])
    tokenizer = fitted(config.tokenizer, divided.splits, training, config.bpe_vocab)
    create(directory / "tokenizer.json", tokenizer.dump())
    splits = {}
    for split, text in zip(SPLITS, divided.splits, strict=True):
        ids = [tokenizer.encode(piece) for piece in pieces(text)]
        with (directory / f"{split}.bin").open("xb") as file:
            file.writelines(piece.data for piece in ids)
        of_the_first = int(tokenizer.byte_lengths[ids[0][0]]) if ids else 0
        predicted_bytes = len(utf8(text)) - of_the_first
        splits[split] = {"tokens": sum(map(len, ids)), "predicted_bytes": predicted_bytes}
    return {"sha256": divided.fingerprint, "documents": divided.documents, "splits": splits}


def read(directory: Path, split: str, tokens: int, tokenizer: Tokenizer) -> np.ndarray:
    """The (tokens,) ids of a split, memory-mapped, read-only."""
    if tokens:
        return np.memmap(directory / f"{split}.bin", tokenizer.dtype, mode="r", shape=(tokens,))
    empty = np.empty(0, tokenizer.dtype)  # an empty file can't be mapped
    empty.flags.writeable = False
    return empty


def pieces(text: str) -> Iterator[str]:
    """The same text in pieces of at most PIECE characters.

    Cuts are before the white space after a word, if there is any: byte-level BPE never merges across such a
    place, so the pieces have the same ids as the whole text.
    """
    start = 0
    while len(text) - start > PIECE:
        end = _cut_before(text, start, start + PIECE)
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def _cut_before(text: str, start: int, stop: int) -> int:
    places = (i for i in range(stop, start, -1) if text[i] in " \t\r\n" and not text[i - 1].isspace())
    return next(places, stop)
