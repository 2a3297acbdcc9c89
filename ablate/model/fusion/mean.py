from typing import Any

from ablate.lazy import Tensor
from ablate.model.fusion import Fusion, Normalized, always, register


@register("mean")
class Mean(Fusion):
    """Heads averaged: fused = (1/H) Σ_i z_i.

    The average of H independent heads has 1/H of the variance of one: normalize=variance multiplies
    by √H, which makes it the normalized sum.
    See: Veličković et al., "Graph attention networks", arXiv 1710.10903, whose last layer averages heads.
    """

    Options = Normalized
    one_head_passes = homogeneous = True
    folds = always

    @classmethod
    def form(cls, heads: int, options: Any) -> str:
        if heads == 1:
            return "concat"
        return "sum normalize=variance" if options.normalize == "variance" else super().form(heads, options)

    def forward(self, z_BTHV: Tensor, x_BTC: Tensor) -> Tensor:
        scale = self.shape.heads**0.5 if self.options.normalize == "variance" else 1.0
        return z_BTHV.mean(-2) * scale
