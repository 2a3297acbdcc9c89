"""Text as a stream: which files a path names, and their bytes as characters.

Nothing here holds a whole text: it comes in chunks of about a million characters.
"""

import codecs
import difflib
import encodings.aliases
import glob
import io
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.config.rules import ConfigError

BLOCK = 1 << 20  # bytes read at a time; they decode to as many characters at most


class CorpusError(ConfigError):
    """A text that can't be had or used. One line: the value, the reason, the way out."""


@dataclass(frozen=True)
class Text:
    """A text that can be read again and again, in chunks whose borders mean nothing.

    stamp: plain data that changes whenever the text does; None if only reading the text can tell.
    """

    chunks: Callable[[], Iterator[str]]
    stamp: Any = None


def of_files(files: list[Path], encoding: str, errors: str) -> Text:
    """The files one after the other, as `cat` would give them. Raises CorpusError."""
    check_encoding(encoding)

    def chunks() -> Iterator[str]:
        for file in files:
            yield from read(file, encoding, errors)

    return Text(chunks, _stamp(files, encoding, errors))


def read(file: Path, encoding: str, errors: str) -> Iterator[str]:
    """The characters of `file`: line ends as they are, a leading byte order mark dropped.

    Raises CorpusError for what can't be read, and for bytes that are no text in this encoding.
    """
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    nul_is_text = codecs.lookup(encoding).name.startswith(("utf-16", "utf-32"))
    end, started = 0, False  # bytes given to the decoder; characters came out
    with readable(file), file.open("rb") as stream:
        while True:
            block = stream.read(BLOCK)
            if not nul_is_text and (nul := block.find(0)) >= 0:
                raise CorpusError(
                    f"{shown(file)}: binary, it has a NUL byte at offset {end + nul};"
                    " give a text file, or corpus.encoding=utf-16 if that is what it is"
                )
            end += len(block)
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeError as error:
                raise _wrong_encoding(file, encoding, error, end) from None
            if text:
                yield text if started else text.removeprefix("\ufeff")
                started = True
            if not block:
                return


def find(path: str) -> list[Path]:
    """The files that corpus.path names: one file, all below a directory, or those of a glob, sorted.

    Hidden files are skipped, unless named. Raises CorpusError if there is none.
    """
    target = Path(os.path.expanduser(path))  # the shell expands no ~ after a =
    with readable(target):
        if target.is_dir():
            return below(target) or _refuse(path, "a directory without files; give one with text in it")
        if target.is_file():
            return [target]
        if target.exists():
            return _refuse(path, "neither a file nor a directory; pipe it in, with corpus.path=-")
    if glob.escape(path) != path:
        matches = map(Path, sorted(glob.glob(str(target), recursive=True)))
        files = [match for match in matches if match.is_file()]
        return files or _refuse(path, f"matches no file, seen from {Path.cwd()}; try a wider pattern")
    with readable(target):
        folder = target.absolute().parent
        if not folder.is_dir():
            return _refuse(path, f"there is no directory {shown(folder)}; correct the path")
        near = difflib.get_close_matches(target.name, os.listdir(folder), n=1)
    hint = f"did you mean {shown(target.with_name(near[0]))}?" if near else "correct the path"
    return _refuse(path, f"no such file in {shown(folder)}; {hint}")


def below(
    directory: Path, suffix: str = "", skipped: Callable[[str], bool] = lambda name: False
) -> list[Path]:
    """All files under `directory` whose names end in `suffix`, sorted by relative path, hidden ones left out.

    skipped: tells by its name whether a directory is passed over. Raises OSError.
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
    """Raises CorpusError unless Python knows `encoding`, and it is one of text."""
    try:
        io.TextIOWrapper(io.BytesIO(), encoding=encoding)  # refuses codecs such as hex, too
    except LookupError:
        known = sorted(
            {name.replace("_", "-") for pair in encodings.aliases.aliases.items() for name in pair}
        )
        known = [name for name in known if name != encoding.lower().replace("_", "-")]  # no text: hex, say
        near = difflib.get_close_matches(encoding.lower().replace("_", "-"), known, n=1)
        raise CorpusError(
            f"corpus.encoding={encoding}: no such encoding; use {near[0] if near else 'utf-8'}"
            " or another of https://docs.python.org/3/library/codecs.html#standard-encodings"
        ) from None


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Whatever the system refuses within, as a CorpusError about `path`."""
    try:
        yield
    except OSError as error:
        name = shown(Path(os.fsdecode(error.filename or path)))
        raise CorpusError(
            f"{name}: can't be read ({error.strerror}); mend that, or give other text"
        ) from None


def shown(path: Path) -> str:
    """The path on one line, whatever odd characters are in it."""
    return str(path) if str(path).isprintable() else ascii(str(path))


def _refuse(path: str, reason: str) -> list[Path]:
    raise CorpusError(f"corpus.path={shown(Path(path))}: {reason}")


def _wrong_encoding(file: Path, encoding: str, error: UnicodeError, end: int) -> CorpusError:
    """end: the offset in the file up to which the decoder was given bytes."""
    what = f"not {encoding} ({error})"
    if isinstance(error, UnicodeDecodeError):
        # The bytes that it could not decode may begin in an earlier block, but they end at `end`.
        offset = end - len(error.object) + error.start
        what = f"byte 0x{error.object[error.start]:02x} at offset {offset} is not {encoding} ({error.reason})"
    return CorpusError(
        f"{shown(file)}: {what}; give the right one with corpus.encoding=… (latin-1?),"
        " or pass over such bytes with corpus.errors=replace"
    )


def _stamp(files: list[Path], encoding: str, errors: str) -> Any:
    facts = []
    for file in files:
        with readable(file):
            stat = file.stat()
        if stat.st_mtime_ns > time.time_ns() - 2_000_000_000:
            return None  # it may change again within one tick of the file system's clock
        facts.append([str(file.absolute()), stat.st_size, stat.st_mtime_ns])
    return [facts, encoding, errors]
