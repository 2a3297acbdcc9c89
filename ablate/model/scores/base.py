"""The contract of a rule on scores.

legend: B batch, T time of the queries, S time of the keys and values, P patterns, K key width, W width of all
values that a pattern reads.

Attention hands queries and keys over at this seam, a pair of them for each pattern, and gets back what the
patterns read. Which heads use which pattern is not the method's business (ablate.model.sharing).

To add a method: one file here with a registered subclass of Scores, one YAML of the same name in
configs/scores. The tests over the registry then cover it.
"""

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from ablate.model.attend import Attend, fused
from ablate.model.masks import Mask
from ablate.model.parts import Part, Registry
from ablate.model.spec import HeadShape


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every method takes: nothing."""


class Scores(Part):
    """Makes patterns of queries and keys, and reads the values with them: q, k, v -> z.

    `attend` computes softmax attention and can be replaced; a method that is one calls it.
    """

    Options: ClassVar[type[Any]] = Options
    compares: ClassVar[bool] = True  # whether there are queries and keys at all
    scale_folds: ClassVar[bool] = False  # a factor on W_Q does what one on the scores does
    sums_to_one: ClassVar[bool] = True  # each row of a pattern

    def __init__(self, shape: HeadShape, options: Any) -> None:
        super().__init__(shape, options)
        self.attend: Attend = fused

    @classmethod
    def rules(cls, heads: int, options: Any) -> Sequence[Hashable]:
        """What tells the heads apart beside their queries and keys: heads that are equal in all three share a
        pattern. Raises ConfigError where the options do not fit the number of heads."""
        return [None] * heads

    @classmethod
    def count_flops_per_source(cls, shape: HeadShape, options: Any) -> int:
        """The matrix-product FLOPs that the method adds to QKᵀ and AV, per token, source and layer."""
        return 0

    @abstractmethod
    def forward(self, q_BPTK: Tensor, k_BPSK: Tensor, v_BPSW: Tensor, mask: Mask, dropout: float) -> Tensor:
        """z_BPTW. dropout: the share of each pattern that is dropped, 0 outside of training."""

    @abstractmethod
    def probabilities(self, q_BPTK: Tensor, k_BPSK: Tensor, mask: Mask) -> Tensor:
        """A_BPTS, with which forward reads the values: z = A v, but for dropout."""


_registry: Registry[Scores] = Registry("scores", Scores, package="ablate.model.scores")
register, methods, method_of = _registry.register, _registry.methods, _registry.method_of
forget = _registry.forget
