"""Which encoding of wide characters a file names by its first bytes."""

import codecs

MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # begins as UTF-16's does, so it is asked first
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def marked_encoding(start: bytes) -> str | None:
    """The encoding whose byte order mark stands there; None without one."""
    return next((encoding for mark, encoding in MARKS.items() if start.startswith(mark)), None)
