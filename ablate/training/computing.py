"""Computes the steps of training with the model itself or a bfloat16 copy of it, compiled or not.

Weights, gradients, moments, losses and statistics are always float32. In bfloat16 are only the weights of the
copy, cast once per step, and the activations from there to the logits (docs/precision.md).
"""

import copy
import os
from collections.abc import Callable

import torch
from torch import Tensor

from ablate.data.splits import Batch
from ablate.files import cache
from ablate.model.blocks import Model

COMPILED_AT_ONCE = 4096  # models that a process keeps compiled; beyond PyTorch's 8 it falls back silently


class Computing:
    """Computes losses and gradients of a model with float32 weights in the precision of train.precision.

    model: the module that computes. Call `follow` whenever the weights have changed.
    """

    def __init__(self, weights: Model, precision: str, *, compiled: bool = False) -> None:
        self.weights = weights
        self.model = in_precision(weights, precision)
        self.params = dict(self.model.named_parameters())
        self.loss: Callable[..., Tensor] = _compiled(self.model) if compiled else self.model.loss

    def loss_and_gradients(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean loss, 0-dimensional, and the gradient of each parameter by name, all in float32."""
        loss = self.loss(*batch)
        grads = torch.autograd.grad(loss, [*self.params.values()])
        return loss.detach(), {name: grad.float() for name, grad in zip(self.params, grads, strict=True)}

    @torch.no_grad()
    def follow(self) -> None:
        """Copy the current weights into the bfloat16 model, if there is one."""
        if self.model is not self.weights:
            for cast, weight in zip(self.params.values(), self.weights.parameters(), strict=True):
                cast.copy_(weight)


def in_precision(model: Model, precision: str) -> Model:
    """The model itself for float32, otherwise a copy of it in bfloat16."""
    return model if precision == "float32" else copy.deepcopy(model).to(torch.bfloat16)


def _compiled(model: Model) -> Callable[[Tensor, Tensor], Tensor]:
    """The model's loss, compiled by torch.compile, whose output is kept in the cache for later processes."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache.directory() / "compiled"))
    import torch._dynamo
    import torch._inductor.config

    torch._dynamo.config.recompile_limit = COMPILED_AT_ONCE
    torch._dynamo.config.accumulated_recompile_limit = COMPILED_AT_ONCE
    torch._inductor.config.compile_threads = 1  # a worker has one core
    return torch.compile(model.loss, dynamic=False)
