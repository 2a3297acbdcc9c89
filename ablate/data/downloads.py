"""Files that pooch downloads once and keeps in the cache, under downloads/; a user may put them there, too.

Loads no HTTP client before one is needed.
"""

import errno
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from ablate.config.rules import AtLeast, Spelled
from ablate.data.text import CorpusError, shown
from ablate.files import cache

FOLDER = "downloads"  # in the cache
TIMEOUT_S = 30  # without a byte from the server
AGENT = {"User-Agent": "ablate"}  # some servers refuse the default of Python's clients

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file to download. file: its path below downloads/. size: in bytes. addresses: tried in turn. holds:
    for each split, the member of this zip file that is its text; null: the file is the text."""

    file: Annotated[
        str, Spelled(r"\w[\w.+-]*(/\w[\w.+-]*)*", "write a path below downloads/, as book/book.txt")
    ]
    sha256: Annotated[str, Spelled("[0-9a-f]{64}", "write the SHA-256 as 64 lower-case hex digits")]
    size: Annotated[int, AtLeast(1)]
    addresses: tuple[str, ...]
    holds: Mapping[str, str | None]


def is_here(remote: RemoteFile) -> bool:
    """Whether a file of that name is in the cache. It is not read."""
    return (cache.directory() / FOLDER / remote.file).is_file()


def fetch(remote: RemoteFile) -> Path:
    """The file in the cache, downloaded unless it is there and is the right one. Raises CorpusError."""
    import pooch

    pooch.get_logger().setLevel(logging.WARNING)
    path = cache.directory() / FOLDER / remote.file
    known, reasons = f"sha256:{remote.sha256}", list[str]()
    for address in remote.addresses:
        try:
            if not (path.is_file() and pooch.file_hash(str(path)) == remote.sha256):
                log.warning("%s: downloading %s bytes from %s", remote.file, f"{remote.size:,}", address)
            get: Any = pooch.HTTPDownloader(headers=AGENT, timeout=TIMEOUT_S)
            return Path(pooch.retrieve(address, known, path.name, path.parent, downloader=get))
        except (OSError, ValueError) as error:  # ValueError: another SHA-256
            if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
                raise CorpusError(
                    f"{shown(path)}: can't be written ({error}); make room for {remote.size:,} bytes, or set"
                    " ABLATE_CACHE to a directory with room"
                ) from None
            reasons.append(f"{address}: {' '.join(str(error).split())[:200]}")
    raise CorpusError(
        f"{remote.file}: can't be downloaded ({'; '.join(reasons)}); get it elsewhere and put it by hand at"
        f" {shown(path)}"
    )
