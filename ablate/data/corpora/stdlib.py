import string
import sys
from dataclasses import dataclass

from ablate.data.corpora import Decoded, OfDocuments, TextRecipe, register
from ablate.data.library import TABLES, root, sources
from ablate.data.text import CorpusError, Text, of_files

DIGITS = 0.08  # the largest share of a document's characters; with more it is a table


@register("stdlib")
@dataclass(frozen=True, kw_only=True)
class Stdlib(OfDocuments, Decoded, TextRecipe):
    """The source of Python's standard library, without tables. tests: with the library's own tests."""

    tests: bool

    def text(self) -> Text:
        modules = sources(tests=self.tests)
        files = [file for path, file in modules.items() if not path.startswith(TABLES)]
        if not files:
            raise CorpusError(
                f"corpus=stdlib: {root()} holds no Python source for {sys.executable};"
                " take corpus=grammar or corpus=file"
            )
        text = of_files(files, self.encoding, self.errors)
        return Text(lambda: (one for one in text.documents() if digits(one.text) <= DIGITS), text.stamp)


def digits(text: str) -> float:
    """The share of its characters that are digits."""
    return sum(map(text.count, string.digits)) / max(len(text), 1)
