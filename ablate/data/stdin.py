"""Standard input, which can be read once, as a text that can be read again."""

import contextlib
import hashlib
import os
import sys
from pathlib import Path

from ablate.data.text import BLOCK, CorpusError, Text, check_encoding, read
from ablate.files import cache

# Names the file in which the text lies: processes started by this one find it by that, and read no pipe.
SPOOLED = "ABLATE_STDIN"
NAME = "standard input"


def text(encoding: str, errors: str) -> Text:
    """What was piped in. Raises CorpusError."""
    check_encoding(encoding)
    file = _spooled()
    # Known by its digest, tokens are found in the cache when the file is gone.
    return Text(lambda: read(file, encoding, errors, name=NAME), [NAME, file.parent.name, encoding, errors])


def _spooled() -> Path:
    """The file in the cache that holds standard input, written at the first call."""
    if spooled := os.environ.get(SPOOLED):
        with contextlib.suppress(OSError):
            os.utime(Path(spooled).parent)  # still of use
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
