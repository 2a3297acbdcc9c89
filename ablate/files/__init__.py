"""Files, whatever is in them; here, the encoding that the first bytes of a text name."""

import codecs

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
