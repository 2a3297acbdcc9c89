"""Texts: find the files that a path names and decode them."""

import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.config.rules import ConfigError
from ablate.files.atomic import file_stamp


class CorpusError(ConfigError):
    """A text that can't be read or used. The message is one line: the value, the reason, the way out."""


@dataclass(frozen=True)
class Document:
    """A part of a text that stands for itself, such as a file. name: the same on every machine. split: the
    name of its split, if the text says it itself."""

    name: str
    text: str
    split: str = ""


@dataclass(frozen=True)
class Text:
    """documents: reads them. stamp: plain data that changes whenever the text does; None if only reading the
    text can tell."""

    documents: Callable[[], Iterable[Document]]
    stamp: Any


def of_files(files: list[Path], encoding: str, errors: str) -> Text:
    """The files one after the other, as `cat` would give them, each a document, named by its path from the
    directory that all are in. Raises CorpusError."""
    root = Path(os.path.commonpath([file.absolute().parent for file in files]))

    def documents() -> Iterator[Document]:
        for file in files:
            name = file.absolute().relative_to(root).as_posix()
            yield Document(name, read(file, encoding, errors))

    return Text(documents, stamp_of(files, encoding, errors))


def read(file: Path | zipfile.Path, encoding: str, errors: str, *, name: str = "") -> str:
    """The characters of `file`. Line ends are kept, a leading byte order mark is dropped.

    name: what errors call the file, if not by its path. Raises CorpusError if it can't be read, or is no text
    in this encoding.
    """
    try:
        with readable(file), file.open(encoding=encoding, errors=errors, newline="") as stream:
            text = stream.read().removeprefix("\ufeff")
        if "\0" in text:
            raise UnicodeError("a null")
        return text
    except (UnicodeError, LookupError) as error:
        raise CorpusError(
            f"{name or file}: no {encoding} text ({getattr(error, 'reason', error)}); name its encoding with"
            " corpus.encoding=…, or pass over what is none with corpus.errors=replace"
        ) from None


def find(path: str) -> list[Path]:
    """The files that corpus.path names, sorted: one file, all below a directory, or the matches of a glob.

    Hidden files are skipped unless named. Raises CorpusError if there are no files.
    """
    target = Path(os.path.expanduser(path))  # shells do not expand ~ after =
    with readable(target):
        files = [target] if target.is_file() else below(target) if target.is_dir() else _matches(target)
    if not files:
        raise CorpusError(
            f"corpus.path={path}: no file there, seen from {Path.cwd()}; name a file, a"
            " directory or a glob, or - for what is piped in"
        )
    return files


def _matches(pattern: Path) -> list[Path]:
    """The files that a glob matches, without links that `**` would have to follow: they may lead back up."""

    def hidden(path: Path) -> int:
        return sum(part.startswith(".") and part != ".." for part in path.parts)

    root = Path(pattern.anchor or ".")
    # Before Python 3.13, ** is directories alone.
    pattern = pattern / "*" if pattern.name == "**" else pattern
    with suppress(ValueError):  # no glob
        matches = (match for match in root.glob(str(pattern.relative_to(root))) if match.is_file())
        visible = (match for match in matches if hidden(match) <= hidden(pattern))
        return sorted(visible, key=Path.as_posix)
    return []


def below(
    directory: Path, suffix: str = "", skipped: Callable[[str], bool] = lambda name: False
) -> list[Path]:
    """All files under `directory` whose names end in `suffix`, without hidden ones, sorted by relative path.

    skipped: says, by its name, whether to leave out a directory. Raises OSError.
    """
    files = []
    for path in sorted(path for path in directory.iterdir() if not path.name.startswith(".")):
        if path.is_dir():
            files += [] if path.is_symlink() or skipped(path.name) else below(path, suffix, skipped)
        elif path.name.endswith(suffix) and path.is_file():
            files.append(path)
    return files


@contextmanager
def readable(path: Path | zipfile.Path) -> Iterator[None]:
    """Turn read errors inside the block into CorpusErrors about `path`."""
    try:
        yield
    except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        # RuntimeError: of an archive with a password
        reason = getattr(error, "strerror", None) or error
        at = getattr(error, "filename", None) or path
        raise CorpusError(f"{at}: can't be read ({reason}); mend that, or give other text") from None


def stamp_of(files: list[Path], *others: Any) -> Any:
    """The stamp of a text that is read from these files, and that depends on nothing else but `others`."""
    facts = []
    for file in files:
        with readable(file):
            stamp = file_stamp(file)
        if stamp is None:
            return None
        facts.append([str(file.absolute()), *stamp])
    return [facts, *others]
