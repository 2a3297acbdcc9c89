"""A table of text in as many columns of letters as a terminal has. Prints nothing."""

import bisect
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.cells import cell_len

GAP = 2  # letters between columns
TALL = 2  # lines of a cell: before one takes more, a column is left out
WORD = re.compile(r"[^\s\[]*\[[^\]]*\]\S*|\S+")  # an interval, [0.1, 0.2], is one


@dataclass(frozen=True)
class Column:
    """name, then a cell a row. right: whether it is aligned there, as numbers are. rank: the columns of the
    lowest are left out first; None for one that stays."""

    name: str
    cells: Sequence[str]
    right: bool = False
    rank: int | None = None

    @cached_property
    def natural(self) -> int:
        return max(map(cell_len, (self.name, *self.cells)))

    @cached_property
    def narrowest(self) -> int:
        """That of its longest word."""
        return max(cell_len(word) for cell in (self.name, *self.cells) for word in WORD.findall(cell) or [""])

    @cached_property
    def narrow(self) -> int:
        """The least in which no cell takes more than TALL lines."""
        possible = range(self.narrowest, self.natural)
        cells = [cell for cell in self.cells if cell_len(cell) > self.narrowest]
        at = bisect.bisect_left(
            possible, True, key=lambda width: all(len(_broken(cell, width)) <= TALL for cell in cells)
        )
        return self.narrowest + at


@dataclass(frozen=True)
class Fitted:
    """rows: the lines of each, the names' first. left_out: the names of the columns for which there was no
    room."""

    rows: list[list[str]]
    left_out: list[str]


def fitted(columns: Sequence[Column], width: int | None) -> Fitted:
    """The table in `width` letters; None for as many as it takes.

    Cells break between words, never within one. Where that takes more than TALL lines, columns are left out
    by their rank, if that helps. What is too wide even so has a line a value, under each other.
    """
    expendable = sorted((c for c in columns if c.rank is not None), key=lambda c: c.rank or 0)
    for least in (Column.narrow.func, Column.narrowest.func):
        for count in range(len(expendable) + 1):
            gone = [column.name for column in columns if column in expendable[:count]]
            kept = [column for column in columns if column.name not in gone]
            if (widths := _widths(kept, width, [*map(least, kept)])) is not None:
                cells = [[c.name for c in kept], *zip(*(c.cells for c in kept), strict=True)]
                return Fitted([_lines(row, kept, widths) for row in cells], gone)
    return Fitted(_cards(columns), [])


def _widths(columns: Sequence[Column], width: int | None, least: Sequence[int]) -> list[int] | None:
    """Of each column, those that can give most first. None where there is no room for `least`."""
    widths = [column.natural for column in columns]
    if width is None:
        return widths
    room = width - GAP * (len(columns) - 1)
    for at in sorted(range(len(columns)), key=lambda at: least[at] - widths[at]):
        widths[at] -= min(max(0, sum(widths) - room), widths[at] - least[at])
    return widths if sum(widths) <= room else None


def _lines(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> list[str]:
    """One row."""
    parts = [_broken(cell, width) for cell, width in zip(cells, widths, strict=True)]
    lines = []
    for line in itertools.zip_longest(*parts, fillvalue=""):
        padded = [
            " " * (width - cell_len(part)) + part if column.right else part + " " * (width - cell_len(part))
            for part, column, width in zip(line, columns, widths, strict=True)
        ]
        lines.append((" " * GAP).join(padded).rstrip())
    return lines


def _broken(cell: str, width: int) -> list[str]:
    """The cell in lines of at most `width` letters."""
    if cell_len(cell) <= width:
        return [cell]
    lines = [""]
    for word in WORD.findall(cell):
        longer = f"{lines[-1]} {word}".lstrip()
        if cell_len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return [line for line in lines if line]


def _cards(columns: Sequence[Column]) -> list[list[str]]:
    """A line a value, an empty line between rows."""
    wide = max(cell_len(column.name) for column in columns)

    def card(row: Sequence[str]) -> Iterator[str]:
        for column, cell in zip(columns, row, strict=True):
            yield f"{column.name}{' ' * (wide - cell_len(column.name))}  {cell}".rstrip()
        yield ""

    return [[], *([*card(row)] for row in zip(*(column.cells for column in columns), strict=True))]
