"""Small helpers for the text of messages and tables."""

from collections.abc import Sequence


def counted(count: int, noun: str) -> str:
    """1 seed, 3 seeds, 1,200 seeds."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """8 s, 4 min, 2.5 h, 3 days."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} days"


def some(items: Sequence[object], most: int = 3) -> str:
    """The first `most` items, followed by … if there are more."""
    return ", ".join([*map(str, items[:most]), *only_if(len(items) > most, "…")])


def only_if(condition: object, line: str) -> list[str]:
    """A list with the line if the condition holds, else an empty list."""
    return [line] if condition else []
