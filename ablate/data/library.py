"""The source files of Python's standard library: of the running interpreter's, or of the one that lies in
ABLATE_STDLIB, so that a text is the same under another Python."""

import os
import re
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from ablate.data.text import below, readable

# Tables in the form of source: character codes, the topics of the documentation, entities.
TABLES = ("encodings/", "pydoc_data/", "stringprep.py", "html/entities.py")
# What some distributions package apart, leave out or change.
APART = {"distutils", "ensurepip", "idlelib", "lib2to3", "macholib", "msilib", "pydoc", "pydoc_data", "site"}
APART |= {"tkinter", "turtle", "turtledemo"}
NO_LIBRARY = r"__pycache__|(site|dist)-packages|config-.*"
TESTS = r"tests?|idle_test"
PATHS_OF_THIS_MACHINE = "_sysconfigdata"


def root() -> Path:
    return Path(os.environ.get("ABLATE_STDLIB") or sysconfig.get_path("stdlib"))


def sources(*, tests: bool = False) -> list[Path]:
    """All modules, sorted by their path in `root`; tests: with those that test the library. Raises
    CorpusError if they can't be read."""
    skipped = re.compile(NO_LIBRARY if tests else f"{NO_LIBRARY}|{TESTS}")
    with readable(root()):
        files = below(root(), ".py", lambda name: skipped.fullmatch(name) is not None)
    return [file for file in files if not file.name.startswith(PATHS_OF_THIS_MACHINE)]


def without_tables(files: Iterable[Path]) -> list[Path]:
    """The files, among these, that are not data by their names."""
    library = root()
    return [file for file in files if not file.relative_to(library).as_posix().startswith(TABLES)]


def shipped(files: Iterable[Path]) -> list[Path]:
    """The files, among these, that every build of this version has."""
    library = root()
    names = {file: file.relative_to(library).with_suffix("").parts for file in files}
    return [f for f, name in names.items() if name[0] in sys.stdlib_module_names and not APART & {*name}]
