"""Files that are downloaded once and kept in the cache, under downloads/, where a user may put them as well.

Loads no HTTP client before one is needed.
"""

import hashlib
import logging
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ablate.config.rules import AtLeast, Spelled
from ablate.data.text import CorpusError, readable, shown
from ablate.files import cache
from ablate.files.owned import move_file
from ablate.printing import console

FOLDER = "downloads"  # in the cache
CHUNK = 1 << 18  # bytes written at a time
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
    """The file in the cache, downloaded unless it is there. Raises CorpusError if it can't be had, or is
    another."""
    for directory in (cache.directory(), cache.writable()):
        path = directory / FOLDER / remote.file
        if path.is_file():
            _require_same(path, remote)
            return path
    try:
        return _download(remote)
    except OSError as error:
        raise CorpusError(
            f"{shown(cache.writable() / FOLDER / remote.file)}: can't be written ({error.strerror or error});"
            f" make room for {remote.size:,} bytes, or set ABLATE_CACHE to a directory with room"
        ) from None


def _require_same(path: Path, remote: RemoteFile) -> None:
    with readable(path), path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 != remote.sha256:
        raise CorpusError(
            f"{shown(path)}: another file, its SHA-256 is {sha256}, not {remote.sha256}; move it away,"
            f" and it is downloaded from {remote.addresses[0]}"
        )


def _download(remote: RemoteFile) -> Path:
    """Download the file from the first address that has it. Raises CorpusError, and OSError if it can't be
    written."""
    import requests

    place, reasons = cache.writable() / FOLDER / remote.file, []
    # Written elsewhere and renamed, so that no process ever sees half of it, even if this one is killed.
    with cache.scratch() as part:
        if shutil.disk_usage(part).free < remote.size:
            raise OSError("too little space is left")
        for number, address in enumerate(remote.addresses):
            log.warning("%s: downloading %s bytes from %s", remote.file, f"{remote.size:,}", address)
            try:
                _receive(address, remote, file := part / str(number))
            except (requests.RequestException, CorpusError) as error:
                reasons.append(f"{address}: {_reason(error)}")
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            move_file(file, place)
            return place
    raise CorpusError(
        f"{remote.file}: can't be downloaded ({'; '.join(reasons)}); get it elsewhere and put it by hand at"
        f" {shown(cache.directory() / FOLDER / remote.file)}"
    )


def _receive(address: str, remote: RemoteFile, file: Path) -> None:
    """Write what an address sends, no byte beyond the size. Raises CorpusError if that is another file,
    RequestException, OSError."""
    import requests
    from rich.progress import track

    sha256, left = hashlib.sha256(), remote.size
    request = requests.get(address, headers=AGENT, timeout=TIMEOUT_S, stream=True)
    with request as answer, file.open("xb") as written:
        answer.raise_for_status()
        shown_as = {"console": console(), "disable": not sys.stderr.isatty(), "transient": True}
        for block in track(answer.iter_content(CHUNK), remote.file, remote.size / CHUNK, **shown_as):
            left -= len(block)
            if left < 0:
                raise CorpusError(f"it sends more than {remote.size:,} bytes")
            sha256.update(block)
            written.write(block)
    if sha256.hexdigest() != remote.sha256:
        raise CorpusError("the file there has another SHA-256")


def _reason(error: Exception) -> str:
    """Why a download failed, in a few words. Those of the libraries take several lines."""
    import requests

    match error:
        case requests.HTTPError(response=requests.Response() as response):
            return f"HTTP {response.status_code}"
        case requests.Timeout():
            return f"no answer in {TIMEOUT_S} s"
        case requests.exceptions.SSLError():
            return "its certificate can't be verified"
        case requests.ConnectionError():
            return "no connection"
        case requests.RequestException():
            return "the connection broke off"
        case _:
            return str(error)
