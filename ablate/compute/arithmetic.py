"""By which library a run multiplies, and in which formulation it computes attention: a rule on the kind of
processor, the precision and the context, so that two equal machines compute alike.

docs/precision.md has the figures behind TABLE. A kind of processor that it lacks computes as PyTorch does.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.compute.device import instruction_set, maker

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
SHORT = 512  # tokens, up to which it is faster to store attention patterns


class _OneDNN(torch.autograd.Function):
    """F.linear, forward and backward, as three oneDNN products. Transposed views are passed uncopied."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

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
    """x Wᵀ + b. x: (..., inputs), on the CPU; weight: (outputs, inputs); bias: (outputs,) or None. By an
    operator for float32 that is private to PyTorch; by F.linear in float64, and where a release lacks it."""
    if x.dtype != torch.float32 or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return F.linear(x, weight, bias)
    return _OneDNN.apply(x, weight, bias)  # pyright: ignore[reportReturnType]


def in_float32(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b of bfloat16 numbers: summed in float32, then rounded once, as processors with bfloat16
    products do it."""
    return F.linear(x.float(), weight.float(), None if bias is None else bias.float()).to(x.dtype)


# A product, and a formulation of attention, one of ablate.model.attend.FORMULATIONS.
PLAIN = F.linear, "fused"
NATIVE = F.linear, "unfused"  # bfloat16, by instructions for it
EMULATED = in_float32, "float32"  # bfloat16 without them

# By the maker of the processor and its instruction set: in float32, in bfloat16.
TABLE = {
    ("AMD", "AVX512_BF16"): ((onednn, "fused"), NATIVE),  # MKL takes its path for AVX2 there
    ("Intel", "AVX512_BF16"): (PLAIN, NATIVE),
    ("AMD", "AVX2"): (PLAIN, EMULATED),
    ("Intel", "AVX2"): (PLAIN, EMULATED),
    ("Intel", "AVX512"): (PLAIN, EMULATED),
}


def arithmetic(precision: str, device: torch.device, context: int) -> tuple[Product, str]:
    """The product and the formulation of attention of a run of this precision on this device, in windows of
    so many tokens: in long ones, whole patterns are not stored."""
    kind = (maker(), instruction_set()) if device.type == "cpu" else ("", "")
    in_float32, in_bfloat16 = TABLE.get(kind, (PLAIN, PLAIN))
    product, attention = in_bfloat16 if precision == "bfloat16" else in_float32
    return product, "fused" if attention == "unfused" and context > SHORT else attention
