"""What an update consists of: the loss and its gradients, computed in some precision; then, as functions on
tensors, AdamW, the learning rate schedule and gradient clipping."""

import copy
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from ablate.data.splits import Batch
from ablate.files import cache
from ablate.model.models import Model

COMPILED_AT_ONCE = 4096  # models that a process keeps compiled; beyond PyTorch's 8 it falls back silently
Module = TypeVar("Module", bound=nn.Module)

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


# --- the loss and its gradients -------------------------------------------------------------------------


class Computing:
    """Computes losses and gradients of a model with float32 weights in the precision of train.precision.

    Weights, gradients, moments, losses and statistics are always float32. In bfloat16 are only the weights of
    `model`, a copy that `follow` updates once per step, and the activations from there to the logits
    (docs/precision.md). Buffers are those of both, in the type that the method gave them.
    """

    def __init__(self, weights: Model, precision: str, *, compiled: bool = False) -> None:
        self.weights = weights
        self.model = in_precision(weights, precision)
        self.params = dict(self.model.named_parameters())
        self.loss: Callable[..., Tensor] = _compiled(self.model) if compiled else self.model.loss

    def loss_and_gradients(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean loss, 0-dimensional, and the gradient of each parameter by name, all in the precision of
        the weights."""
        loss = self.loss(*batch)
        grads = torch.autograd.grad(loss, [*self.params.values()])
        weights = self.weights.parameters()
        return loss.detach(), {
            name: grad.to(weight.dtype)
            for name, grad, weight in zip(self.params, grads, weights, strict=True)
        }

    @torch.no_grad()
    def follow(self) -> None:
        """Copy the current weights into the bfloat16 model, if there is one."""
        if self.model is not self.weights:
            for cast, weight in zip(self.params.values(), self.weights.parameters(), strict=True):
                cast.copy_(weight)
            for module, computed in zip(self.weights.modules(), self.model.modules(), strict=True):
                module._buffers.update(computed._buffers)  # of a method that makes a new tensor in each step


def in_precision(model: Module, precision: str) -> Module:
    """The model itself for float32, otherwise a copy of it in bfloat16 that shares its buffers."""
    if precision == "float32":
        return model
    computed = copy.deepcopy(model, {id(buffer): buffer for buffer in model.buffers()})
    for param in computed.parameters():
        param.data = param.data.to(torch.bfloat16)
    return computed


def _compiled(model: Model) -> Callable[[Tensor, Tensor], Tensor]:
    """The model's loss, compiled by torch.compile, whose output is kept in the cache for later processes."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache.directory() / "compiled"))
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # a worker has one core
    import torch._dynamo

    most = dict.fromkeys(("recompile_limit", "accumulated_recompile_limit"), COMPILED_AT_ONCE)
    return torch._dynamo.config.patch(**most)(torch.compile(model.loss, dynamic=False))
