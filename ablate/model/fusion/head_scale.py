from dataclasses import dataclass
from typing import Literal

from ablate.lazy import Tensor, nn, torch
from ablate.model.fusion import Normalized, always, register
from ablate.model.fusion.concat import Concat
from ablate.model.parts import HeadShape


@dataclass(frozen=True, kw_only=True)
class HeadScaleOptions(Normalized):
    weights: Literal["free", "convex"]


@register("head_scale")
class HeadScale(Concat):
    """Heads concatenated, each multiplied by a learned weight: fused = [α_1 z_1; …; α_H z_H].

    weights=free: α are the parameters, which start at 1 (concat). weights=convex: α is the softmax of the
    parameters over heads, which starts at 1/H; normalize=variance multiplies by H.
    See: Ahmed et al., "Weighted transformer network", arXiv 1711.02132 (convex); Shleifer et al.,
    "NormFormer", arXiv 2110.09456 (free).
    """

    Options = HeadScaleOptions
    one_head_passes = homogeneous = True
    folds = always

    def __init__(self, shape: HeadShape, options: HeadScaleOptions) -> None:
        super().__init__(shape, options)
        self.alpha = nn.Parameter(torch.full((shape.heads, 1), 1.0 if options.weights == "free" else 0.0))

    @classmethod
    def count_params(cls, shape: HeadShape, options: HeadScaleOptions) -> int:
        return shape.heads

    def _weights(self) -> Tensor:
        """α, (H, 1)."""
        if self.options.weights == "free":
            return self.alpha
        scale = self.shape.heads if self.options.normalize == "variance" else 1.0
        return self.alpha.softmax(0) * scale

    def forward(self, z_BTHV: Tensor, x_BTC: Tensor) -> Tensor:
        return (z_BTHV * self._weights()).flatten(-2)

    def head_weights(self) -> Tensor:
        return self._weights().detach().squeeze(-1)
