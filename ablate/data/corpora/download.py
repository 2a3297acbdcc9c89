import functools
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ablate.config.rules import ConfigError
from ablate.data.corpora import SPLITS, Decoded, OfDocuments, TextRecipe, register
from ablate.data.downloads import RemoteFile, fetch
from ablate.data.text import Document, Text, read, readable


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
        splits = {split for file in self.files for split in file.holds}
        if splits != {"all"} and not {*SPLITS[:2]} <= splits <= {*SPLITS}:
            raise ConfigError(
                f"corpus.files: they hold {', '.join(sorted(splits)) or 'no split'}; give all, or train and"
                " validation, with or without test"
            )

    def text(self) -> Text:
        # The SHA-256 is that of the text, so its tokens are found in the cache even after the files are gone.
        stamp = [[file.sha256, sorted(file.holds.items())] for file in self.files]
        documents = [
            Document(
                f"{file.file}/{member or ''}",
                functools.partial(self._chunks, file, member),
                "" if split == "all" else split,
            )
            for file in self.files
            for split, member in file.holds.items()
        ]
        return self.divided(Text(documents, [stamp, self.encoding, self.errors]))

    def _chunks(self, file: RemoteFile, member: str | None) -> Iterator[str]:
        path = fetch(file)
        name = f"{path}/{member}" if member else str(path)
        with readable(path, name):
            opened = zipfile.Path(path, member) if member else path
        yield from read(opened, self.encoding, self.errors, name=name)
