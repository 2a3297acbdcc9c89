"""A fusion of your own. It passes `ablate check mine.py` as it stands; change it, and check it again.

    ablate run --plugin mine.py fusion=mine
    ablate run --plugin mine.py -m fusion=concat,mine seed=0,1,2

The letters after a name are the sizes of its dimensions: B batch, T time, H heads, V value width of a head,
C model width.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from ablate.config.rules import Above
from ablate.model.fusion import Fusion, Options, register
from ablate.model.spec import HeadShape


@dataclass(frozen=True, kw_only=True)
class MineOptions(Options):
    """What fusion.KEY=VALUE may set, each with its default. With nothing to set, use Options itself."""

    start: Annotated[float, Above(0)] = 1.0


@register("mine")
class Mine(Fusion):
    """Heads side by side, each behind a learned weight: fused = [α_1 z_1; …; α_H z_H]."""

    Options = MineOptions

    # What the method says of itself: True, unless you say otherwise, and `ablate check` holds it to that.
    one_head_passes = False  # with heads=1, fused is z_1 itself at the start: not if fusion.start is not 1
    homogeneous = True  # c·z_BTHV gives c·fused, for the same x_BTC and any c > 0
    adds_up = True  # fused is a sum over heads, of something that is 0 for a head that is 0

    def __init__(self, shape: HeadShape, options: MineOptions) -> None:
        super().__init__(shape, options)
        # shape has heads, value_width, key_width and d_model.
        # Parameters start as constants, so that every seed starts alike. For weights that are drawn, use
        # ablate.model.layers.Linear(inputs, outputs, bias=False).
        self.alpha = nn.Parameter(torch.full((shape.heads, 1), options.start))

    @classmethod
    def slots(cls, heads: int, options: MineOptions) -> int:
        """How many vectors of value width come out side by side: `heads` here, 1 for a sum."""
        return heads

    @classmethod
    def folds(cls, heads: int, options: MineOptions) -> bool:
        """Whether it does no more than to multiply each head by a constant or learned matrix that has an
        inverse (here a number), and to add heads up. The values of a head can take that over, so results are
        called another parametrization of concat, or of sum. Leave this out if it does more, or if in doubt.
        """
        return True

    @classmethod
    def count_params(cls, shape: HeadShape, options: MineOptions) -> int:
        """Its parameters, in each layer."""
        return shape.heads

    # count_flops, the matrix-product FLOPs of a token, is 0 unless you define it likewise: of Linear it is
    # 2 · inputs · outputs.

    def forward(self, z_BTHV: Tensor, x_BTC: Tensor) -> Tensor:
        """z_BTHV: what each head read. x_BTC: the input of the layer, normalized. Returns (B, T, slots · V).
        Position t must not see what comes after it."""
        return (z_BTHV * self.alpha).flatten(-2)
