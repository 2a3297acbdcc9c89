"""The layers that hold randomly drawn weights, and small helpers beside them."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STD = 0.02  # standard deviation of every drawn weight, as in GPT-2


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


class Times(nn.Module):
    """y = c·x, with a constant c."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x
