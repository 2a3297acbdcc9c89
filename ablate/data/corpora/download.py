import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ablate.config.rules import ConfigError
from ablate.data.corpora.base import SPLITS, Decoded, TextRecipe, register
from ablate.data.downloads import RemoteFile, fetch
from ablate.data.text import Text, check_encoding, read, readable


@register("download")
@dataclass(frozen=True, kw_only=True)
class Download(Decoded, TextRecipe):
    """A text that a YAML describes by the files to download, so a further text needs no code.

    recipe: how its YAML names this class. The splits that files hold are `all`, for a text that corpus.splits
    divides, or the text's own: train, validation and maybe test.
    """

    recipe: Literal["download"]
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
        check_encoding(self.encoding)
        # The SHA-256 is that of the text, so its tokens are found in the cache even after the files are gone.
        stamp = [[file.sha256, sorted(file.holds.items())] for file in self.files]
        # OWN SPLITS: `parts` knows the split of each part. A Text has no splits yet, so the parts are joined
        # in the order of SPLITS, and corpus.splits divides the whole.
        return Text(self._chunks, [stamp, self.encoding, self.errors])

    def parts(self) -> list[tuple[str, RemoteFile, str | None]]:
        """Each part of the text: its split, or `all`, its file, and its member of that file."""
        parts = [(split, file, member) for file in self.files for split, member in file.holds.items()]
        return sorted(parts, key=lambda part: ("all", *SPLITS).index(part[0]))

    def _chunks(self) -> Iterator[str]:
        for _, file, member in self.parts():
            path = fetch(file)
            name = f"{path}/{member}" if member else str(path)
            with readable(path, name):
                opened = zipfile.Path(path, member) if member else path
            yield from read(opened, self.encoding, self.errors, name=name)
