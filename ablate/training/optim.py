"""AdamW, the learning rate schedule and gradient clipping, as functions on tensors."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.optim.adamw import adamw

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

    warmup: share of the steps. Equal to nanoGPT's get_lr at iteration step − 1, so the last update is one
    step short of the floor.
    """
    iteration, warmup_steps = step - 1, round(warmup * steps)
    if iteration < warmup_steps:
        return peak * (iteration + 1) / (warmup_steps + 1)
    progress = (iteration - warmup_steps) / (steps - warmup_steps)
    return peak * (min_ratio + (1 - min_ratio) * 0.5 * (1 + math.cos(math.pi * progress)))


def global_norm(grads: Tensors) -> Tensor:
    """The Euclidean norm of all gradients together, 0-dimensional."""
    return torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(grad) for grad in grads.values()]))


def clipping_divisor(norm: Tensor, max_norm: float) -> Tensor:
    """The divisor of the gradients that brings their norm to at most max_norm."""
    return ((norm + 1e-6) / max_norm).clamp(min=1.0)


def adamw_(
    params: Tensors,
    grads: Tensors,
    moments: Moments,
    step: int,
    *,
    lr: float,
    weight_decay: float,
    decayed: Mapping[str, bool],
    beta1: float,
    beta2: float,
    eps: float,
    divisor: Tensor | None = None,
) -> None:
    """One AdamW update in place, by PyTorch's fused kernel, which reads and writes each tensor only once.

    step counts from 1; the gradients are divided by `divisor` first. See: Loshchilov & Hutter, "Decoupled
    weight decay regularization", 2019, Algorithm 2.
    """
    for decay in (True, False):
        names = [name for name in params if decayed[name] is decay]
        adamw(
            [params[name] for name in names],
            [grads[name] for name in names],
            [moments.first[name] for name in names],
            [moments.second[name] for name in names],
            [],
            list(torch.full((len(names),), step - 1.0, device=next(iter(params.values())).device).unbind()),
            fused=True,
            grad_scale=None if divisor is None else divisor.float(),  # it takes no other type
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=lr,
            weight_decay=weight_decay if decay else 0.0,
            eps=eps,
            maximize=False,
        )
