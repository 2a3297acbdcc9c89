from dataclasses import dataclass
from typing import Literal

from ablate.lazy import Tensor, nn, torch
from ablate.model.fusion import Fusion, Normalized, always, register
from ablate.model.parts import HeadShape


@dataclass(frozen=True, kw_only=True)
class WeightedSumOptions(Normalized):
    weights: Literal["free", "convex"]
    per: Literal["head", "channel"]


@register("weighted_sum")
class WeightedSum(Fusion):
    """Heads added up with learned weights: fused = Σ_i α_i ⊙ z_i.

    weights=free: α are the parameters, which start at 1 (the sum) or, normalized, at 1/√H.
    weights=convex: α is the softmax of the parameters over heads, which starts at 1/H (the mean);
    normalize=variance multiplies by √H. With per=channel, α_i ∈ R^V.
    See: Ahmed et al., "Weighted transformer network", arXiv 1711.02132, whose heads have output projections
    of their own, which is head_scale here.
    """

    Options = WeightedSumOptions
    one_head_passes = homogeneous = True
    folds = always

    def __init__(self, shape: HeadShape, options: WeightedSumOptions) -> None:
        super().__init__(shape, options)
        normalized = options.normalize == "variance"
        if options.weights == "free":
            start, self.scale = (shape.heads**-0.5 if normalized else 1.0), 1.0
        else:
            start, self.scale = 0.0, (shape.heads**0.5 if normalized else 1.0)
        width = shape.value_width if options.per == "channel" else 1
        self.alpha = nn.Parameter(torch.full((shape.heads, width), start))

    @classmethod
    def count_params(cls, shape: HeadShape, options: WeightedSumOptions) -> int:
        return shape.heads * (shape.value_width if options.per == "channel" else 1)

    def _weights(self) -> Tensor:
        """α, (H, 1) or (H, V)."""
        alpha = self.alpha if self.options.weights == "free" else self.alpha.softmax(0)
        return alpha * self.scale

    def forward(self, z_BTHV: Tensor, x_BTC: Tensor) -> Tensor:
        return (z_BTHV * self._weights()).sum(-2)

    def head_weights(self) -> Tensor:
        weights = self._weights().detach()
        return weights.squeeze(-1) if self.options.per == "head" else weights
