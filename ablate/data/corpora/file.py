"""corpus=file: the user's own text, from files or standard input."""

import hashlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from ablate.data.corpora import Decoded, OfDocuments, TextRecipe, register
from ablate.data.text import CorpusError, Document, Text, find, of_files, read
from ablate.files import cache
from ablate.files.owned import create

# The variable that names the file with the text, so that child processes read the file, not the pipe.
SPOOLED = "ABLATE_STDIN"
NAME = "standard input"


@register("file")
@dataclass(frozen=True, kw_only=True)
class File(OfDocuments, Decoded, TextRecipe):
    """Your own text: a file, a directory, a glob, or - for standard input."""

    path: str | None

    def __post_init__(self) -> None:
        if not self.path:
            raise CorpusError(
                "corpus=file: which text? add corpus.path=FILE (a file, a directory, a glob, or -)"
            )

    def text(self) -> Text:
        assert self.path is not None
        if self.path != "-":
            return of_files(find(self.path), self.encoding, self.errors)
        file = _spooled()
        # The stamp has the digest, so the tokens are found in the cache even after the file is gone.
        stamp = [NAME, file.parent.name, self.encoding, self.errors]
        return Text(lambda: [Document("", read(file, self.encoding, self.errors, name=NAME))], stamp)


def _spooled() -> Path:
    """The file in the cache that holds standard input, written on the first call."""
    if spooled := os.environ.get(SPOOLED):
        return Path(spooled)
    if sys.stdin is None or sys.stdin.isatty():
        raise CorpusError("corpus.path=-: nothing is piped in; as in cat book.txt | ablate run corpus.path=-")
    text = sys.stdin.buffer.read()
    key = f"stdin-{hashlib.sha256(text).hexdigest()}"
    entry, _ = cache.publish(key, lambda place: create(place / "text", text))
    os.environ[SPOOLED] = str(entry / "text")
    return entry / "text"
