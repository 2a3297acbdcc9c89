"""What a key accepts, written into its type, and the one error that a user meets."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any


class ConfigError(ValueError):
    """What was asked for can't be done. The message is one line: the value, the reason, the way out."""


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """How a message goes on after an unknown word: a suggestion, if one is near, and the choices."""
    names = sorted(choices)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ";"
    return f"{hint} choices: {', '.join(names)}"


@dataclass(frozen=True)
class AtLeast:
    minimum: float


@dataclass(frozen=True)
class AtMost:
    maximum: float


@dataclass(frozen=True)
class Above:
    bound: float


@dataclass(frozen=True)
class Below:
    bound: float


@dataclass(frozen=True)
class OutsideIdentity:
    """The key does not change what a run computes, so it stays out of the run's identity."""


@dataclass(frozen=True)
class IntroducedAt:
    """A key added after the first release: at this value it stays out of the identity, so that
    runs made before the key existed keep theirs."""

    value: Any


Count = Annotated[int, AtLeast(1), AtMost(2**31)]
Size = Annotated[int, AtLeast(1), AtMost(2**20)]
Positive = Annotated[float, Above(0)]
NonNegative = Annotated[float, AtLeast(0)]
Share = Annotated[float, AtLeast(0), Below(1)]
