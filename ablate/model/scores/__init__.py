"""The contract of a rule on attention scores.

legend: B batch, H heads, T time of the queries, S time of the keys and values, K key width, V value width.

A rule gets the queries, keys and values of each head, and returns what each head reads.

To add a method: one file here with a registered subclass of Scores, and a YAML of the same name in
configs/scores. The tests over the registry then cover it.
"""

from abc import abstractmethod
from typing import Any, ClassVar

from ablate.config.registry import Registry
from ablate.lazy import F, Tensor
from ablate.model.attend import Attend, Mask, fused
from ablate.model.parts import HeadShape, Part


class Scores(Part):
    """Turns queries and keys into attention patterns and reads the values with them: q, k, v -> z.

    `attend` computes softmax attention and can be replaced; methods based on softmax attention call it.
    """

    CLAIMS = ("scale_folds", "sums_to_one", "order_free", "bilinear")
    scale_folds: ClassVar[bool] = False  # scaling W_Q by c > 0 has the same effect as scaling the scores
    sums_to_one: ClassVar[bool] = False  # each row of a pattern sums to 1
    order_free: ClassVar[bool] = False  # the order of sources has no effect, so they may be another text's
    bilinear: ClassVar[bool] = False  # queries and keys matter by their products q·k alone
    compares: ClassVar[bool] = True  # whether the method uses queries and keys at all
    reads_more: ClassVar[bool] = False  # forward reads more than A v, so probes of patterns abstain

    def __init__(self, shape: HeadShape, options: Any) -> None:
        super().__init__(shape, options)
        self.attend: Attend = fused

    @classmethod
    def count_flops_per_source(cls, shape: HeadShape, options: Any) -> int:
        """The matrix-product FLOPs that the method adds to QKᵀ and AV, per token, source and layer."""
        return 0

    def before_rotary(self, q_BHTK: Tensor, k_BHSK: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys before model.position=rope turns them, for forward and probabilities. What treats
        channels unlike each other, as the gain of a norm, belongs here."""
        return q_BHTK, k_BHSK

    def forward(self, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, mask: Mask, dropout: float) -> Tensor:
        """What the heads read, z_BHTV. dropout: the share of each pattern to drop, 0 unless training."""
        return F.dropout(self.probabilities(q_BHTK, k_BHSK, mask), dropout) @ v_BHSV

    @abstractmethod
    def probabilities(self, q_BHTK: Tensor, k_BHSK: Tensor, mask: Mask) -> Tensor:
        """The patterns A_BHTS with which forward reads the values: z = A v, apart from dropout, unless the
        method reads_more."""


_registry: Registry[Scores] = Registry("scores", Scores, package="ablate.model.scores")
register, methods, method_of = _registry.register, _registry.methods, _registry.method_of
forget = _registry.forget
