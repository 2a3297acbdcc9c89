"""Whether models can be computed as one: their first mapped steps are held against plain ones.

What a method of one's own may do that vmap computes wrongly without a word: assign a buffer in place of
writing into it (self.n = self.n + 1), keep Python state from step to step, read all members at once.
"""

import copy
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ablate.data.splits import Batch
from ablate.model.models import Model
from ablate.model.parts import python_state
from ablate.phrases import said_by
from ablate.training.group import Alone, Mapped

NEAR = 1e-6  # relative, in float64: a method may compute in float32 inside


def why_not_mapped(models: Sequence[Model], batches: Iterable[Batch]) -> str | None:
    """The reason why these models, of which two are tried, can't be computed as one; None if they can.

    batches: a few, each part with a row for each of the two. Computes on copies, in float64.
    """
    wide = [copy.deepcopy(model).double() for model in models[:2]]
    mapped = Mapped([copy.deepcopy(model) for model in wide])
    alone = [Alone(model) for model in wide]
    for model in wide:
        model.use(product=torch.nn.functional.linear)  # oneDNN's takes float32 alone
    before = None
    for batch in batches:
        try:
            losses, grads = mapped.losses_and_gradients(batch)
        except Exception as error:  # whatever a method raises
            return f"it can't be mapped: {said_by(error)}"
        for row, one in enumerate(alone):
            rows = Batch._make(None if part is None else part[row : row + 1] for part in batch)
            loss, grad = one.losses_and_gradients(rows)
            pairs = [(losses[row], loss[0]), (grads[row], grad[0])]
            pairs += [(buffer[row], one.buffers[name]) for name, buffer in mapped.buffers.items()]
            if not all(_near(*pair) for pair in pairs):
                return "its mapped steps part from plain ones"
        now = python_state(mapped.model)
        if now != (before := before or now):  # the first step may fill a cache
            return "it keeps Python state from step to step, which is no member's; make it a buffer"
    return None


def _near(a: Tensor, b: Tensor) -> bool:
    if a.numel() == 0:
        return True
    a, b = a.double(), b.double()
    return bool((a - b).abs().max() <= NEAR * b.abs().max() + torch.finfo(torch.float64).tiny)
