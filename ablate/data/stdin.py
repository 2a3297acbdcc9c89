"""Standard input as a text that can be read more than once."""

import contextlib
import hashlib
import os
import sys
from pathlib import Path

from ablate.data.text import BLOCK, CorpusError, Text, check_encoding, read
from ablate.files import cache

# The variable that names the file with the text, so that child processes read the file, not the pipe.
SPOOLED = "ABLATE_STDIN"
NAME = "standard input"


def text(encoding: str, errors: str) -> Text:
    """The text that was piped in. Raises CorpusError."""
    check_encoding(encoding)
    file = _spooled()
    # The stamp has the digest, so the tokens are found in the cache even after the file is gone.
    return Text(lambda: read(file, encoding, errors, name=NAME), [NAME, file.parent.name, encoding, errors])


def _spooled() -> Path:
    """The file in the cache that holds standard input, written on the first call."""
    if spooled := os.environ.get(SPOOLED):
        with contextlib.suppress(OSError):
            os.utime(Path(spooled).parent)  # mark it as still in use
        return Path(spooled)
    if sys.stdin is None or sys.stdin.isatty():
        raise CorpusError("corpus.path=-: nothing is piped in; as in cat book.txt | ablate run corpus.path=-")
    digest = hashlib.sha256()
    with cache.scratch() as part:
        with (part / "text").open("wb") as file:
            while block := sys.stdin.buffer.read(BLOCK):
                digest.update(block)
                file.write(block)
        spooled = cache.keep_for_now(part, digest.hexdigest()) / "text"
    os.environ[SPOOLED] = str(spooled)
    return spooled
