"""Texts as streams: find the files that a path names and decode them.

A text is never held in memory as a whole; it comes in chunks of about a million characters.
"""

import codecs
import difflib
import encodings.aliases
import fnmatch
import functools
import glob
import gzip
import io
import itertools
import os
import re
import time
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.config.rules import ConfigError
from ablate.files import as_spelled, marked_encoding

BLOCK = 1 << 20  # bytes read at a time, which decode to at most as many characters
GZIP = b"\x1f\x8b"  # how gzip files begin, and never a text in UTF-8
# Which of the first four bytes are zero if a text begins with Latin letters: one is 0041 or 00000041, or the
# same bytes reversed.
ZEROS: dict[tuple[bool, ...], str] = {
    (False, True, False, True): "utf-16-le",
    (True, False, True, False): "utf-16-be",
    (False, True, True, True): "utf-32-le",
    (True, True, True, False): "utf-32-be",
}


class CorpusError(ConfigError):
    """A text that can't be read or used. The message is one line: the value, the reason, the way out."""


@dataclass(frozen=True)
class Document:
    """A part of a text that stands for itself, such as a file. name: the same on every machine. chunks: its
    characters, cut at arbitrary places. split: the name of its split, if the text says it itself."""

    name: str
    chunks: Callable[[], Iterable[str]]
    split: str = ""


@dataclass(frozen=True)
class Text:
    """A text that can be read repeatedly. What split and unique mean: ablate.data.division.

    stamp: plain data that changes whenever the text does; None if only reading the text can tell.
    """

    documents: Callable[[], Iterable[Document]]
    stamp: Any = None
    split: str = "position"
    unique: str = "none"

    def chunks(self) -> Iterator[str]:
        """All documents, one after the other."""
        return itertools.chain.from_iterable(document.chunks() for document in self.documents())


def one_document(chunks: Callable[[], Iterable[str]], stamp: Any = None) -> Text:
    return Text(lambda: [Document("", chunks)], stamp)


def of_files(files: list[Path], encoding: str, errors: str) -> Text:
    """The files one after the other, as `cat` would give them, each a document, named by its path from the
    directory that all are in. Raises CorpusError."""
    check_encoding(encoding)
    root = Path(os.path.commonpath([file.absolute().parent for file in files]))
    documents = [
        Document(
            file.absolute().relative_to(root).as_posix(),
            functools.partial(read, file, encoding, errors, name=shown(file)),
        )
        for file in files
    ]
    return Text(lambda: documents, stamp_of(files, encoding, errors))


def read(file: Path | zipfile.Path, encoding: str, errors: str, *, name: str) -> Iterator[str]:
    """The characters of `file`, decompressed if it is gzipped. Line ends are kept, a leading byte order mark
    is dropped.

    name: what errors call the file. Raises CorpusError if it can't be read, or is no text in this encoding.
    """
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    end, start, started = 0, b"", False  # bytes decoded so far, the first of them, whether any text came out
    with readable(file, name), file.open("rb") as packed:
        stream = gzip.GzipFile(fileobj=packed) if packed.peek(2).startswith(GZIP) else packed  # pyright: ignore[reportAttributeAccessIssue]
        while True:
            block = stream.read(BLOCK)
            start, nul = start or block[:4], block.find(0)
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeError as error:
                if nul < 0:
                    raise _wrong_encoding(name, encoding, error, end + len(block), start) from None
                raise _binary(name, end + max(nul, 0), start) from None
            if "\0" in text:
                raise _binary(name, end + max(nul, 0), start)
            end += len(block)
            if text:
                yield text if started else text.removeprefix("\ufeff")
                started = True
            if not block:
                return


def find(path: str) -> list[Path]:
    """The files that corpus.path names, sorted: one file, all below a directory, or the matches of a glob.

    Hidden files are skipped unless named. Raises CorpusError if there are no files.
    """
    target = as_spelled(Path(os.path.expanduser(path)))  # shells do not expand ~ after =
    with readable(target):
        if target.is_dir():
            return below(target) or _refuse(path, "a directory without files; give one with text in it")
        if target.is_file():
            return [target]
        if target.exists():
            return _refuse(path, "neither a file nor a directory; pipe it in, with corpus.path=-")
    if target.is_symlink():
        return _refuse(path, f"a link to {shown(target.readlink())}, which leads to no file; mend the link")
    if glob.escape(path) != path:
        forms = {str(target), *(unicodedata.normalize(form, str(target)) for form in ("NFC", "NFD"))}
        files = sorted({file for form in forms for file in _matches(Path(form))}, key=Path.as_posix)
        return files or _refuse(path, f"matches no file, seen from {Path.cwd()}; try a wider pattern")
    with readable(target):
        folder = target.absolute().parent
        if not folder.is_dir():
            return _refuse(path, f"there is no directory {shown(folder)}; correct the path")
        near = difflib.get_close_matches(target.name, os.listdir(folder), n=1)
    hint = f"did you mean {shown(target.with_name(near[0]))}?" if near else "correct the path"
    return _refuse(path, f"no such file in {shown(folder)}; {hint}")


