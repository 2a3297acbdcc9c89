"""The norm before each attention and each MLP, and at the end of each stack: model.norm.

- layer: γ ⊙ (x − mean x) / √(var x + eps) + β. See: Ba et al., "Layer normalization", arXiv 1607.06450.
- rms: γ ⊙ x / √(mean x² + eps), without β. See: Zhang and Sennrich, "Root mean square layer normalization",
  arXiv 1910.07467.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.spec import ModelSpec


class RMSNorm(nn.Module):
    """Computed at least in float32."""

    eps = 1e-6

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        dtype = torch.promote_types(x.dtype, torch.float32)
        return F.rms_norm(x.to(dtype), self.weight.shape, self.weight.to(dtype), self.eps).to(x.dtype)


def norm_of(spec: ModelSpec) -> nn.Module:
    return RMSNorm(spec.d_model) if spec.norm == "rms" else nn.LayerNorm(spec.d_model, bias=spec.bias)
