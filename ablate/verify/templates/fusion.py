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
    """The options that fusion.KEY=VALUE sets, with their defaults. Without options, use Options itself."""

    start: Annotated[float, Above(0)] = 1.0


@register("mine")
class Mine(Fusion):
    """Heads concatenated, each multiplied by a learned weight: fused = [α_1 z_1; …; α_H z_H]."""

    Options = MineOptions

    # Properties that the method declares, each True by default; `ablate check` tests those that are True.
    one_head_passes = False  # with heads=1, fused equals z_1 at the start: not so if fusion.start is not 1
    homogeneous = True  # c·z_BTHV gives c·fused, for the same x_BTC and any c > 0
    adds_up = True  # fused is a sum over heads, with terms that are 0 for a head that is 0

    def __init__(self, shape: HeadShape, options: MineOptions) -> None:
        super().__init__(shape, options)
        # shape has heads, value_width, key_width and d_model.
        # Let parameters start at constants, so that they do not depend on the seed. For random weights use
        # ablate.model.layers.Linear(inputs, outputs, bias=False), which ablate draws by the run's seed.
        self.alpha = nn.Parameter(torch.full((shape.heads, 1), options.start))

    @classmethod
    def slots(cls, heads: int, options: MineOptions) -> int:
        """How many vectors of value width the output concatenates: `heads` here, 1 for a sum."""
        return heads

    @classmethod
    def folds(cls, heads: int, options: MineOptions) -> bool:
        """Whether the method only multiplies each head by a constant or learned invertible matrix (here a
        number) and adds heads up. That can be folded into the values, so reports will call it another
        parametrization of concat or of sum. Leave this method out if yours does more, or if in doubt.
        """
        return True

    @classmethod
    def count_params(cls, shape: HeadShape, options: MineOptions) -> int:
        """The number of its parameters in each layer."""
        return shape.heads

    # Define count_flops in the same way if the method has matrix products: their FLOPs per token, which are
    # 2 · inputs · outputs for a Linear.

    def forward(self, z_BTHV: Tensor, x_BTC: Tensor) -> Tensor:
        """z_BTHV: the outputs of the heads. x_BTC: the normalized input of the layer. Returns (B, T, slots ·
        V). Position t must not depend on later positions."""
        return (z_BTHV * self.alpha).flatten(-2)
