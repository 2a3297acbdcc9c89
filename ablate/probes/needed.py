"""How much the loss depends on each head: without it, and by its gradient.

A head is removed by replacing its output by its mean over all tokens (mean ablation), since the layers above
have never seen zero. Effects of single heads do not add up: of two heads that do the same, each can be
spared. See: Michel, Levy and Neubig, "Are sixteen heads really better than one?", 2019.

legend: B rows, T positions, L layers, H heads, F fused width.
"""

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ablate.data.splits import Batch
from ablate.model.lm import LM


@contextlib.contextmanager
def deviating(model: LM, factors: Callable[[int], Tensor]) -> Iterator[None]:
    """Inside the block, the deviation of head h in layer l from its mean is multiplied by factors(l)[…, h]: 1
    leaves the head unchanged, 0 removes it. factors(l): (H,), or (B, H) with factors for each row.

    The mean is over the tokens that the model is given. For a fusion that does not add heads up,
    contributions are already relative to the mean.
    """

    def changed(layer: int) -> Callable[..., Tensor]:
        def hook(fusion, given: tuple[Tensor, Tensor], fused_BTF: Tensor) -> Tensor:
            each_BTHF = fusion.contributions(*given)
            if fusion.adds_up:
                each_BTHF = each_BTHF - each_BTHF.mean((0, 1), keepdim=True)
            more = (factors(layer) - 1).unsqueeze(-1)
            more = more.unsqueeze(-3) if more.dim() == 3 else more
            return fused_BTF + (more * each_BTHF).sum(-2)

        return hook

    hooks = [
        block.attention.fusion.register_forward_hook(changed(layer))
        for layer, block in enumerate(model.blocks)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def loss_without(model: LM, batch: Batch, removed: set[tuple[int, int]]) -> float:
    """The mean loss with these heads, (layer, head), removed."""
    factors = _all(model)
    for layer, head in removed:
        factors[layer][head] = 0
    with deviating(model, factors.__getitem__):
        return model.loss(*batch).item()


def loss_added(model: LM, batch: Batch) -> list[list[float]]:
    """By layer and head: the increase of the loss when the head is removed."""
    whole = loss_without(model, batch, set())
    return [
        [loss_without(model, batch, {(layer, head)}) - whole for head in range(len(factors))]
        for layer, factors in enumerate(_all(model))
    ]


def sensitivity(model: LM, batch: Batch) -> list[list[float]]:
    """By layer and head: the mean over rows of |∂ loss of the row / ∂ factor of the head|, a proxy of
    loss_added that takes one backward pass."""
    rows = len(batch.inputs)
    factors = [torch.ones(rows, len(layer), dtype=layer.dtype, requires_grad=True) for layer in _all(model)]
    with deviating(model, factors.__getitem__):
        loss = model.loss(*batch) * rows  # the sum over rows of their means, if all have as many targets
    grads = torch.autograd.grad(loss, factors)
    return [grad.abs().mean(0).tolist() for grad in grads]


def pruned(model: LM, batch: Batch) -> Iterator[tuple[int, int, float]]:
    """(layer, head, loss after it): remove one head after the other, each time the one whose removal gives
    the lowest loss."""
    left = {(layer, head) for layer, factors in enumerate(_all(model)) for head in range(len(factors))}
    removed: set[tuple[int, int]] = set()
    while left:
        loss, (layer, head) = min((loss_without(model, batch, removed | {one}), one) for one in sorted(left))
        left.remove((layer, head))
        removed.add((layer, head))
        yield layer, head, loss


def gradient_norms(model: LM, batch: Batch) -> list[dict[str, float]]:
    """By layer: the norms of the loss's gradient in the weights of queries, keys, values and out_proj, as far
    as they exist."""
    names = ("query", "key", "value", "out_proj")
    params = [
        {name: [*getattr(block.attention, name).parameters()] for name in names} for block in model.blocks
    ]
    flat = [param for layer in params for part in layer.values() for param in part]
    grads = dict(zip(map(id, flat), torch.autograd.grad(model.loss(*batch), flat), strict=True))
    return [
        {
            name: sum(grads[id(param)].square().sum().item() for param in part) ** 0.5
            for name, part in layer.items()
            if part
        }
        for layer in params
    ]


def _all(model: LM) -> list[Tensor]:
    """A factor of 1 for each head, by layer."""
    weight = next(model.parameters())
    return [torch.ones(block.attention.spec.heads, dtype=weight.dtype) for block in model.blocks]
