"""The number that a run says last: in its output, by a pattern, or in a file that it leaves."""

import csv
import re
from pathlib import Path

LOG = "log.txt"
NUMBER = r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|null|(?i:nan|inf(?:inity)?))"
WHOLE = re.compile(rf"(?<![\w.]){NUMBER}(?!\w|[.,]\d)")


def read(out: Path, metric: str, source: str) -> float | None:
    """The last number of a run; None if it gave none. out: its directory. source: a CSV or JSON file there,
    or a pattern of its log, the number in its group or, without one, behind or in it; empty for lines that
    end with `metric: 1.23` or `metric=1.23`, and for JSON."""
    is_file, name = source.endswith((".csv", ".json")), re.escape(metric)
    key = rf"[\"']{name}[\"'][ \t]*:|(?<![\w./\"'-]){name}[ \t]*[:=](?=[^,}}\]\n]*$)"
    line = rf"(?:{key})[ \t]*[\"']?({NUMBER})[\"']?[ \t]*(?:$|[,}}\]])"
    try:
        text = printed(out / (source if is_file else LOG))
        if source.endswith(".csv"):
            return [float(row[metric]) for row in csv.DictReader(text.splitlines()) if row.get(metric)][-1]
        found = [*re.finditer(line if is_file else source or line, text, re.MULTILINE)]
    except (OSError, ValueError, IndexError):
        return None
    for match in reversed(found):
        begin, end = match.span(bool(match.re.groups))
        until = end if match.re.groups else len(text) - len(text[end:].lstrip(" \t:="))
        if near := [one[0] for one in WHOLE.finditer(text, begin) if one.start() <= until]:
            return float(near[-1].replace("null", "nan"))
    return None


def printed(file: Path) -> str:
    """A text without colors, and each state of a progress bar in a line of its own."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.read_text("utf-8", "replace")).replace("\r", "\n")