def _matches(pattern: Path) -> list[Path]:
    """The files that a glob matches. `**` does not follow links, which may lead back up."""
    root = Path(pattern.anchor or ".")
    parts = [part if part == "**" else re.sub(r"\*+", "*", part) for part in pattern.relative_to(root).parts]
    if parts[-1] == "**":  # which in pathlib matches directories only
        parts.append("*")
    named = [part for part in parts if part.startswith(".")]

    def is_hidden(match: Path) -> bool:
        hidden = (part for part in match.relative_to(root).parts if part.startswith("."))
        return not all(any(fnmatch.fnmatch(part, pattern) for pattern in named) for part in hidden)

    matches = (match for match in root.glob("/".join(parts)) if not is_hidden(match) and match.is_file())
    return [*matches]


def below(
    directory: Path, suffix: str = "", skipped: Callable[[str], bool] = lambda name: False
) -> list[Path]:
    """All files under `directory` whose names end in `suffix`, without hidden ones, sorted by relative path.

    skipped: says, by its name, whether to leave out a directory. Raises OSError.
    """

    def fail(error: OSError) -> None:
        raise error

    files = []
    for folder, subfolders, names in os.walk(directory, onerror=fail):
        subfolders[:] = [name for name in subfolders if not (name.startswith(".") or skipped(name))]
        paths = (Path(folder, name) for name in names if name.endswith(suffix) and not name.startswith("."))
        files += [path for path in paths if path.is_file()]
    return sorted(files, key=lambda file: file.relative_to(directory).parts)


def check_encoding(encoding: str) -> None:
    """Raises CorpusError unless `encoding` is a text encoding that Python knows."""
    if _is_of_text(encoding):
        return
    names = {name for pair in encodings.aliases.aliases.items() for name in pair}
    names_of_text = sorted(name.replace("_", "-") for name in names if _is_of_text(name))
    near = difflib.get_close_matches(encoding.lower().replace("_", "-"), names_of_text, n=1)
    reason = "no encoding of text" if encoding.lower().replace("-", "_") in names else "no such encoding"
    raise CorpusError(
        f"corpus.encoding={encoding}: {reason}; use {near[0] if near else 'utf-8'}"
        " or another of https://docs.python.org/3/library/codecs.html#standard-encodings"
    )


def _is_of_text(encoding: str) -> bool:
    try:
        text = io.TextIOWrapper(io.BytesIO(b"a"), encoding, "replace")  # refuses codecs such as hex, too
        text.read()  # refuses idna, which supports no error handlers
        return True
    except (LookupError, ValueError):
        return False


@contextmanager
def readable(path: Path | zipfile.Path, name: str = "") -> Iterator[None]:
    """Turn read errors inside the block into CorpusErrors about `path`. name: used instead of the path."""
    try:
        yield
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:  # the last come from damaged files
        name = name or shown(Path(os.fsdecode(getattr(error, "filename", None) or str(path))))
        reason = getattr(error, "strerror", None) or error
        raise CorpusError(f"{name}: can't be read ({reason}); mend that, or give other text") from None


def shown(path: Path) -> str:
    """The path as one printable line, whatever characters are in it."""
    return str(path) if str(path).isprintable() else ascii(str(path))


def _refuse(path: str, reason: str) -> list[Path]:
    raise CorpusError(f"corpus.path={shown(Path(path))}: {reason}")


def _binary(name: str, offset: int, start: bytes) -> CorpusError:
    """The error for a file with a NUL byte at `offset`. start: the first four bytes of the file."""
    other = marked_encoding(start) or ZEROS.get(tuple(byte == 0 for byte in start), "utf-16")
    return CorpusError(
        f"{name}: binary, it has a NUL byte at offset {offset};"
        f" give a text file, unpacked, or corpus.encoding={other} if that is what it is"
    )


def _wrong_encoding(name: str, encoding: str, error: UnicodeError, end: int, start: bytes) -> CorpusError:
    """The error for bytes that can't be decoded. end: the offset up to which the decoder has been given the
    file. start: the first four bytes of the file."""
    what, likely = f"not {encoding} ({error})", marked_encoding(start)
    if isinstance(error, UnicodeDecodeError):
        # The bytes that it could not decode may begin in an earlier block, but they end at `end`.
        offset = end - len(error.object) + error.start
        likely = likely or ("cp1252" if _is_western(error.object) else "")
        what = f"byte 0x{error.object[error.start]:02x} at offset {offset} is not {encoding} ({error.reason})"
    return CorpusError(
        f"{name}: {what}; give the right one with corpus.encoding=…{f' ({likely}?)' if likely else ''},"
        " or pass over such bytes with corpus.errors=replace"
    )


def _is_western(sample: bytes) -> bool:
    """Whether most bytes beyond ASCII are western letters and signs, alone in ASCII, as cp1252 has them. It
    has all that latin-1 prints."""
    text = re.sub("[\0-\x7f]+", " ", f" {sample.decode('cp1252', 'replace')} ")
    return 2 * len(re.findall("(?<= )[À-ÿ‘’“”–—…•€«»°§](?= )", text)) > len(text.replace(" ", ""))


def stamp_of(files: list[Path], *others: Any) -> Any:
    """The stamp of a text that is read from these files, and that depends on nothing else but `others`."""
    facts = []
    for file in files:
        with readable(file):
            stat = file.stat()
        if stat.st_mtime_ns > time.time_ns() - 2_000_000_000:
            return None  # it may change again within one tick of the file system's clock
        # Which file it is and when it was touched: a link may lead to another, and cp -p keeps the time.
        which = [stat.st_dev, stat.st_ino, stat.st_ctime_ns]
        facts.append([str(file.absolute()), stat.st_size, stat.st_mtime_ns, *which])
    return [facts, *others]
