"""Files, whatever is in them; here, the encoding that the first bytes of a text name, and names."""

import codecs
import contextlib
import os
import unicodedata
from pathlib import Path

# Byte order marks.
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark is a prefix of it
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def marked_encoding(start: bytes) -> str | None:
    """The encoding whose byte order mark begins these bytes; None without one."""
    return next((encoding for mark, encoding in MARKS.items() if start.startswith(mark)), None)


def as_spelled(path: Path) -> Path:
    """The path with each name as it is on disk, where that differs in its Unicode normal form only."""
    spelled = Path(path.anchor)
    for name in path.parts[bool(path.anchor) :]:
        if not os.path.lexists(spelled / name):
            form = unicodedata.normalize("NFC", name)
            with contextlib.suppress(OSError):
                alike = (one for one in os.listdir(spelled) if unicodedata.normalize("NFC", one) == form)
                name = next(alike, name)
        spelled /= name
    return spelled
