"""A fusion of your own. It passes `ablate check mine.py` as it stands; change it, and check it again.

    ablate run --plugin mine.py fusion=mine
    ablate run --plugin mine.py -m fusion=concat,mine 'seed=range(6)'

The letters after a name are the sizes of its dimensions: B batch, T time, H heads, V value width of a head,
C model width.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from ablate.methods import Above, Fusion, HeadShape, Options, register


@dataclass(frozen=True, kw_only=True)
class MineOptions(Options):
    """The options that fusion.KEY=VALUE sets, with their defaults. Without options, delete this class."""

    start: Annotated[float, Above(0)] = 1.0


@register("mine")
class Mine(Fusion):
    """Heads concatenated, each multiplied by a learned weight: fused = [α_1 z_1; …; α_H z_H]."""

    Options = MineOptions

    # What is known about a method can be claimed. `ablate check` tests each claim, and reports then rely on
    # it; nothing has to be claimed. This method could claim one:
    #
    #     homogeneous = True  # c·z_BTHV gives c·fused, for the same x_BTC and any c > 0
    #
    # and, if its weights always started at 1:
    #
    #     one_head_passes = True  # with heads=1, fused equals z_1 at the start
    #
    # A method that only multiplies each head by a matrix that is constant or learned, here a number, and then
    # adds heads up or concatenates them, can be folded into the values. Reports then call it another
    # parametrization of concat or of sum:
    #
    #     @classmethod
    #     def folds(cls, heads: int, options: MineOptions) -> bool:
    #         return True

    def __init__(self, shape: HeadShape, options: MineOptions) -> None:
        super().__init__(shape, options)
        # shape has heads, value_width, key_width and d_model. Parameters are counted as they are.
        # Let them start at constants, so that they do not depend on the seed. For random weights use
        # ablate.methods.Linear(inputs, outputs, bias=False), which ablate draws by the run's seed.
        self.alpha = nn.Parameter(torch.full((shape.heads, 1), options.start))

    @classmethod
    def slots(cls, heads: int, options: MineOptions) -> int:
        """How many vectors of value width the output concatenates: `heads` here, 1 for a sum."""
        return heads

    # Define count_flops(cls, shape, options) as a class method if the method has matrix products: their FLOPs
    # per token, which are 2 · inputs · outputs for a Linear. `ablate check` says the number.

    def forward(self, z_BTHV: Tensor, x_BTC: Tensor) -> Tensor:
        """z_BTHV: the outputs of the heads. x_BTC: the normalized input of the layer. Returns (B, T, slots ·
        V). Position t must not depend on later positions."""
        return (z_BTHV * self.alpha).flatten(-2)
