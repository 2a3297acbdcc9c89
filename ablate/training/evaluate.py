"""Scores of models on a split.

legend: M members, K positions with a target, J all targets of the split, N vocabulary.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from ablate import rng
from ablate.data.splits import Split
from ablate.training.events import Score
from ablate.training.group import Group

# Size of the widest activation of an evaluation pass, in numbers: a CPU is fastest while it fits the cache of
# a core (2 MiB; a fifth slower at four times that), a GPU needs many.
EVALUATION_NUMBERS = {"cpu": 2**19, "cuda": 2**26}


@torch.no_grad()
def scores(group: Group, split: Split, *, context: int, most: int | None = None) -> list[Score]:
    """Evaluate each member without dropout on a whole split or on `most` of its positions (Split.windows).
    What a method draws or keeps meanwhile leaves no trace."""
    model, members = group.model, len(group.models)
    device, dtype = (getattr(next(model.parameters()), of) for of in ("device", "dtype"))
    widest = max(len(weight) for weight in model.parameters() if weight.dim() == 2)
    windows = max(1, EVALUATION_NUMBERS[device.type] // (context * widest * members))
    rows, correct_M, exact_M = 0, np.zeros(members, int), np.zeros(members, int)
    nats = [np.empty((members, 0), np.float32)]
    wide = torch.promote_types(dtype, torch.float32)
    with in_eval_mode(model, lambda: group.buffers):
        for batch in split.windows(context=context, windows=windows, most=most):
            inputs, targets, positions, source = batch.to(device)
            wanted_K = targets.flatten() if positions is None else targets.flatten()[positions]
            wanted_MK = wanted_K.expand(members, -1)
            logits_MKN = group.logits(inputs, positions, source).reshape(members, len(wanted_K), -1)
            right_MK = logits_MKN.argmax(-1) == wanted_MK
            nats_MK = nn.functional.cross_entropy(
                logits_MKN.flatten(0, 1).to(wide), wanted_MK.flatten(), reduction="none"
            ).view(members, -1)
            nats.append(nats_MK.cpu().numpy())
            correct_M += right_MK.sum(1).cpu().numpy()
            if positions is not None:
                row_K = (positions // inputs.shape[1]).cpu()
                rows += len(row_K.unique())
                exact_M += [len(row_K.unique()) - len(row_K[~right_K].unique()) for right_K in right_MK.cpu()]
    nats_MJ = np.concatenate(nats, 1)
    return [
        Score(float(nats_J.sum(dtype=np.float64)), int(correct), len(nats_J), rows, int(exact), nats_J)
        for nats_J, correct, exact in zip(nats_MJ, correct_M, exact_M, strict=True)
    ]


@contextlib.contextmanager
def in_eval_mode(model: nn.Module, buffers: Callable[[], Mapping[str, Tensor]]) -> Iterator[None]:
    """The model in eval mode; afterwards its mode, these buffers and all random generators are as before."""
    was_training, before = model.training, {name: now.clone() for name, now in buffers().items()}
    model.eval()
    try:
        with rng.drawing(0, "eval", ""):
            yield
    finally:
        model.train(was_training)
        restore(before, buffers())


@torch.no_grad()
def restore(kept: Mapping[str, Tensor], current: Mapping[str, Tensor]) -> None:
    """Copy the tensors that were kept into the current ones of the same names."""
    for name, tensor in kept.items():
        if 0 not in current[name].stride():  # an expanded view, which a method can't write into either
            current[name].copy_(tensor)
