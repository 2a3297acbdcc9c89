import functools
from typing import Any

import torch
from torch import Tensor

from ablate.model.fusion.base import Fusion, Normalized, register
from ablate.model.spec import HeadShape


@register("max")
class Max(Fusion):
    """The largest head in each channel: fused = max_i z_i, which no choice of W_O can do.

    The largest of H independent normal numbers has less variance than one of them: normalize=variance divides
    by its standard deviation. Its mean is higher than theirs, which is not corrected.
    See: Goodfellow et al., "Maxout networks", arXiv 1302.4389, where the largest of linear maps is taken.
    """

    Options = Normalized
    one_head_passes = homogeneous = True

    def __init__(self, shape: HeadShape, options: Any) -> None:
        super().__init__(shape, options)
        self.scale = 1 / sd_of_largest(shape.heads) if options.normalize == "variance" else 1.0

    @classmethod
    def form(cls, heads: int, options: Any) -> str:
        return "concat" if heads == 1 else super().form(heads, options)

    @classmethod
    def folds(cls, heads: int, options: Any) -> bool:
        return heads == 1

    def forward(self, z_BTHV: Tensor, x_BTC: Tensor) -> Tensor:
        return z_BTHV.amax(-2) * self.scale


@functools.cache
def sd_of_largest(count: int) -> float:
    """The standard deviation of the largest of `count` independent standard normal numbers, whose density is
    count·φ(x)·Φ(x)^(count − 1); by the trapezoidal rule, exact to 1e-9."""
    x = torch.linspace(-12, 12, 10_001, dtype=torch.float64, device="cpu")
    density = torch.exp(-(x**2) / 2) * torch.special.ndtr(x) ** (count - 1)
    density /= density.sum()
    mean = (density * x).sum()
    return float((density * (x - mean) ** 2).sum().sqrt())
