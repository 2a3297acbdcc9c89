"""The number that a run says last: in its output, by a pattern, or in a file that it leaves."""

import csv
import re
from pathlib import Path

LOG = "log.txt"
FILES = (".csv", ".json")
NUMBER = r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|(?i:nan|inf(?:inity)?))"
_WHOLE = re.compile(rf"(?<![\w.]){NUMBER}(?!\w|[.,]\d)")
_NAMED = re.compile(rf"([A-Za-z_][\w./-]*(?: [A-Za-z_][\w./-]*)?)[\"']?\s*[:= ]\s*({_WHOLE.pattern})")


def read(out: Path, metric: str, source: str) -> float | None:
    """The last number of a run; None if it gave none. out: its directory. source: a CSV or JSON file there,
    or a pattern of its log; empty for lines that end with `metric: 1.23` or `metric=1.23`, and for JSON."""
    try:
        text = printed(out / (source if source.endswith(FILES) else LOG))
        if source.endswith(".csv"):
            return [float(row[metric]) for row in csv.DictReader(text.splitlines()) if row.get(metric)][-1]
    except (OSError, ValueError, IndexError):
        return None
    name = re.escape(metric)
    key = rf"[\"']{name}[\"'][ \t]*:|(?<![\w./\"'-]){name}[ \t]*[:=](?=[^,}}\]\n]*$)"
    line = rf"(?:{key})[ \t]*[\"']?({NUMBER}|null)[\"']?[ \t]*(?:$|[,}}\]])"
    return _last(text, line if not source or source.endswith(FILES) else source)


def _last(text: str, pattern: str) -> float | None:
    """The whole number in the group of the last match; without a group the one right behind the match, else
    the last one in it."""
    for match in reversed([*re.finditer(pattern, text, re.MULTILINE)]):
        begin, end = match.span(1 if match.re.groups else 0)
        behind = None if match.re.groups else re.compile(rf"[ \t:=]*({_WHOLE.pattern})").match(text, end)
        inside = [one[0] for one in _WHOLE.finditer(text, max(begin, 0)) if one.start() < end]
        if behind or inside or match[match.lastindex or 0] == "null":
            return float(behind[1] if behind else inside[-1] if inside else "nan")
    return None


def printed(file: Path) -> str:
    """A text without colors, and each state of a progress bar in a line of its own."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.read_text("utf-8", "replace")).replace("\r", "\n")


def named(text: str) -> str:
    """The last numbers in a text, each with its name."""
    found = [f"{name}={number}" for name, number in dict(_NAMED.findall(text)).items()]
    return ", ".join(found[:-9:-1]) or "no number"
