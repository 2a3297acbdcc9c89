"""AdamW, its schedule and gradient clipping, as functions on tensors.

Rates, decays and masks may be numbers or tensors that broadcast against a parameter.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Moments:
    """Running means of the gradients and of their squares, by parameter name."""

    first: dict[str, Tensor] = field(default_factory=dict)
    second: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def zeros(cls, params: Tensors) -> "Moments":
        return cls(
            {name: torch.zeros_like(param) for name, param in params.items()},
            {name: torch.zeros_like(param) for name, param in params.items()},
        )


def learning_rate(step: int, *, steps: int, peak: float, warmup: float, min_ratio: float) -> float:
    """The rate of update `step` (1 to steps): linear warm-up, then a half cosine down to peak·min_ratio.

    warmup: share of the steps. As nanoGPT's get_lr at iteration step − 1, which ends one step short
    of the floor.
    """
    iteration, warmup_steps = step - 1, round(warmup * steps)
    if iteration < warmup_steps:
        return peak * (iteration + 1) / (warmup_steps + 1)
    progress = (iteration - warmup_steps) / (steps - warmup_steps)
    return peak * (min_ratio + (1 - min_ratio) * 0.5 * (1 + math.cos(math.pi * progress)))


def global_norm(grads: Tensors) -> Tensor:
    """The Euclidean norm of all gradients together, 0-dimensional."""
    return torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(grad) for grad in grads.values()]))


def clip_(grads: Tensors, norm: Tensor, max_norm: float | Tensor) -> None:
    """Scale the gradients in place so that their norm is at most max_norm."""
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for grad in grads.values():
        grad.mul_(scale)


def adamw_(
    params: Tensors,
    grads: Tensors,
    moments: Moments,
    step: int,
    *,
    lr: float | Tensor,
    weight_decay: float | Tensor,
    decayed: Mapping[str, bool | Tensor],
    beta1: float,
    beta2: float,
    eps: float,
) -> None:
    """One AdamW update in place; step counts from 1. See: Loshchilov & Hutter, "Decoupled weight decay
    regularization", 2019, Algorithm 2."""
    correct1, correct2 = 1 - beta1**step, 1 - beta2**step
    with torch.no_grad():
        for name, param in params.items():
            first, second = moments.first[name], moments.second[name]
            param.mul_(1 - lr * weight_decay * decayed[name])
            first.lerp_(grads[name], 1 - beta1)
            second.mul_(beta2).addcmul_(grads[name], grads[name], value=1 - beta2)
            # −lr/c₁ · m / (√v/√c₂ + ε), with the rate in the denominator: one temporary, no further pass
            rate = -correct1 / lr
            denominator = second.sqrt().mul_(rate / math.sqrt(correct2)).add_(eps * rate)
            param.addcdiv_(first, denominator)
