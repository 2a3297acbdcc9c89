"""The MLP of a block: model.mlp. W_up and W_gate map to the hidden width, W_down back."""

import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.layers import Linear
from ablate.model.spec import AttentionSpec


class MLP(nn.Module):
    """GELU(x W_up) W_down, with the exact GELU. See: Hendrycks and Gimpel, "Gaussian error linear units",
    arXiv 1606.08415."""

    def __init__(self, hidden: int, spec: AttentionSpec) -> None:
        """spec: of the attention before it, for width, biases and the initial scale of W_down."""
        super().__init__()
        self.up = Linear(spec.d_model, hidden, bias=spec.bias)
        self.down = Linear(hidden, spec.d_model, bias=spec.bias, scale=spec.residual_scale)

    def forward(self, x_BTC: Tensor) -> Tensor:
        return self.down(self.activated(x_BTC))

    def activated(self, x_BTC: Tensor) -> Tensor:
        return F.gelu(self.up(x_BTC))


class SquaredRelu(MLP):
    """max(x W_up, 0)² W_down. See: So et al., "Primer", arXiv 2109.08668."""

    def activated(self, x_BTC: Tensor) -> Tensor:
        return F.relu(self.up(x_BTC)).square()


class SwiGLU(MLP):
    """(silu(x W_gate) ⊙ x W_up) W_down. See: Shazeer, "GLU variants improve transformer", 2002.05202."""

    def __init__(self, hidden: int, spec: AttentionSpec) -> None:
        super().__init__(hidden, spec)
        self.gate = Linear(spec.d_model, hidden, bias=spec.bias)

    def activated(self, x_BTC: Tensor) -> Tensor:
        return F.silu(self.gate(x_BTC)) * self.up(x_BTC)


MLPS: dict[str, type[MLP]] = {"gelu": MLP, "relu2": SquaredRelu, "swiglu": SwiGLU}
