"""Whether models can be computed as one, or a step be captured: first steps are tried on copies.

What a method of one's own may do that is computed wrongly then, without a word: assign a buffer in place of
writing into it (self.n = self.n + 1), keep Python state from step to step, draw from a generator of the
process, read all members at once.
"""

import copy
import random
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from ablate import rng
from ablate.data.splits import Batch
from ablate.model.models import Model
from ablate.model.parts import python_state
from ablate.phrases import error_line
from ablate.training.evaluate import in_eval_mode
from ablate.training.group import Group, Mapped

NEAR = 1e-6  # relative, in float64: a method may compute in float32 inside
STATE = "a method keeps Python state from step to step; make it a buffer that is written in place"
DRAWS = "a method draws random numbers"


def why_not_mapped(models: Sequence[Model], batches: Iterable[Batch]) -> str | None:
    """The reason why these models, of which two are tried, can't be computed as one; None if they can.

    batches: a few, each part with a row for each of the two. Mapped steps and evaluations are held against
    plain ones, on copies, in float64.
    """
    try:
        with rng.drawing(0, "data", "tried"):
            wide = [copy.deepcopy(model).double() for model in models[:2]]
            for model in wide:
                model.use(product=torch.nn.functional.linear)  # others compute in float32
            mapped, alone = (
                Mapped([copy.deepcopy(model) for model in wide]),
                [Group([model]) for model in wide],
            )
            before = None
            for batch in batches:
                drawn = _drawn()
                results = _computed(mapped, batch)
                if drawn != _drawn():
                    return DRAWS
                for row, one in enumerate(alone):
                    rows = batch.each(lambda part, row=row: part[row : row + 1])
                    _looked(one, batch)  # once more than the mapped ones: a count of calls parts
                    plain = zip(results, _computed(one, rows, batch), strict=True)
                    pairs = [(of_all[row], of_one[0]) for of_all, of_one in plain]
                    pairs += [(buffer[row], one.buffers[name]) for name, buffer in mapped.buffers.items()]
                    if not all(_near(*pair) for pair in pairs):
                        return "its mapped steps part from plain ones"
                if (now := python_state(mapped.model)) != (before := before or now):  # a cache may be filled
                    return STATE
    except Exception as error:  # whatever a method raises
        return f"it can't be mapped: {error_line(error, {})}"
    return None


def why_not_captured(group: Group, batch: Batch) -> str | None:
    """The reason why steps of these models can't be replayed, whose methods keep or draw what a replay does
    not change; None if none is seen."""
    one, traces = Group([copy.deepcopy(group.models[0])]), []  # group.model may compute within vmap alone
    with rng.drawing(0, "data", "tried"):
        for _ in range(3):
            one.losses_and_gradients(batch.each(lambda part: part[:1]))
            places = [buffer.data_ptr() for buffer in one.buffers.values()]
            traces.append((python_state(one.model), places, _drawn()))
    _, before, after = traces  # the first call may fill a cache
    return None if before == after else DRAWS if before[2] != after[2] else STATE


def _computed(group: Group, batch: Batch, looked_at: Batch | None = None) -> list[Tensor]:
    """Losses, gradients and the logits of an evaluation, each with a row for each member."""
    losses_M, grads_MP = group.losses_and_gradients(batch)
    return [losses_M, grads_MP.clone(), _looked(group, looked_at or batch)]


@torch.no_grad()
def _looked(group: Group, batch: Batch) -> Tensor:
    """The logits of an evaluation of the first member's rows, which it reads twice."""
    inputs, _, positions, source = batch.each(lambda part: part[0])
    with in_eval_mode(group.model, lambda: group.buffers):
        group.logits(inputs, positions, source)
        return group.logits(inputs, positions, source)


def _drawn() -> str:
    """The state of the generators that a process shares."""
    of_torch = torch.get_rng_state().numpy().tobytes()
    if torch.cuda.is_initialized():
        of_torch += torch.cuda.get_rng_state().numpy().tobytes()
    return repr((of_torch, random.getstate(), np.random.get_state()))


def _near(a: Tensor, b: Tensor) -> bool:
    a, b = a.double(), b.double()
    most = b[b.isfinite()].abs().max() if b.isfinite().any() else torch.zeros(())
    return torch.allclose(a, b, rtol=0, atol=NEAR * float(most) + 1e-300, equal_nan=True)
