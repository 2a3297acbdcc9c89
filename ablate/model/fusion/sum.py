from typing import Any

from torch import Tensor

from ablate.model.fusion.base import Fusion, register


@register("sum")
class Sum(Fusion):
    """Heads added up: fused = Σ_i z_i, whatever their order.

    At the start the heads are nearly independent, so the sum has H times the variance of one:
    normalize=variance multiplies by 1/√H.
    """

    @classmethod
    def slots(cls, heads: int, options: Any) -> int:
        return 1

    @classmethod
    def form(cls, heads: int, options: Any) -> str:
        return "concat" if heads == 1 else super().form(heads, options)

    def forward(self, z_BTHV: Tensor, x_BTC: Tensor) -> Tensor:
        scale = self.shape.heads**-0.5 if self.options.normalize == "variance" else 1.0
        return z_BTHV.sum(-2) * scale
