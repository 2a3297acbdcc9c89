import torch
from torch import Tensor, nn

from ablate.model.parts import Options
from ablate.model.readout.base import register
from ablate.model.readout.hadamard import Hadamard
from ablate.model.spec import HeadShape


@register("hadamard_scaled")
class HadamardScaled(Hadamard):
    """A fixed Walsh–Hadamard matrix in place of out_proj, then a learned scale for each channel:
    y = (fused · H/√d_model) ⊙ s.

    s starts at 1. A scale before the matrix would fold into W_V.
    See: Aggarwal and Kumar, arXiv 2603.08343, who add a shift for each channel, too.
    """

    invertible = True

    def __init__(self, shape: HeadShape, options: Options) -> None:
        super().__init__(shape, options)
        self.scale = nn.Parameter(torch.ones(shape.d_model))

    def forward(self, fused_BTF: Tensor) -> Tensor:
        return super().forward(fused_BTF) * self.scale
