"""What is heard of a run while it goes on: plain values, which can be sent from one process to another."""

from collections.abc import Callable
from dataclasses import dataclass

from ablate.store.columns import Row


@dataclass(frozen=True)
class Started:
    """name: of its directory. label: shorter. after: the step that it goes on from, 0 for a new run."""

    name: str
    label: str
    steps: int
    after: int
    tokens_a_step: int


@dataclass(frozen=True)
class Stepped:
    """A few times a second: a look at the loss waits for the device."""

    step: int
    loss: float


@dataclass(frozen=True)
class Evaluated:
    """tokens_per_s: of training alone."""

    step: int
    train_loss: float
    val_loss: float
    tokens_per_s: float


@dataclass(frozen=True)
class Ended:
    """Training is over, by whatever end: a result, an error or Ctrl-C."""


@dataclass(frozen=True)
class Finished:
    row: Row


@dataclass(frozen=True)
class Skipped:
    """It had finished before."""

    row: Row


@dataclass(frozen=True)
class Elsewhere:
    """Another command has made it."""


@dataclass(frozen=True)
class Taken:
    """Another process is at it, or was faster."""

    reason: str


@dataclass(frozen=True)
class Refused:
    """It could not begin."""

    reason: str


@dataclass(frozen=True)
class Noticed:
    """Something that a person should know, in one line."""

    line: str


Event = Started | Stepped | Evaluated | Ended | Finished | Skipped | Elsewhere | Taken | Refused | Noticed
Listener = Callable[[Event], None]


def unheard(event: Event) -> None:
    """The listener where nobody listens."""
