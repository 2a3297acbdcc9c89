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
    """What fusion.KEY=VALUE may set, each with its default. Leave this out where there is nothing to set."""

    start: Annotated[float, Above(0)] = 1.0


@register("mine")
class Mine(Fusion):
    """Heads side by side, each behind a learned weight: fused = [α_1 z_1; …; α_H z_H]."""

    Options = MineOptions

    # What the method says of itself; `ablate check` holds it to that.
    one_head_passes = False  # whether one head comes out as it went in, at the start: here only with start=1
    homogeneous = True  # whether twice the input gives twice the output

    def __init__(self, shape: HeadShape, options: MineOptions) -> None:
        super().__init__(shape, options)
        # Parameters start as constants, so that every seed starts alike. For weights that are drawn, use
        # ablate.model.layers.Linear(inputs, outputs, bias=False).
        self.alpha = nn.Parameter(torch.full((shape.heads, 1), options.start))

    @classmethod
    def slots(cls, heads: int, options: MineOptions) -> int:
        """How many vectors of value width come out side by side: `heads` here, 1 for a sum."""
        return heads

    @classmethod
    def folds_into(cls, heads: int, options: MineOptions) -> str | None:
        """The method that can be the same functions, as a constant for each head folds into its values. Leave
        this out if you don't know."""
        return "concat"

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
