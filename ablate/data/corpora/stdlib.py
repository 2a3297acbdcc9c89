import re
import sys
import sysconfig
from pathlib import Path

from ablate.data.corpora.base import Decoded, TextRecipe, register
from ablate.data.text import CorpusError, Text, below, of_files, readable


@register("stdlib")
class Stdlib(Decoded, TextRecipe):
    """The Python source of the interpreter's standard library, without its tests and installed packages."""

    def text(self) -> Text:
        root = Path(sysconfig.get_path("stdlib"))
        apart = re.compile(r"tests?|idle_test|__pycache__|(site|dist)-packages|config-.*").fullmatch
        with readable(root):
            files = below(root, ".py", lambda name: apart(name) is not None)
        files = [file for file in files if not file.name.startswith("_sysconfigdata")]  # this machine's paths
        if not files:
            raise CorpusError(
                f"corpus=stdlib: {root} holds no Python source for {sys.executable};"
                " take corpus=pydoc, corpus=grammar or corpus=file"
            )
        return of_files(files, self.encoding, self.errors)
