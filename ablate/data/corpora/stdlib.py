"""corpus=stdlib: the source files of Python's standard library, of the running interpreter's, or of the one
that lies in ABLATE_STDLIB, so that a text is the same under another Python."""

import os
import re
import string
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from ablate.data.corpora import Decoded, OfDocuments, TextRecipe, register
from ablate.data.text import CorpusError, Text, below, of_files, readable

DIGITS = 0.08  # the largest share of a document's characters; with more it is a table
# Tables in the form of source: character codes, the topics of the documentation, entities.
TABLES = ("encodings/", "pydoc_data/", "stringprep.py", "html/entities.py")
# What some distributions package apart, leave out or change.
APART = {"distutils", "ensurepip", "idlelib", "lib2to3", "macholib", "msilib", "pydoc", "pydoc_data", "site"}
APART |= {"tkinter", "turtle", "turtledemo"}
NO_LIBRARY = r"__pycache__|(site|dist)-packages|config-.*"
TESTS = r"tests?|idle_test"
PATHS_OF_THIS_MACHINE = "_sysconfigdata"


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


def root() -> Path:
    return Path(os.environ.get("ABLATE_STDLIB") or sysconfig.get_path("stdlib"))


def sources(*, tests: bool = False) -> dict[str, Path]:
    """All modules by their path in `root`, sorted; tests: with those that test the library. Raises
    CorpusError if they can't be read."""
    library, skipped = root(), re.compile(NO_LIBRARY if tests else f"{NO_LIBRARY}|{TESTS}")
    with readable(library):
        files = below(library, ".py", lambda name: skipped.fullmatch(name) is not None)
    files = [file for file in files if not file.name.startswith(PATHS_OF_THIS_MACHINE)]
    return {file.relative_to(library).as_posix(): file for file in files}


def is_shipped(path: str) -> bool:
    """Whether every build of this version has the module with this path in `root`."""
    names = path.removesuffix(".py").split("/")
    return names[0] in sys.stdlib_module_names and not APART & {*names}
