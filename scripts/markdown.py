"""Markdown from docstrings and keys. Loads no torch."""

import inspect
import re
import textwrap
from collections.abc import Sequence
from typing import Any

from ablate.compose.configs import Key


def table(title: str, keys: Sequence[Key]) -> list[str]:
    rows = [f"| `{key.name}` | {key.default and f'`{key.default}`'} | {plain(key.about)} |" for key in keys]
    return ["", f"| {title} | default | what it is |", "| --- | --- | --- |", *rows] if rows else []


def plain(text: str) -> str:
    """Text whose signs mean nothing in Markdown."""
    return re.sub(r"(?<!\w)_|_(?!\w)|[\\`*\[|]", r"\\\g<0>", text).replace("<", "&lt;")


def said(thing: Any) -> str:
    """The docstring without the legend of its symbols."""
    return (inspect.getdoc(thing) or "").partition("\n\nlegend")[0]


def prose(text: str) -> str:
    """As Markdown: settings are code, other signs mean nothing, and lists stay lists."""
    pieces = re.split(r"\b([a-z_.]+=\w+)", text.strip())
    marked = "".join(f"`{piece}`" if i % 2 else plain(piece) for i, piece in enumerate(pieces))
    blocks = [re.split(r"\n(?=- )", block) for block in marked.split("\n\n")]
    return "\n\n".join("\n".join(map(filled, block)) for block in blocks)


def filled(text: str) -> str:
    """In lines of 118 characters at most; what follows the first line of an item is indented."""
    item = re.match(r"- |\d+\. ", text)
    indent = " " * len(item[0]) if item else ""
    one_line = " ".join(text.split())
    return textwrap.fill(
        one_line, 118, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
