"""Two implementations of x Wᵀ + b that differ only in speed: MKL and oneDNN.

PyTorch uses MKL for float32, which takes a slower path on some processors, such as AMD's. The oneDNN
operator is private to PyTorch, so ablate looks for it, checks it and times it before using it.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]


class _OneDNN(torch.autograd.Function):
    """F.linear, forward and backward, as three oneDNN products. Transposed views are passed uncopied."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return _product(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], inputs[1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        rows = grad.flatten(0, -2)
        return (
            _product(grad, weight.t()) if needs_x else None,
            _product(rows.t(), x.flatten(0, -2).t()) if needs_weight else None,
            rows.sum(0) if needs_bias else None,
        )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b. x: (..., inputs), float32 on the CPU; weight: (outputs, inputs); bias: (outputs,) or None."""
    return _OneDNN.apply(x, weight, bias)  # pyright: ignore[reportReturnType]


PRODUCTS: dict[str, Product] = {"mkl": F.linear, "onednn": onednn}


def works(product: Product) -> bool:
    """Whether `product` exists in this PyTorch and agrees with float64, in value and in every gradient,
    within 1e-5 of the largest entry."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((3, 17, 29), (41, 29), (41,), (3, 17, 41))
    x, weight, bias, grad = (torch.randn(shape, generator=generator) for shape in shapes)
    try:
        found = _with_gradients(product, x, weight, bias, grad)
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
    exact = _with_gradients(F.linear, *(t.double() for t in (x, weight, bias, grad)))
    return all((a - b).abs().max() < 1e-5 * b.abs().max() for a, b in zip(found, exact, strict=True))


def _with_gradients(product: Product, x: Tensor, weight: Tensor, bias: Tensor, grad: Tensor) -> list[Tensor]:
    inputs = [t.requires_grad_() for t in (x.clone(), weight.clone(), bias.clone())]
    y = product(*inputs)
    return [y.detach(), *torch.autograd.grad(y, inputs, grad)]
