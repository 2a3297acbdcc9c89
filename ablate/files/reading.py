"""Files read back with bounds: regular ones only, of a size and a depth that ablate may have written, and the
list of what a command left out since it could not be read. Loads no torch."""

import io
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

# Of 100,000 runs, remembered rows have 200 MB, and study.json 30 MB.
MOST_BYTES = 1 << 28
DEPTH = 20  # the deepest, weights by layer, head and channel in a row, are five levels down
LARGEST = sys.float_info.max  # beyond it a number is not finite, be it written as a whole one

_left_out: dict[str, None] = {}


def leave_out(what: object) -> None:
    """Note, once, what could not be read, as a line with the reason, for whoever prints at the end."""
    _left_out[f"left out: {what}"] = None


def left_out() -> list[str]:
    """The lines since the last call."""
    lines = [*_left_out]
    _left_out.clear()
    return lines


def opened(path: Path) -> io.BufferedReader:
    """The file, if it is a regular one: a pipe would wait, a device never end. Raises OSError."""

    def at_once(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))

    file = open(path, "rb", opener=at_once)  # noqa: SIM115 (its reader closes it)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(None, "no regular file", str(path))
    return file


def read_bytes(path: Path) -> bytes:
    """The content of a regular file of at most MOST_BYTES. Raises OSError."""
    with opened(path) as file:
        if os.fstat(file.fileno()).st_size > MOST_BYTES:
            raise OSError(None, f"more than {MOST_BYTES:,} bytes", str(path))
        return file.read(MOST_BYTES)


def parsed(data: bytes) -> Any:
    """The content of a JSON file: numbers finite, characters whole, nested in DEPTH levels at most. Raises
    ValueError."""
    text = data.decode()
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if "\\ud" in text.lower():  # perhaps half a character, which nothing can print
        json.dumps(content, ensure_ascii=False).encode()
    level = [content]
    for _ in range(DEPTH + 1):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner += value.values()
            elif isinstance(value, list):
                inner += value
            elif isinstance(value, int | float) and not -LARGEST <= value <= LARGEST:
                raise ValueError("a number in it is not finite")
        level = inner
    if level:
        raise ValueError("nested too deeply")
    return content
