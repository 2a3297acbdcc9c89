import math
from dataclasses import dataclass
from typing import Literal

from ablate.lazy import Tensor, torch
from ablate.model.fusion import Fusion, Normalized, always, register
from ablate.model.parts import HeadShape, constant


@dataclass(frozen=True, kw_only=True)
class SumOptions(Normalized):
    order: Literal["none", "rotate"]


@register("sum")
class Sum(Fusion):
    """Heads added up: fused = Σ_i z_i, which does not depend on their order.

    At the start the heads are nearly independent, so the sum has H times the variance of one:
    normalize=variance multiplies by 1/√H. order=rotate rotates head i by iπ/H in the plane of each pair of
    neighbouring channels (an odd last channel stays), so that the sum depends on the order of the heads.
    See: Elhage et al., "A mathematical framework for transformer circuits", 2021, where concat with out_proj
    is a sum of heads, each with an output projection of its own.
    """

    Options = SumOptions
    one_head_passes = homogeneous = True
    folds = always

    def __init__(self, shape: HeadShape, options: SumOptions) -> None:
        super().__init__(shape, options)
        self.scale = shape.heads**-0.5 if options.normalize == "variance" else 1.0

    @classmethod
    def form(cls, heads: int, options: SumOptions) -> str:
        if heads == 1:
            return "concat"
        plain = f"sum normalize={options.normalize}"
        return plain if options.order == "none" else super().form(heads, options)

    def forward(self, z_BTHV: Tensor, x_BTC: Tensor) -> Tensor:
        heads = self._turned(z_BTHV) if self.options.order == "rotate" else z_BTHV
        return heads.sum(-2) * self.scale

    def _turned(self, z_BTHV: Tensor) -> Tensor:
        even = z_BTHV.shape[-1] // 2 * 2
        first, second = z_BTHV[..., :even:2], z_BTHV[..., 1:even:2]
        angles_H1 = _angles(self.shape.heads, z_BTHV.dtype, z_BTHV.device)[:, None]
        cos, sin = angles_H1.cos(), angles_H1.sin()
        turned = torch.stack([first * cos - second * sin, first * sin + second * cos], -1)
        return torch.cat([turned.flatten(-2), z_BTHV[..., even:]], -1)


@constant
def _angles(heads: int, dtype: "torch.dtype", device: "torch.device") -> Tensor:
    """(H,) the angle by which each head is turned."""
    return torch.tensor([head * math.pi / heads for head in range(heads)], dtype=dtype, device=device)
