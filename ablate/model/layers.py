"""The layers that hold drawn weights."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

STD = 0.02  # of every drawn weight, as GPT-2's


class Linear(nn.Module):
    """y = x Wᵀ + b, with W of shape (outputs, inputs). `product` computes it and can be replaced.

    scale: the weight starts at this multiple of STD times its standard-normal draw.
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        self.product: Callable[[Tensor, Tensor, Tensor | None], Tensor] = F.linear

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x, self.weight, self.bias)


class Embedding(nn.Module):
    """A row of `weight` (entries, width) for each index."""

    scale = 1.0

    def __init__(self, entries: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(entries, width))

    def forward(self, index: Tensor) -> Tensor:
        return F.embedding(index, self.weight)
