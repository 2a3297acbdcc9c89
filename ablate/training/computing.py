"""What computes a step: the model itself, or a copy of it in bfloat16; as it is written, or compiled.

Weights, gradients, moments, losses and statistics are float32 always. In bfloat16 are the copy's weights,
cast once a step, and all that lies between them and the logits (docs/precision.md).
"""

import copy
import os
from collections.abc import Callable

import torch
from torch import Tensor

from ablate.data.splits import Batch
from ablate.files import cache
from ablate.model.lm import LM

COMPILED_AT_ONCE = 4096  # models that a process keeps compiled; PyTorch's 8 would fall back without a word


class Computing:
    """Losses and gradients of a model with float32 weights, in a precision of train.precision.

    model: what computes. Call `follow` when the weights have changed.
    """

    def __init__(self, weights: LM, precision: str, *, compiled: bool = False) -> None:
        self.weights = weights
        self.model = in_precision(weights, precision)
        self.params = dict(self.model.named_parameters())
        self.loss: Callable[..., Tensor] = _compiled(self.model) if compiled else self.model.loss

    def loss_and_gradients(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Both in float32: the mean loss, 0-dimensional, and the gradient of each parameter by name."""
        loss = self.loss(*batch)
        grads = torch.autograd.grad(loss, [*self.params.values()])
        return loss.detach(), {name: grad.float() for name, grad in zip(self.params, grads, strict=True)}

    @torch.no_grad()
    def follow(self) -> None:
        """Cast the weights anew."""
        if self.model is not self.weights:
            for cast, weight in zip(self.params.values(), self.weights.parameters(), strict=True):
                cast.copy_(weight)


def in_precision(model: LM, precision: str) -> LM:
    """The model itself for float32, else a copy of it in bfloat16."""
    return model if precision == "float32" else copy.deepcopy(model).to(torch.bfloat16)


def _compiled(model: LM) -> Callable[[Tensor, Tensor], Tensor]:
    """The model's loss by torch.compile. What it makes is kept in the cache, for the next process."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache.directory() / "compiled"))
    import torch._dynamo
    import torch._inductor.config

    torch._dynamo.config.recompile_limit = COMPILED_AT_ONCE
    torch._dynamo.config.accumulated_recompile_limit = COMPILED_AT_ONCE
    torch._inductor.config.compile_threads = 1  # a worker has one core
    return torch.compile(model.loss, dynamic=False)
