"""What keys accept, by rules that annotate their types; how a command line writes keys and values; and
ConfigError, the error that users see."""

import difflib
import functools
import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Annotated, Any

_PLAIN = re.compile(r"[\w./@+-]+", re.ASCII)
# Hydra reads these as numbers and truth values, so as text they need quotes, as null does.
OTHER_TYPES = r"(?i:true|false|[+-]?(?:nan|inf|[\d._]+(?:e[+-]?[\d_]+)?))"
# In a cell an exponent needs its sign, which every CSV writer gives: 12345678e012 is a hash. People type 1e5.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]\d+)?")
_TYPED = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)e[+-]?\d{1,3}", re.IGNORECASE)
_LONGEST = 400  # digits; no float has more
_WHOLE = re.compile(r"(?<![.\d])\d+")  # numbers by which choices are sorted
MANY = 20  # choices, of which a message names only the one that is meant


class ConfigError(ValueError):
    """The request can't be carried out. The message is one line: the value, the reason, the way out."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))  # what it repeats may have line ends


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """The rest of a message about an unknown word: a suggestion, its last part or what is close, if any is,
    and the choices, unless they are many."""
    names = sorted({*choices}, key=lambda name: _WHOLE.sub(lambda of: of[0].zfill(20), name))
    last = word.rpartition(".")[2]
    given = word if any("." in name for name in names) else last
    near = [last] if last in names else difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    near = [] if word.isdigit() else near  # the nearest digits are another number
    hint = f"; did you mean {near[0]}?" if near else ";" * bool(names)
    is_told = not near or (len(names) <= MANY and names != near)
    return hint + f" choices: {', '.join(names)}" * bool(names) * is_told


def line_on(name: str) -> str:
    """The line on a name that is gone, or .NAME of another program, for what refuses the name as unknown;
    empty for any other name."""
    lines = (f"{name.lstrip('.')} {why}; {of[name]}" for why, of in elsewhere().items() if name in of)
    return next(lines, "")


@functools.cache
def elsewhere() -> dict[str, dict[str, str]]:
    """By why ablate does not have a name: what to type in its place."""
    import yaml  # only a refusal needs it

    return yaml.safe_load(Path(__file__).with_name("names.yaml").read_text(encoding="utf-8"))


def as_override(value: Any, of_text: Callable[[str], str] = str) -> str:
    """The value as one would type it on the command line. of_text: how a text is typed."""
    if isinstance(value, list | tuple):
        return f"[{','.join(as_override(item, of_text) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{as_override(item, of_text)}' for key, item in value.items())}}}"
    if value is None:
        return "null"
    if isinstance(value, str | PurePath):
        return of_text(str(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def flatten(nested: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Nested keys as dotted ones. A group's `name` becomes the value of the group, and the `options` of a
    fusion become keys of the group itself: {"fusion": {"name": "sum"}} -> {"fusion": "sum"}."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        dotted = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            flat |= flatten(value, path if key == "options" else dotted)
        else:
            flat[path if path and key == "name" else dotted] = value
    return flat


def as_value(value: Any) -> str:
    """A plain or nested value in the syntax of overrides. Sequences become lists, not sweeps."""
    return as_override(value, _quoted)


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text) and not re.fullmatch(f"(?i:null)|{OTHER_TYPES}", text):
        return text
    escaped = re.sub(r'(\\*)"', r'\1\1\\"', text)  # backslashes count only before a quote
    escaped = re.sub(r"(\\+)$", r"\1\1", escaped)
    return f'"{escaped}"'


def as_text(value: object) -> str:
    """A value as text, the same for 1, 1.0 and "1", and for True and "true"; empty for a missing one."""
    if not isinstance(value, str) and str(value) in ("None", "nan", "<NA>"):
        return ""
    text = json.dumps(value) if isinstance(value, list | dict) else str(value).strip()
    if text in ("True", "False"):
        return text.lower()
    if len(text) > _LONGEST or not _NUMBER.fullmatch(text):
        return text
    if "." not in text and "e" not in text:
        return str(int(text))  # a large seed keeps all its digits
    number = float(text)
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else f"{number:.12g}"


def as_level(value: object) -> str:
    """A value that somebody typed as the text that cells have: 100000 for 1e5, nothing for null."""
    text = "" if value == "null" else as_text(value)
    return as_text(format(Decimal(text), "f")) if _TYPED.fullmatch(text) else text


def as_number(value: object) -> float | None:
    """The number that a value is, plain or as text; None if it is none."""
    return float(text) if _NUMBER.fullmatch(text := as_text(value)) else None


def same(one: Any, other: Any) -> bool:
    """Whether two values, plain or as text, are equal, if need be with one of them as it was typed."""
    a, b = as_text(one), as_text(other)
    return bool(one == other) or a == b or as_level(a) == b or a == as_level(b)


@dataclass(frozen=True)
class Rule:
    """What a key accepts beyond its type. read: makes of a plain value the one to convert; check: of the
    converted one, nothing. Both get the name of the key too, and raise ConfigError. text: what to write, in
    place of every other message about the key."""

    read: Callable[[Any, str], Any] = lambda value, path: value
    check: Callable[[Any, str], None] = lambda value, path: None
    text: str = ""


def Required(holds: Callable[[Any], object], words: str) -> Rule:
    """What has to hold of a value, unless it is null. words: the same in words."""

    def check(value: Any, path: str) -> None:
        if value is not None and not holds(value):
            raise ConfigError(f"{path}={as_override(value)}: {words}")

    return Rule(check=check)


def _bound(holds: Callable[[Any, float], bool], words: str) -> Callable[[float], Rule]:
    def rule(bound: float) -> Rule:
        return Required(lambda value: holds(value, bound), f"must be {words} {bound:,}")

    return rule


AtLeast, AtMost = _bound(operator.ge, "at least"), _bound(operator.le, "at most")
Above, Below = _bound(operator.gt, "above"), _bound(operator.lt, "below")


def Spelled(pattern: str, words: str) -> Rule:
    """The text has to match a regular expression in full. words: the same in words."""
    return Required(re.compile(pattern).fullmatch, words)


Count = Annotated[int, AtLeast(1), AtMost(2**31)]
Size = Annotated[int, AtLeast(1), AtMost(2**20)]
Positive = Annotated[float, Above(0)]
NonNegative = Annotated[float, AtLeast(0)]
Share = Annotated[float, AtLeast(0), Below(1)]  # at 1 nothing would be left
Ratio = Annotated[float, AtLeast(0), AtMost(1)]
