"""Standard input, which can be read once, as a file that can be read again."""

import hashlib
import os
import sys
from pathlib import Path

from ablate.data.text import BLOCK, CorpusError
from ablate.files import cache

SPOOLED = (
    "ABLATE_STDIN"  # where the text lies: processes started by this one find it by that, and read no pipe
)


def spool() -> Path:
    """The file in the cache that holds standard input, written at the first call. Raises CorpusError."""
    if (spooled := os.environ.get(SPOOLED)) and Path(spooled).is_file():
        return Path(spooled)
    if sys.stdin is None or sys.stdin.isatty():
        raise CorpusError("corpus.path=-: nothing is piped in; as in cat book.txt | ablate run corpus.path=-")
    digest = hashlib.sha256()
    with cache.scratch() as part:
        with (part / "text").open("wb") as file:
            while block := sys.stdin.buffer.read(BLOCK):
                digest.update(block)
                file.write(block)
        os.utime(part / "text", (0, 0))  # named by its content, so its age must raise no doubt
        path = cache.writable() / "stdin" / digest.hexdigest()
        path.parent.mkdir(exist_ok=True)
        os.replace(part / "text", path)
    os.environ[SPOOLED] = str(path)
    return path
