"""The MLP of a block: model.mlp.

legend: m hidden width; matrices W_up and W_gate map from the model's width to m, W_down back.
"""

from abc import abstractmethod
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.layers import Linear
from ablate.model.spec import AttentionSpec


class MLP(nn.Module):
    """x -> activated(x) W_down, with the width, biases and initial scale that spec gives its attention.

    kept: how many vectors of m numbers a token the backward pass needs.
    """

    kept: ClassVar[int] = 2

    def __init__(self, hidden: int, spec: AttentionSpec) -> None:
        super().__init__()
        self.up = Linear(spec.d_model, hidden, bias=spec.bias)
        self.down = Linear(hidden, spec.d_model, bias=spec.bias, scale=spec.residual_scale)

    def forward(self, x_BTC: Tensor) -> Tensor:
        return self.down(self.activated(x_BTC))

    @abstractmethod
    def activated(self, x_BTC: Tensor) -> Tensor:
        """(B, T, m)."""


class Gelu(MLP):
    """GELU(x W_up), exact. See: Hendrycks and Gimpel, "Gaussian error linear units", arXiv 1606.08415."""

    def activated(self, x_BTC: Tensor) -> Tensor:
        return F.gelu(self.up(x_BTC))


class SquaredRelu(MLP):
    """max(x W_up, 0)². See: So et al., "Primer", arXiv 2109.08668."""

    def activated(self, x_BTC: Tensor) -> Tensor:
        return F.relu(self.up(x_BTC)).square()


class SwiGLU(MLP):
    """silu(x W_gate) ⊙ (x W_up). See: Shazeer, "GLU variants improve transformer", arXiv 2002.05202."""

    kept = 4

    def __init__(self, hidden: int, spec: AttentionSpec) -> None:
        super().__init__(hidden, spec)
        self.gate = Linear(spec.d_model, hidden, bias=spec.bias)

    def activated(self, x_BTC: Tensor) -> Tensor:
        return F.silu(self.gate(x_BTC)) * self.up(x_BTC)


MLPS: dict[str, type[MLP]] = {"gelu": Gelu, "relu2": SquaredRelu, "swiglu": SwiGLU}
