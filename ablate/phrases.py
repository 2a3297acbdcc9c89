"""What lines for a reader are put together from."""

from collections.abc import Sequence


def counted(count: int, noun: str) -> str:
    """1 seed, 3 seeds, 1,200 seeds."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def some(items: Sequence[object], most: int = 3) -> str:
    """The first of them, and a sign that there are more."""
    return ", ".join([*map(str, items[:most]), *only_if(len(items) > most, "…")])


def only_if(condition: object, line: str) -> list[str]:
    """The line, or none."""
    return [line] if condition else []
