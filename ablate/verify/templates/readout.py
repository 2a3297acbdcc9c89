"""A readout of your own, in place of out_proj. It passes `ablate check mine.py` as it stands; change it, and
check it again.

    ablate run --plugin mine.py out_proj=mine
    ablate run --plugin mine.py -m out_proj=true,mine 'seed=range(6)'

The letters after a name are the sizes of its dimensions: B batch, T time, F fused width, C model width.
"""

from typing import Any

import torch
from torch import Tensor

from ablate.methods import ConfigError, HeadShape, Options, Readout, register


@register("mine")
class Mine(Readout):
    """The fused heads in reverse order of their channels."""

    # The map must be linear, add no constant, and treat each token by itself. One more thing can be claimed:
    # that it has an inverse, for all but special weights. At one head it then counts as the same class of
    # functions as out_proj=false.
    invertible = True

    def __init__(self, shape: HeadShape, options: Options) -> None:
        super().__init__(shape, options)
        # shape has fused (F), d_model (C), heads and value_width. A learned scale starts at 1; for random
        # weights use ablate.methods.Linear(inputs, outputs, bias=False, scale=...), which ablate draws by the
        # run's seed; keep the size of what goes through.

    @classmethod
    def check(cls, shape: HeadShape, options: Any) -> None:
        if shape.fused != shape.d_model:
            raise ConfigError(f"out_proj=mine: it takes {shape.d_model} numbers, and gets {shape.fused}")

    # Define count_flops(cls, shape, options) as a class method if it has matrix products: their FLOPs per
    # token, 2 · inputs · outputs for each. `ablate check` says the number.

    def forward(self, fused_BTF: Tensor) -> Tensor:
        """fused_BTF: what the fusion makes of the heads. Returns (B, T, C)."""
        return torch.flip(fused_BTF, (-1,))
