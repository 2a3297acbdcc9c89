"""What a key accepts, written into its type, and the one error that a user meets."""

import difflib
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar


class ConfigError(ValueError):
    """What was asked for can't be done. The message is one line: the value, the reason, the way out."""


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """How a message goes on after an unknown word: a suggestion, if one is near, and the choices."""
    names = sorted(choices)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ";"
    return f"{hint} choices: {', '.join(names)}"


def typed(value: Any) -> str:
    """The value as one would type it on the command line."""
    if isinstance(value, list | tuple):
        return "[" + ",".join(typed(item) for item in value) + "]"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


class Rule:
    """What holds of a key beyond its type. By itself it accepts everything."""

    def read(self, value: Any, path: str) -> Any:
        """What is to be converted, from the plain value. Raises ConfigError."""
        return value

    def check(self, value: Any, path: str) -> None:
        """Raises ConfigError for a converted value that will not do."""


@dataclass(frozen=True)
class Bound(Rule):
    """What numbers are compared with. A kind of bound says how, and what to call it."""

    bound: float
    words: ClassVar[str]
    holds: ClassVar[Callable[[float, float], bool]]

    def check(self, value: Any, path: str) -> None:
        if not self.holds(value, self.bound):
            raise ConfigError(f"{path}={typed(value)}: must be {self.words} {self.bound:,}")


class AtLeast(Bound):
    words, holds = "at least", operator.ge


class AtMost(Bound):
    words, holds = "at most", operator.le


class Above(Bound):
    words, holds = "above", operator.gt


class Below(Bound):
    words, holds = "below", operator.lt


@dataclass(frozen=True)
class Spelled(Rule):
    """A text that the whole of a regular expression matches. words: the same for people."""

    pattern: str
    words: str

    def check(self, value: Any, path: str) -> None:
        if value is not None and not re.fullmatch(self.pattern, value):
            raise ConfigError(f"{path}={value}: {self.words}")


@dataclass(frozen=True)
class Meaning(Rule):
    """What the value is, and how it is written: said of every value that will not do, in the place of what
    the type and the other rules would say."""

    words: str


@dataclass(frozen=True)
class OutsideIdentity(Rule):
    """The key does not change what a run computes, so it stays out of the run's identity."""


@dataclass(frozen=True)
class IntroducedAt(Rule):
    """A key added after the first release: at this value it stays out of the identity, so that
    runs made before the key existed keep theirs."""

    value: Any


Count = Annotated[int, AtLeast(1), AtMost(2**31)]
Size = Annotated[int, AtLeast(1), AtMost(2**20)]
Positive = Annotated[float, Above(0)]
NonNegative = Annotated[float, AtLeast(0)]
Share = Annotated[float, AtLeast(0), Below(1)]  # at 1 nothing would be left
Ratio = Annotated[float, AtLeast(0), AtMost(1)]
