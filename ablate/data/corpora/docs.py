"""corpus=docs: what Python's standard library says of itself, its help topics and docstrings."""

import ast
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ablate.data.corpora import OfDocuments, TextRecipe, register
from ablate.data.corpora.stdlib import is_shipped, root, sources
from ablate.data.text import CorpusError, Document, Text, readable, stamp_of

VERSION = 1  # raise it when the rules change: cached texts are found by it
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
HOLDERS = ast.stmt | ast.excepthandler | ast.match_case  # what can hold these: no expression can
TOPICS = Path("pydoc_data", "topics.py")  # of help()


@register("docs")
@dataclass(frozen=True, kw_only=True)
class Docs(OfDocuments, TextRecipe):
    """Help topics and docstrings of Python's standard library. They are read from its source files:
    each topic, and all docstrings of a module, are a document."""

    def text(self) -> Text:
        topics = root() / TOPICS
        modules = {path: file for path, file in sources().items() if is_shipped(path)}
        if not (topics.is_file() and modules):
            raise CorpusError(
                f"corpus=docs: {root()} lacks {TOPICS if modules else 'the source of the library'} (some"
                " distributions leave it out); take corpus=grammar or corpus=file"
            )
        stamp = stamp_of([topics, *modules.values()], "docs", VERSION)
        return Text(lambda: _documents(topics, modules), stamp)


def _documents(topics: Path, modules: Mapping[str, Path]) -> list[Document]:
    (table,) = (node.value for node in _parsed(topics).body if isinstance(node, ast.Assign))
    texts = {f"topic {name}": topic for name, topic in ast.literal_eval(table).items()}
    for path, file in modules.items():
        texts[path.removesuffix(".py").replace("/", ".")] = "\n\n".join(_docstrings(_parsed(file)))
    return [Document(name, f"{text.strip()}\n\n") for name, text in texts.items() if text]


def _docstrings(node: ast.AST) -> Iterator[str]:
    """The docstrings of a module, its classes and its functions, in their order."""
    if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False):
        yield ast.get_docstring(node) or ""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, HOLDERS):
            yield from _docstrings(child)


def _parsed(file: Path) -> ast.Module:
    with readable(file), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes in old code
        return ast.parse(file.read_bytes())
