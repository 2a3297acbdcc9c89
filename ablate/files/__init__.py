"""Files, whatever is in them; here, the encoding of a text, as its bytes tell, and names of files."""

import codecs
import contextlib
import os
import re
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


# What most characters of a text in an encoding are, ASCII aside; cp1252 has all that latin-1 can print.
USUAL = {
    "utf-8": ".",
    **dict.fromkeys(("shift_jis", "euc_jp"), "[\u3040-\u30fe]"),
    "euc_kr": "[\uac00-\ud7a3]",
    **dict.fromkeys(("gb2312", "big5"), "[\u4e00-\u9fff]"),
    **dict.fromkeys(("koi8-r", "cp1251"), "[а-яё](?=[а-яё])"),
    "cp1252": r"[^ ](?![^ ])",  # among ASCII
}


def likely_encoding(sample: bytes) -> str | None:
    """The encoding that a part of a text without a byte order mark may be in; None if none is likely."""
    for encoding, usual in USUAL.items():
        with contextlib.suppress(UnicodeError):
            text = re.sub("[\0-\x7f]+", " ", codecs.getincrementaldecoder(encoding)().decode(sample))
            if 2 * len(re.findall(usual, text)) > len(text.replace(" ", "")):
                return encoding
    return None


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
