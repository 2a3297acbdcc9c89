"""What training tells while it goes on, and what of it is told of a run. Loads no torch.

legend: M members of a group, J all targets of a split.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ablate.config.rules import ConfigError
from ablate.lazy import Tensor
from ablate.store.columns import Row
from ablate.store.run_files import Checkpoint


@dataclass(frozen=True)
class Score:
    """The score on a split or a part of it. nats: cross-entropy summed over the targets. rows: for examples,
    the number of rows with targets; exact: how many of them are right at every target. nats_J: the
    cross-entropy of each target, in order, float32.
    """

    nats: float
    correct: int
    targets: int
    rows: int = 0
    exact: int = 0
    nats_J: np.ndarray = field(default_factory=lambda: np.empty(0, np.float32), repr=False, compare=False)

    @property
    def loss(self) -> float:
        return self.nats / self.targets

    @property
    def accuracy(self) -> float:
        return self.correct / self.targets

    @property
    def exact_match(self) -> float | None:
        return self.exact / self.rows if self.rows else None


# --- of the whole group ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Began:
    """How steps are computed, in one line."""

    how: str


@dataclass(frozen=True)
class Step:
    """One update. loss_M: of this step's batches before the update, on the device, and overwritten by the
    next step."""

    step: int
    loss_M: Tensor


# --- of a member, by its place in the group -------------------------------------------------------------


@dataclass(frozen=True)
class Evaluation:
    """An evaluation on the validation split, or train.eval_tokens of it, after update `step`.

    lr, train_loss and grad_norm are None at step 0, before the first update. seconds: since training began;
    evaluation_seconds: the part of them spent on evaluations; both are the member's share of its group's.
    tokens_per_s: of training since it began or went on, without evaluations; of this member.
    """

    member: int
    step: int
    tokens: int
    lr: float | None
    train_loss: float | None
    grad_norm: float | None
    validation: Score
    seconds: float
    evaluation_seconds: float
    tokens_per_s: float


@dataclass(frozen=True)
class Kept:
    """A checkpoint is due, without the metrics that a run adds to it. Its arrays are those in use: copy or
    write them before asking for the next event."""

    member: int
    checkpoint: Checkpoint


@dataclass(frozen=True)
class Final:
    """What a member is after its last step. validation: None where the last evaluation has read the whole
    split. of_model: columns; weights: NumPy arrays by name, to be kept."""

    member: int
    validation: Score | None
    test: Score
    of_model: Row = field(default_factory=dict)
    weights: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Diverged:
    """The loss was not finite at `step`, `seconds` after training began: the last event of this member."""

    member: int
    step: int
    seconds: float

    def __str__(self) -> str:
        return f"the loss was not finite at step {self.step}"


Event = Began | Step | Evaluation | Kept | Final | Diverged

# What is new of a run, for whoever looks, in this process or another: a remark in one line, an evaluation,
# and at last how it ended: its row; None if it had one already, as when another command has finished it; or
# why it could not begin (Busy: not now).
News = str | Evaluation | Row | ConfigError | None
Listener = Callable[[News], object]
