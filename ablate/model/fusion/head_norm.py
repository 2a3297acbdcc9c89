from dataclasses import dataclass
from typing import Literal

from ablate.lazy import Tensor, nn, torch
from ablate.model.fusion import Options, register
from ablate.model.fusion.concat import Concat
from ablate.model.parts import HeadShape, without_length
from ablate.model.spec import STD


@dataclass(frozen=True, kw_only=True)
class HeadNormOptions(Options):
    gain: Literal["auto", "differential"]


@register("head_norm")
class HeadNorm(Concat):
    """Heads concatenated, each normalized: fused = [γ_1 ⊙ RMSNorm(z_1); …; γ_H ⊙ RMSNorm(z_H)].

    γ, (H, V), starts at the size of a value, 0.02·√d_model, or with gain=differential at 1 − λ_0 of
    scores=differential; without out_proj that is smaller, as of all that writes into the residual stream. How
    large a head's output is has no effect, its direction has.
    See: Ye et al., "Differential transformer", arXiv 2410.05258, whose heads are normalized this way.
    """

    Options = HeadNormOptions

    def __init__(self, shape: HeadShape, options: HeadNormOptions) -> None:
        super().__init__(shape, options)
        start = STD * shape.d_model**0.5 if options.gain == "auto" else 1 - shape.differential_start
        start *= shape.value_start  # which the norm takes away from the values
        self.gain = nn.Parameter(torch.full((shape.heads, shape.value_width), start))

    @classmethod
    def count_params(cls, shape: HeadShape, options: HeadNormOptions) -> int:
        return shape.heads * shape.value_width

    def forward(self, z_BTHV: Tensor, x_BTC: Tensor) -> Tensor:
        return (without_length(z_BTHV) * self.gain).flatten(-2)
