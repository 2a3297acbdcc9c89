"""What is told of a run while it goes on: remarks in one line (text), training's evaluations, and at last how
it ended. All can be sent between processes."""

from collections.abc import Callable
from dataclasses import dataclass

from ablate.config.rules import ConfigError
from ablate.store.columns import Row
from ablate.training.events import Evaluation


@dataclass(frozen=True)
class Finished:
    row: Row


@dataclass(frozen=True)
class Skipped:
    """The run had a result already, as when another command has finished it."""


@dataclass(frozen=True)
class PutBack:
    """The run was not begun: no more of its kind than `fit` can be trained as one."""

    fit: int


# An error is why the run could not begin: Busy and OfAnotherKind if it may later.
Event = str | Evaluation | Finished | Skipped | PutBack | ConfigError
Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """A listener that ignores events."""
