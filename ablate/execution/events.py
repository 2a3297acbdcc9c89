"""Events of a run while it goes on: plain values, which can be sent between processes."""

from collections.abc import Callable
from dataclasses import dataclass

from ablate.store.columns import Row


@dataclass(frozen=True)
class Evaluated:
    """The model was evaluated. tokens_per_s: of training, without evaluations."""

    step: int
    train_loss: float
    val_loss: float
    tokens_per_s: float


@dataclass(frozen=True)
class Finished:
    row: Row


@dataclass(frozen=True)
class Skipped:
    """The run had a result already, as when another command has finished it."""


@dataclass(frozen=True)
class Taken:
    """Another process is working on the run, or was faster. why: in words. is_left: it is not, but only
    another kind of machine can go on from its checkpoint."""

    why: str
    is_left: bool = False


@dataclass(frozen=True)
class PutBack:
    """The run was not begun: no more of its kind than `fit` can be trained as one."""

    fit: int


@dataclass(frozen=True)
class Refused:
    """The run could not begin."""

    reason: str


@dataclass(frozen=True)
class Noticed:
    """A remark for the user, in one line."""

    line: str


Event = Evaluated | Finished | Skipped | Taken | PutBack | Refused | Noticed
Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """A listener that ignores events."""
