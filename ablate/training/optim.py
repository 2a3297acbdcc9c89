"""What an update consists of, as functions on tensors: AdamW, the learning rate schedule, gradient clipping.

legend: M members, which are models that are trained as one; P numbers in all parameters of one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from ablate.config.schema import TrainConfig


@dataclass(frozen=True)
class Moments:
    """Running means of the gradients and of their squares, (M, P). updates: how many there were, (M, 2), for
    the parameters that decay and for the others, as PyTorch's kernel counts them."""

    first: Tensor
    second: Tensor
    updates: Tensor

    @classmethod
    def zeros(cls, weights_MP: Tensor) -> Self:
        updates = torch.zeros(len(weights_MP), 2, device=weights_MP.device)
        return cls(torch.zeros_like(weights_MP), torch.zeros_like(weights_MP), updates)


def learning_rate(step: int, config: TrainConfig, peak: float) -> float:
    """The rate of update `step` (1 to steps): linear warm-up, then a half cosine down to peak·min_lr_ratio.

    Equal to nanoGPT's get_lr at iteration step − 1, so the last update is one step short of the floor.
    """
    iteration, warmup_steps, floor = step - 1, round(config.warmup * config.steps), config.min_lr_ratio
    if iteration < warmup_steps:
        return peak * (iteration + 1) / (warmup_steps + 1)
    progress = (iteration - warmup_steps) / (config.steps - warmup_steps)
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress)))


def clipping_divisor(norm_M: Tensor, most_M: Tensor) -> Tensor:
    """The divisor of each member's gradients that brings their norm to at most `most`, which may be inf."""
    divisor_M = ((norm_M + 1e-6) / most_M).clamp(min=1.0)
    return divisor_M.nan_to_num(nan=1.0, posinf=math.inf)  # an infinite norm that is not clipped


def update_(
    weights_MP: Tensor,
    grads_MP: Tensor,
    moments: Moments,
    config: TrainConfig,
    *,
    lr_M: Tensor,
    alike: Sequence[tuple[Sequence[int], float]],
    decayed: int,
    divisor_M: Tensor,
) -> None:
    """One AdamW update in place, by PyTorch's fused kernel, which reads and writes each number only once; the
    gradients are divided by `divisor` first, in place.

    alike: members of equal rate and decay, each with that decay, of its first `decayed` numbers. One call of
    the kernel updates all of them: a member alone is too small to keep a GPU busy. See: Loshchilov & Hutter,
    "Decoupled weight decay regularization", 2019, Algorithm 2.
    """
    grads_MP.div_(divisor_M.float()[:, None])
    parts = slice(None, decayed), slice(decayed, None)
    for rows, decay_of_first in alike:
        for which, (part, decay) in enumerate(zip(parts, (decay_of_first, 0.0), strict=True)):
            adamw(
                [weights_MP[row, part] for row in rows],
                [grads_MP[row, part] for row in rows],
                [moments.first[row, part] for row in rows],
                [moments.second[row, part] for row in rows],
                [],
                [moments.updates[row, which] for row in rows],
                fused=True,
                amsgrad=False,
                beta1=config.beta1,
                beta2=config.beta2,
                lr=lr_M[rows[0]],
                weight_decay=decay,
                eps=config.eps,
                maximize=False,
            )
