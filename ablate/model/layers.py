"""The layers that a model is built of besides attention.

legend: B batch, H heads, T time, C model width, K key width.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.parts import constant
from ablate.model.spec import STD, AttentionSpec, ModelSpec


class Linear(nn.Module):
    """y = x Wᵀ + b in the type of W, of shape (outputs, inputs), by `product`, which can be replaced.

    scale: the weight starts as scale·STD times a standard normal draw.
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        self.product: Callable[[Tensor, Tensor, Tensor | None], Tensor] = F.linear

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x.to(self.weight.dtype), self.weight, self.bias)


class Embedding(nn.Module):
    """Looks up a row of `weight`, (entries, width), for each index."""

    scale = 1.0

    def __init__(self, entries: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(entries, width))

    def forward(self, index: Tensor) -> Tensor:
        return F.embedding(index, self.weight)


class Nothing(nn.Module):
    """A projection to width 0, without weights."""

    def forward(self, x: Tensor) -> Tensor:
        return x[..., :0]


class LowRank(nn.Module):
    """y = (x W_downᵀ) W_upᵀ + b: a linear map whose rank is at most `rank`.

    scale: the product of both starts with the variance that a single matrix of this scale would have.
    """

    def __init__(self, inputs: int, outputs: int, rank: int, *, bias: bool, scale: float) -> None:
        super().__init__()
        # W_down, with entries of size 1/√inputs, keeps the variance of its input; W_up sets the rest.
        self.down = Linear(inputs, rank, bias=False, scale=inputs**-0.5 / STD)
        self.up = Linear(rank, outputs, bias=bias, scale=scale * (inputs / rank) ** 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.down(x))


class RMSNorm(nn.Module):
    """γ ⊙ x / √(mean x² + eps), computed at least in float32.

    See: Zhang and Sennrich, "Root mean square layer normalization", arXiv 1910.07467.
    """

    eps = 1e-6

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        dtype = torch.promote_types(x.dtype, torch.float32)
        return F.rms_norm(x.to(dtype), self.weight.shape, self.weight.to(dtype), self.eps).to(x.dtype)


def norm_of(spec: ModelSpec) -> nn.Module:
    """The norm before each attention and each MLP, and at the end of each stack: rms, or layer,
    γ ⊙ (x − mean x) / √(var x + eps) + β. See: Ba et al., "Layer normalization", arXiv 1607.06450."""
    return RMSNorm(spec.d_model) if spec.norm == "rms" else nn.LayerNorm(spec.d_model, bias=spec.bias)


class MLP(nn.Module):
    """The MLP of a block. W_up and W_gate map to the hidden width, W_down back. kind: as model.mlp names it.

    gelu: GELU(x W_up) W_down, with the exact GELU. See: Hendrycks and Gimpel, "Gaussian error linear units",
    arXiv 1606.08415. relu2: max(x W_up, 0)² W_down. See: So et al., "Primer", arXiv 2109.08668.
    swiglu: (silu(x W_gate) ⊙ x W_up) W_down. See: Shazeer, "GLU variants improve transformer", 2002.05202.
    """

    def __init__(self, kind: str, hidden: int, spec: AttentionSpec) -> None:
        """spec: of the attention before it, for width, biases and the initial scale of W_down."""
        super().__init__()
        self.kind = kind
        self.up = Linear(spec.d_model, hidden, bias=spec.bias)
        self.down = Linear(hidden, spec.d_model, bias=spec.bias, scale=spec.residual_scale)
        if kind == "swiglu":
            self.gate = Linear(spec.d_model, hidden, bias=spec.bias)

    def forward(self, x_BTC: Tensor) -> Tensor:
        up = self.up(x_BTC)
        if self.kind == "gelu":
            return self.down(F.gelu(up))
        return self.down(F.relu(up).square() if self.kind == "relu2" else F.silu(self.gate(x_BTC)) * up)


class Rotary(nn.Module):
    """Turns x_BHTK: channels j and j + K/2 at position t are turned as a pair by the angle t · base^(−2j/K).

    A turn keeps lengths, and ⟨turn(q, t), turn(k, s)⟩ depends on t and s by t − s alone. Angles and products
    are at least in float32. K is even. See: Su et al., "RoFormer", arXiv 2104.09864.
    """

    def __init__(self, base: float) -> None:
        super().__init__()
        self.base = base

    def forward(self, x_BHTK: Tensor, first: int = 0) -> Tensor:
        """first: the position of the first vector."""
        T, K = x_BHTK.shape[-2:]
        assert K % 2 == 0, "sizing and the rules on scores let no odd width be turned"
        dtype = torch.promote_types(x_BHTK.dtype, torch.float32)
        cos_TK, sin_TK = _turns(first, T, K, self.base, dtype, x_BHTK.device)
        low, high = x_BHTK.to(dtype).chunk(2, -1)
        turned = torch.cat([low * cos_TK - high * sin_TK, high * cos_TK + low * sin_TK], -1)
        return turned.to(x_BHTK.dtype)


@constant
def _turns(first: int, T: int, K: int, base: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(2, T, K/2): cos and sin of the angle of each position and pair."""
    rates = base ** -(torch.arange(0, K, 2, device=device).to(dtype) / K)
    angles = torch.outer(torch.arange(first, first + T, device=device).to(dtype), rates)
    return torch.stack([angles.cos(), angles.sin()])
