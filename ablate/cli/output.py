"""What commands print: tables on stdout, in the requested format; remarks on stderr."""

import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from enum import StrEnum, auto
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

if TYPE_CHECKING:
    import pandas as pd

LONG_WORD = re.compile(r"(\S{150})\S{150,}(\S{50})")  # the groups are the ends, which are shown
TERMINATED = 143  # the exit code after SIGTERM


class Format(StrEnum):
    table = auto()
    csv = auto()
    json = auto()
    md = auto()
    latex = auto()


# Formats for people: rounded, without the columns that only programs need.
READ = (Format.table, Format.md, Format.latex)

FormatOption = Annotated[Format, typer.Option("--format", help="How to print the table.")]


WideOption = Annotated[
    bool, typer.Option("--wide", help="Show every column, however narrow the terminal is.")
]


def print_table(
    frame: "pd.DataFrame", format: Format, *, wide: bool = False, spare: Sequence[str] = ()
) -> None:
    """Print a table: in a terminal only the columns that fit, elsewhere and with `wide` all of them.

    spare: columns of this table that may be left out too, the first one first.
    """
    from ablate.reporting.tables import lines_of, render

    if format is not Format.table:
        typer.echo(render(frame, format.value), nl=False)
        return
    in_terminal = sys.stdout is not None and sys.stdout.isatty()
    room = shutil.get_terminal_size().columns if in_terminal and not wide else None
    text, left_out = lines_of(frame, room, bold=in_terminal, spare=spare)
    typer.echo(text, nl=False)
    if left_out:
        say(f"no room for {', '.join(left_out)}; --wide shows {'it' if len(left_out) == 1 else 'them'}")


def remark(text: str, format: Format) -> None:
    """Print text that goes with a table: a paragraph in Markdown, a comment in LaTeX."""
    if format is Format.latex:
        text = "\n".join(f"% {line}" for line in text.splitlines())
    typer.echo(f"{text}\n" if format is Format.md else _wrapped(text, sys.stdout))


def say(line: str) -> None:
    """Print one line on stderr, cleared of line ends, control characters and overlong words."""
    seen = "".join(c if c.isprintable() else " " for c in line)
    print(_wrapped(LONG_WORD.sub(r"\1…\2", seen), sys.stderr), file=sys.stderr)


def _wrapped(text: str, stream: TextIO | None) -> str:
    """The text broken between words to the terminal's width; unchanged if the stream is no terminal."""
    if stream is None or not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    lines = (
        textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
        for line in text.splitlines()
    )
    return "\n".join(lines)
