"""The door by which all text gets out of a command, cleaned once: what is printed may come from anywhere, as
the names in a table of another program, the error of a method, or a study.json do. Nothing else prints."""

import os
import re
import shutil
import sys
import textwrap
import traceback
from typing import TYPE_CHECKING, Any, TextIO

from ablate.phrases import cleaned, one_line

if TYPE_CHECKING:
    from rich.console import Console

COMMAND = re.compile(r"`[^`\n]*`")
BOLD = re.compile(r"(\x1b\[[01]m)")  # its beginning and its end

_left_out: dict[str, None] = {}  # what could not be read, until it is said


def put(text: object = "", end: str = "\n", *, bold: bool = False) -> None:
    """Print on stdout what was asked for. bold: whether some of it is, of a table with clean cells."""
    pieces = BOLD.split(str(text)) if bold else [str(text)]
    shown = (piece if at % 2 else cleaned(piece) for at, piece in enumerate(pieces))
    _print("".join(shown), sys.stdout, end)


def say(line: str) -> None:
    """Print one line on stderr."""
    _print(wrapped(one_line(line), sys.stderr), sys.stderr)


def _print(text: str, stream: TextIO, end: str = "\n") -> None:
    """Go on when nobody reads any more what is printed, as behind `| head`: what a run is made for is in its
    files."""
    try:
        print(text, end=end, file=stream, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def put_traceback(error: Exception) -> None:
    """Print it on stderr, for a bug report."""
    _print(cleaned("".join(traceback.format_exception(error))), sys.stderr, end="")


def leave_out(what: object) -> None:
    """Note, once, what could not be read, with the reason: whoever prints asks for the lines at the end."""
    _left_out[f"left out: {what}"] = None


def left_out() -> list[str]:
    """The lines since the last call."""
    lines = [*_left_out]
    _left_out.clear()
    return lines


def wrapped(text: str, stream: TextIO) -> str:
    """The text broken between words to the terminal's width, but in no command between backticks, so that it
    can be pasted; unchanged if the stream is no terminal."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    lines = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    whole = COMMAND.sub(lambda found: found[0].replace(" ", "\0"), text)
    return "\n".join(map(lines.fill, whole.splitlines())).replace("\0", " ")


def console(*, stderr: bool = True, **given: Any) -> "Console":
    """A terminal for lines that change, which are clean already. given: to rich."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, **given)
