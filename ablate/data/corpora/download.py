"""Texts by name: files that pooch downloads once and keeps in the cache, under downloads/; a user may put
them there, too. Loads no HTTP client before one is needed.
"""

import logging
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from ablate.config.rules import AtLeast, Spelled
from ablate.data.corpora import SPLITS, Decoded, OfDocuments, TextRecipe, register
from ablate.data.text import CorpusError, Document, Text, read, readable
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

    def fetch(self) -> Path:
        """The file in the cache, downloaded unless it is there and is the right one. Raises CorpusError."""
        import pooch

        pooch.get_logger().setLevel(logging.WARNING)
        path, reasons = cache.directory() / FOLDER / self.file, list[str]()
        for address in self.addresses:
            try:
                if not (path.is_file() and pooch.file_hash(str(path)) == self.sha256):
                    log.warning("%s: downloading %s bytes from %s", self.file, f"{self.size:,}", address)
                get: Any = pooch.HTTPDownloader(headers=AGENT, timeout=TIMEOUT_S)
                return Path(pooch.retrieve(address, self.sha256, path.name, path.parent, downloader=get))
            except (OSError, ValueError) as error:  # another SHA-256, or a full disk
                reasons.append(f"{address}: {' '.join(str(error).split())[:200]}")
        raise CorpusError(
            f"{self.file}: can't be downloaded ({'; '.join(reasons)}); get it elsewhere and put it by hand at"
            f" {path}"
        )


@register("download")
@dataclass(frozen=True, kw_only=True)
class Download(OfDocuments, Decoded, TextRecipe):
    """A text that a YAML describes by the files to download, so a further text needs no code.

    recipe: how its YAML names this class. about: what the text is, in a line. The splits that files hold are
    `all`, for a text that corpus.splits divides, or the text's own: train, validation and maybe test.
    """

    recipe: Literal["download"]
    about: str
    licence: str
    files: tuple[RemoteFile, ...]

    def __post_init__(self) -> None:
        splits = {str(split) for file in self.files for split in file.holds}
        if splits != {"all"} and not splits <= {*SPLITS}:
            raise CorpusError(
                f"corpus.files: they hold {', '.join(sorted(splits))}; give all, or train, validation and"
                " perhaps test"
            )

    def text(self) -> Text:
        # The SHA-256 is that of the text, so its tokens are found in the cache even after the files are gone.
        stamp = [[file.sha256, sorted(file.holds.items())] for file in self.files]
        return Text(self._documents, [stamp, self.encoding, self.errors])

    def _documents(self) -> Iterator[Document]:
        for file in self.files:
            path = file.fetch()
            for split, member in file.holds.items():
                with readable(path):
                    source = zipfile.Path(path, member) if member else path
                text = read(source, self.encoding, self.errors)
                yield Document(f"{file.file}/{member or ''}", text, "" if split == "all" else split)
