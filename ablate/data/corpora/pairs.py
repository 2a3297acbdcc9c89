"""corpus=pairs: a user's own pairs, from two files that correspond line by line, or from one with a tab
between source and target."""

from collections.abc import Iterator
from dataclasses import dataclass

from ablate.data import text
from ablate.data.corpora import Decoded, Recipe, register
from ablate.data.text import CorpusError


@register("pairs")
@dataclass(frozen=True, kw_only=True)
class Pairs(Decoded, Recipe):
    """Your own pairs of texts, line by line.

    path: the sources; target: the file of the targets. If it is None, path has both. Pairs with an empty
    side are left out."""

    read_as = ("pairs",)
    path: str | None
    target: str | None

    def __post_init__(self) -> None:
        if not self.path:
            raise CorpusError(
                "corpus=pairs: which texts? add corpus.path=SOURCES corpus.target=TARGETS, line by line, or"
                " corpus.path=FILE with a tab between source and target"
            )

    def pairs(self) -> list[tuple[str, str]]:
        """The pairs, in neither of which a text is empty. Raises CorpusError."""
        assert self.path is not None
        if self.target is None:
            both = [
                _columns(self.path, number, line) for number, line in enumerate(self._lines(self.path), 1)
            ]
        else:
            sources, targets = ([*self._lines(path)] for path in (self.path, self.target))
            if len(sources) != len(targets):
                raise CorpusError(
                    f"corpus.path={self.path} corpus.target={self.target}: {len(sources):,} lines and"
                    f" {len(targets):,}; line n of one has to belong to line n of the other"
                )
            both = [*zip(sources, targets, strict=True)]
        pairs = [(source.strip(), target.strip()) for source, target in both]
        pairs = [pair for pair in pairs if all(pair)]
        if not pairs:
            empty = f", of which {len(both):,} have an empty side" if both else ""
            raise CorpusError(
                f"corpus.path={self.path}: no pairs: {len(both):,} lines{empty}; give lines with a text on"
                " both sides"
            )
        return pairs

    def _lines(self, path: str) -> Iterator[str]:
        """The lines without their ends, \\n or \\r\\n, which the last line may lack."""
        if path == "-" or len(files := text.find(path)) != 1:
            raise CorpusError(f"corpus.path={path}: corpus=pairs reads one file of each language; name it")
        lines = text.read(files[0], self.encoding, self.errors).split("\n")
        yield from (line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1]))


def _columns(path: str, number: int, line: str) -> tuple[str, str]:
    """The first two columns of a line; others, such as the licence in files of Tatoeba, are ignored."""
    if not line.strip():
        return "", ""
    source, tab, rest = line.partition("\t")
    if not tab:
        raise CorpusError(
            f"corpus.path={path}: line {number:,} has no tab between source and target; put one there, or"
            " give the targets as corpus.target=FILE"
        )
    return source, rest.partition("\t")[0]
