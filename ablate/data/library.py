"""The source files of Python's standard library: of the running interpreter's, or of the one that lies in
ABLATE_STDLIB, so that a text is the same under another Python."""

import os
import re
import sys
import sysconfig
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
