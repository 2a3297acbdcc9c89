"""What a model scores on a split. Loads no torch.

legend: J all targets of the split.
"""

import math
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Score:
    """The score on a split or a part of it. nats: cross-entropy summed over the targets. rows: for examples,
    the number of rows with targets; exact: how many of them are right at every target. loss_by_third: mean
    loss in nats of the targets in the first, middle and last third of their rows; None without targets there.
    nats_J: the cross-entropy of each target, in order, float32.
    """

    nats: float
    correct: int
    targets: int
    rows: int = 0
    exact: int = 0
    loss_by_third: tuple[float | None, ...] = (None, None, None)
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

    @property
    def exact_logit(self) -> float | None:
        """The log-odds of `exact_match`, with half a row more on either side, so that they are finite."""
        return math.log((self.exact + 0.5) / (self.rows - self.exact + 0.5)) if self.rows else None
