import sys
from dataclasses import dataclass

from ablate.data.corpora import Decoded, OfDocuments, TextRecipe, register
from ablate.data.library import root, sources
from ablate.data.text import CorpusError, Text, of_files


@register("stdlib")
@dataclass(frozen=True, kw_only=True)
class Stdlib(OfDocuments, Decoded, TextRecipe):
    """The source of Python's standard library. tests: with the library's own tests."""

    tests: bool

    def text(self) -> Text:
        files = sources(tests=self.tests)
        if not files:
            raise CorpusError(
                f"corpus=stdlib: {root()} holds no Python source for {sys.executable};"
                " take corpus=grammar or corpus=file"
            )
        return self.divided(of_files(files, self.encoding, self.errors))
