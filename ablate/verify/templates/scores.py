"""A rule on scores of your own. It passes `ablate check mine.py` as it stands; change it, and check it again.

    ablate run --plugin mine.py scores=mine
    ablate run --plugin mine.py -m scores=softmax,mine seed=0,1,2 name=mine
    ablate compare mine --baseline scores=softmax

The letters after a name are the sizes of its dimensions: B batch, P patterns (one for each head, unless heads
share queries and keys), T time of the queries, S time of the keys and values, K key width, W width of the
values that a pattern reads.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.config.rules import Above
from ablate.model.masks import Mask
from ablate.model.scores import Options, Scores, masked_softmax, register
from ablate.model.spec import HeadShape


@dataclass(frozen=True, kw_only=True)
class MineOptions(Options):
    """What scores.KEY=VALUE may set, each with its default. With nothing to set, use Options itself."""

    start: Annotated[float, Above(0)] = 1.0


@register("mine")
class Mine(Scores):
    """Softmax with a learned temperature for each pattern: A = softmax(β · scale · QKᵀ)."""

    Options = MineOptions

    # What the method says of itself. Where it says True, `ablate check` holds it to that.
    scale_folds = True  # queries that are c times as large do what c times the scores do, for any c > 0
    sums_to_one = True  # each row of a pattern adds up to 1

    def __init__(self, shape: HeadShape, options: MineOptions) -> None:
        super().__init__(shape, options)
        # shape has heads, key_width, value_width, d_model; patterns, for each the first head that has it; and
        # scale, 1/√key_width unless scale=… asks for another.
        self.beta = nn.Parameter(torch.full((len(shape.patterns), 1, 1), options.start))

    @classmethod
    def count_params(cls, shape: HeadShape, options: MineOptions) -> int:
        """Its parameters, in each layer."""
        return len(shape.patterns)

    # count_flops_per_source, the matrix-product FLOPs of a token and a source beside QKᵀ and AV, is 0 unless
    # you define it likewise.

    def forward(self, q_BPTK: Tensor, k_BPSK: Tensor, v_BPSW: Tensor, mask: Mask, dropout: float) -> Tensor:
        """What the patterns read: (B, P, T, W)."""
        return F.dropout(self.probabilities(q_BPTK, k_BPSK, mask), dropout) @ v_BPSW

    def probabilities(self, q_BPTK: Tensor, k_BPSK: Tensor, mask: Mask) -> Tensor:
        """The patterns: (B, P, T, S), 0 where the mask hides."""
        return masked_softmax(self.beta * self.shape.scale * (q_BPTK @ k_BPSK.mT), mask)
