"""A rule on scores of your own. It passes `ablate check mine.py` as it stands; change it, and check it again.

    ablate run --plugin mine.py scores=mine
    ablate run --plugin mine.py -m scores=softmax,mine 'seed=range(6)' name=mine
    ablate compare mine --baseline scores=softmax

The letters after a name are the sizes of its dimensions: B batch, H heads, T time of the queries, S time of
the keys and values, K key width, V value width.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from ablate.methods import Above, HeadShape, Mask, Options, Scores, masked_softmax, register


@dataclass(frozen=True, kw_only=True)
class MineOptions(Options):
    """The options that scores.KEY=VALUE sets, with their defaults. Without options, delete this class."""

    start: Annotated[float, Above(0)] = 1.0


@register("mine")
class Mine(Scores):
    """Softmax with a learned temperature for each head: A = softmax(β · scale · QKᵀ)."""

    Options = MineOptions

    # What is known about a method can be claimed. `ablate check` tests each claim, and reports then rely on
    # it; nothing has to be claimed. This method could claim all three:
    #
    #     scale_folds = True  # scaling the queries by c > 0 has the same effect as scaling the scores by c
    #     sums_to_one = True  # each row of a pattern sums to 1
    #     order_free = True  # the order of keys and values has no effect; cross-attention needs this
    #
    # If it reads more than its probabilities times the values, (B, H, T, V), say so, and define
    # forward(self, q_BHTK, k_BHSK, v_BHSV, mask, dropout); probes of patterns then abstain:
    #
    #     reads_more = True

    def __init__(self, shape: HeadShape, options: MineOptions) -> None:
        super().__init__(shape, options)
        # shape has heads, key_width, value_width and d_model; and scale, the factor on the scores:
        # 1/√key_width unless the key `scale` says otherwise. Parameters are counted as they are; let them
        # start at constants, or use ablate.methods.Linear for random weights.
        self.beta = nn.Parameter(torch.full((shape.heads, 1, 1), options.start))

    # Define before_rotary(self, q_BHTK, k_BHSK), which returns both, for a norm of queries and keys: rotary
    # positions turn them after it.
    # Define count_flops_per_source(cls, shape, options) as a class method if the method has matrix products
    # besides QKᵀ and AV: their FLOPs per token and source. `ablate check` says the number.

    def probabilities(self, q_BHTK: Tensor, k_BHSK: Tensor, mask: Mask) -> Tensor:
        """The patterns: (B, H, T, S), 0 where the mask hides a position."""
        return masked_softmax(self.beta * self.shape.scale * (q_BHTK @ k_BHSK.mT), mask)
