"""Fit a table of text into the width of a terminal. Prints nothing."""

import bisect
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.cells import cell_len

GAP = 2  # characters between columns
TALL = 2  # lines per cell; rather than use more, columns are left out
WORD = re.compile(r"[^\s\[]*\[[^\]]*\]\S*|\S+")  # an interval, [0.1, 0.2], counts as one word


@dataclass(frozen=True)
class Column:
    """A column with one cell per row. right: whether it is right-aligned, as numbers are. rank: the order in
    which columns are left out, lowest first; None for a column that stays."""

    name: str
    cells: Sequence[str]
    right: bool = False
    rank: int | None = None

    @cached_property
    def natural(self) -> int:
        return max(map(cell_len, (self.name, *self.cells)))

    @cached_property
    def narrowest(self) -> int:
        """The width of its longest word."""
        return max(cell_len(word) for cell in (self.name, *self.cells) for word in WORD.findall(cell) or [""])

    @cached_property
    def narrow(self) -> int:
        """The smallest width in which no cell needs more than TALL lines."""
        possible = range(self.narrowest, self.natural)
        cells = [cell for cell in self.cells if cell_len(cell) > self.narrowest]
        at = bisect.bisect_left(
            possible, True, key=lambda width: all(len(_broken(cell, width)) <= TALL for cell in cells)
        )
        return self.narrowest + at


@dataclass(frozen=True)
class Fitted:
    """rows: the lines of each row, beginning with the names. left_out: the names of the columns left out."""

    rows: list[list[str]]
    left_out: list[str]


def fitted(columns: Sequence[Column], width: int | None) -> Fitted:
    """The table in `width` characters; None for no limit.

    Cells break between words, never within one. If a cell would need more than TALL lines, columns are left
    out by their rank, if that helps. A table that is still too wide gets one line per value.
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
    """The width of each column, shrunk first where there is most to spare; None if `least` does not fit."""
    widths = [column.natural for column in columns]
    if width is None:
        return widths
    room = width - GAP * (len(columns) - 1)
    for at in sorted(range(len(columns)), key=lambda at: least[at] - widths[at]):
        widths[at] -= min(max(0, sum(widths) - room), widths[at] - least[at])
    return widths if sum(widths) <= room else None


def _lines(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> list[str]:
    """The lines of one row."""
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
    """The cell broken into lines of at most `width` characters."""
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
    """The table with one line per value and an empty line between rows."""
    wide = max(cell_len(column.name) for column in columns)

    def card(row: Sequence[str]) -> Iterator[str]:
        for column, cell in zip(columns, row, strict=True):
            yield f"{column.name}{' ' * (wide - cell_len(column.name))}  {cell}".rstrip()
        yield ""

    return [[], *([*card(row)] for row in zip(*(column.cells for column in columns), strict=True))]
