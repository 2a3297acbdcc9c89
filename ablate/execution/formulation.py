"""Find the faster formulation of softmax attention on this machine: timed once, then remembered.

legend: as of ablate.model.attend.
"""

import functools
import time
from functools import partial

import torch
from torch import Tensor

from ablate.compute.fastest import fastest
from ablate.model.attend import FORMULATIONS, Attend, fused
from ablate.model.masks import CAUSAL

SHAPES = ((12, 4, 64, 32), (32, 4, 64, 16), (8, 6, 256, 64))  # (B, P, T, K) of the presets
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.03}  # of the largest entry


@functools.cache
def fastest_attention() -> str:
    """The faster one for bfloat16 on one thread: `fused` or `unfused`. In float32 `fused` never loses."""
    choices = {name: partial(_seconds, attend) for name, attend in FORMULATIONS.items() if agrees(attend)}
    return fastest("attention", choices)


def agrees(attend: Attend, dtype: torch.dtype = torch.bfloat16) -> bool:
    """Whether `attend` in `dtype` agrees with the fused formulation in float64 on the same numbers, in value
    and in every gradient, within TOLERANCE."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 3, 17, 8), (2, 3, 17, 8), (2, 3, 17, 5), (2, 3, 17, 5))
    drawn = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    found, exact = _with_gradients(attend, *drawn), _with_gradients(fused, *(t.double() for t in drawn))
    return all(
        (a - b).abs().max() < TOLERANCE[dtype] * b.abs().max() for a, b in zip(found, exact, strict=True)
    )


def _with_gradients(attend: Attend, q: Tensor, k: Tensor, v: Tensor, grad: Tensor) -> list[Tensor]:
    q, k, v = (t.clone().requires_grad_() for t in (q, k, v))
    z = attend(q, k, v, CAUSAL, 0.0, 0.3)
    return [z.detach(), *torch.autograd.grad(z, (q, k, v), grad)]


def _seconds(attend: Attend) -> float:
    total = 0.0
    for B, P, T, K in SHAPES:
        q, k, v = (torch.ones(B, P, T, K, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
        grad = torch.ones(B, P, T, K, dtype=torch.bfloat16)
        began = time.perf_counter()
        torch.autograd.grad(attend(q, k, v, CAUSAL, 0.0, 0.3), (q, k, v), grad)
        total += time.perf_counter() - began
    return total
