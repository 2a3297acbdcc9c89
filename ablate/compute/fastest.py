"""Several ways to compute the same thing, and the fastest of them: timed once per machine, then remembered.

PyTorch uses MKL for float32 products, which takes a slower path on some processors, such as AMD's. The oneDNN
operator is private to PyTorch, so ablate looks for it, checks it and times it before using it.
"""

import contextlib
import functools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.compute.device import processor, with_threads
from ablate.config.identity import digest
from ablate.files import cache

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

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], x: Tensor, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, int]:
        """By PyTorch's batched product: oneDNN's operator takes one matrix."""
        return torch.vmap(F.linear, in_dims)(x, weight, bias), 0


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b. x: (..., inputs), float32 on the CPU; weight: (outputs, inputs); bias: (outputs,) or None."""
    return _OneDNN.apply(x, weight, bias)  # pyright: ignore[reportReturnType]


PRODUCTS: dict[str, Product] = {"mkl": F.linear, "onednn": onednn}


def rounded(product: Product) -> Product:
    """A float32 product as one of bfloat16 numbers: the sum in float32, then rounded, as processors with
    bfloat16 products do it."""

    def of_halves(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return product(x.float(), weight.float(), None if bias is None else bias.float()).to(x.dtype)

    return of_halves


def works(product: Product) -> bool:
    """Whether `product` exists in this PyTorch and is exact."""
    return agrees(product, F.linear, ((3, 17, 29), (41, 29), (41,), (3, 17, 41)), torch.float32, 1e-5)


# --- whether one way agrees with another, and how long it takes -----------------------------------------
# shapes: of the inputs of a function, and last of its output

Shapes = Sequence[tuple[int, ...]]
Function = Callable[..., Tensor]


def agrees(function: Function, exact: Function, shapes: Shapes, dtype: torch.dtype, most: float) -> bool:
    """Whether `function` in `dtype` agrees with `exact` in float64 on the same numbers, in value and in every
    gradient, within `most` of the largest entry."""
    generator = torch.Generator().manual_seed(0)
    *inputs, grad = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    try:
        computed = _with_gradients(function, inputs, grad)
    except (RuntimeError, AttributeError, NotImplementedError):  # this PyTorch lacks it
        return False
    in_float64 = _with_gradients(exact, [t.double() for t in inputs], grad.double())
    return all((a - b).abs().max() < most * b.abs().max() for a, b in zip(computed, in_float64, strict=True))


def _with_gradients(function: Function, inputs: Sequence[Tensor], grad: Tensor) -> list[Tensor]:
    inputs = [t.clone().requires_grad_() for t in inputs]
    y = function(*inputs)
    return [y.detach(), *torch.autograd.grad(y, inputs, grad)]


def seconds(function: Function, each: Sequence[Shapes], dtype: torch.dtype) -> float:
    """The time of `function`, forward and backward, for each of these shapes, one after the other."""
    total = 0.0
    for *shapes, output in each:
        inputs = [torch.ones(shape, dtype=dtype, requires_grad=True) for shape in shapes]
        grad = torch.ones(output, dtype=dtype)
        began = time.perf_counter()
        torch.autograd.grad(function(*inputs), inputs, grad)
        total += time.perf_counter() - began
    return total


# --- the fastest -------------------------------------------------------------------------------------

ROUNDS = 7
# (rows, inputs, outputs) of the products that the presets compute most
SIZES = ((2048, 64, 256), (768, 128, 512), (768, 512, 128))
HOPELESS = 4  # what takes so many times as long as another is not timed again
AHEAD = 0.95  # another way has to take less than this share of the first one's time


@functools.cache
def fastest_product() -> str:
    """The faster product of float32 matrices on one thread: `mkl` or `onednn`."""
    times = {name: partial(_seconds, product, torch.float32) for name, product in PRODUCTS.items()}
    return fastest("product", times, lambda name: works(PRODUCTS[name]))


@functools.cache
def bfloat16_is_faster() -> bool:
    """Whether bfloat16 matrix products are faster here than float32 ones, as on processors that have them in
    hardware."""
    plain = partial(_seconds, PRODUCTS[fastest_product()], torch.float32)
    half = partial(_seconds, F.linear, torch.bfloat16)
    return fastest("precision", {"float32": plain, "bfloat16": half}) == "bfloat16"


def fastest(
    question: str, contestants: Mapping[str, Callable[[], float]], usable: Callable[[str], bool] | None = None
) -> str:
    """The contestant that takes the least time on one thread; the first, unless another is clearly faster.

    The answer is kept in the cache, for this processor and this PyTorch; of processes that ask at the same
    time, the first decides for all. contestants: each does its work once and returns the seconds that it
    took. usable: which of them may be chosen, all by default. It is called once, too: to check gradients
    PyTorch loads sympy, which takes most of a second.
    """
    key = f"fastest-{digest([question, *contestants, processor(), torch.__version__])}"
    if entry := cache.find(key):
        return entry[1]
    choice = _race({name: one for name, one in contestants.items() if usable is None or usable(name)})
    with contextlib.suppress(OSError):  # without a cache the next process times it again
        return cache.publish(key, lambda _: choice)[1]
    return choice


def _race(contestants: Mapping[str, Callable[[], float]]) -> str:
    times: dict[str, list[float]] = {name: [] for name in contestants}
    with with_threads(1):
        for number in range(ROUNDS):
            for name, timed in contestants.items():  # in turn, so that a busy moment slows all alike
                # Not after one round: the first call may have to load something.
                if number < 2 or min(times[name]) < HOPELESS * min(map(min, times.values())):
                    times[name].append(timed())
    median = {name: statistics.median(values) for name, values in times.items()}
    first, *_ = contestants
    best = min(median, key=lambda name: median[name])
    return best if median[best] < AHEAD * median[first] else first


def _seconds(product: Product, dtype: torch.dtype) -> float:
    each = [((rows, inputs), (outputs, inputs), (rows, outputs)) for rows, inputs, outputs in SIZES]
    return seconds(lambda x, weight: product(x, weight, None), 4 * each, dtype)
