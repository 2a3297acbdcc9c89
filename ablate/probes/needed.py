"""How much the loss depends on each head: without it, and by its gradient.

A head is removed by replacing its output by its mean over all tokens (mean ablation), since the layers above
have never seen zero. Effects of single heads do not add up: of two heads that do the same, each can be
spared. See: Michel, Levy and Neubig, "Are sixteen heads really better than one?", 2019.

A place is the index of an attention in `Model.sites` and the index of a head in it.

legend: B rows, T positions, H heads, F fused width.
"""

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ablate.data.splits import IGNORE_INDEX, Batch
from ablate.model.models import Model
from ablate.probes.patterns import real_at


@contextlib.contextmanager
def deviating(model: Model, factors: Callable[[int], Tensor], batch: Batch) -> Iterator[None]:
    """Inside the block, which is for this batch, the deviation of head h of attention a from its mean is
    multiplied by factors(a)[…, h]: 1 leaves the head unchanged, 0 removes it. factors(a): (H,), or (B, H)
    with factors for each row.

    The mean is over the tokens that the model is given, without padding. For a fusion that does not add heads
    up, contributions are already relative to the mean.
    """

    def changed(at: int, real_BT: Tensor) -> Callable[..., Tensor]:
        def hook(fusion, given: tuple[Tensor, Tensor], fused_BTF: Tensor) -> Tensor:
            each_BTHF = fusion.contributions(*given)
            if fusion.adds_up:
                each_BTHF = each_BTHF - each_BTHF[real_BT].mean(0)
            more = (factors(at) - 1).unsqueeze(-1)
            more = more.unsqueeze(-3) if more.dim() == 3 else more
            return fused_BTF + (more * each_BTHF).sum(-2)

        return hook

    hooks = [
        site.attention.fusion.register_forward_hook(changed(at, real_at(site, batch)))
        for at, site in enumerate(model.sites())
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def without(model: Model, batch: Batch, removed: set[tuple[int, int]]) -> contextlib.AbstractContextManager:
    """Inside the block, which is for this batch, the heads at these places are removed."""
    factors = _all(model)
    for at, head in removed:
        factors[at][head] = 0
    return deviating(model, factors.__getitem__, batch)


@torch.no_grad()
def loss_without(model: Model, batch: Batch, removed: set[tuple[int, int]]) -> float:
    """The mean loss with the heads at these places removed."""
    with without(model, batch, removed):
        return model.loss(*batch).item()


def loss_added(model: Model, batch: Batch) -> list[list[float]]:
    """By attention and head: the increase of the loss when the head is removed."""
    whole = loss_without(model, batch, set())
    return [
        [loss_without(model, batch, {(at, head)}) - whole for head in range(len(factors))]
        for at, factors in enumerate(_all(model))
    ]


def sensitivity(model: Model, batch: Batch) -> list[list[float]]:
    """By attention and head: the mean over rows of |∂ loss of the row / ∂ factor of the head|, a proxy of
    loss_added that takes one backward pass."""
    targets_R1 = batch.targets.ne(IGNORE_INDEX).sum(1, keepdim=True)
    factors = [
        torch.ones(len(targets_R1), len(each), dtype=each.dtype, requires_grad=True) for each in _all(model)
    ]
    with deviating(model, factors.__getitem__, batch):
        loss = model.loss(*batch) * targets_R1.sum()  # the sum over targets
    grads_RH = torch.autograd.grad(loss, factors)
    return [(grad / targets_R1).abs().mean(0).tolist() for grad in grads_RH]


def pruned(model: Model, batch: Batch) -> Iterator[tuple[int, int, float]]:
    """(attention, head, loss after it): remove one head after the other, each time the one whose removal
    gives the lowest loss. Each kind of attention is pruned separately, with the others whole."""
    sites = model.sites()
    for kind in dict.fromkeys(site.kind for site in sites):
        left = {
            (at, head)
            for at, factors in enumerate(_all(model))
            for head in range(len(factors))
            if sites[at].kind == kind
        }
        removed: set[tuple[int, int]] = set()
        while left:
            loss, one = min((loss_without(model, batch, removed | {one}), one) for one in sorted(left))
            left.remove(one)
            removed.add(one)
            yield *one, loss


def gradient_norms(model: Model, batch: Batch) -> list[dict[str, float]]:
    """By attention: the norms of the loss's gradient in the weights of queries, keys, values, the latent and
    out_proj, as far as they exist."""
    names = ("query", "key", "value", "latent", "out_proj")
    params = [
        {name: [*getattr(site.attention, name).parameters()] for name in names} for site in model.sites()
    ]
    flat = [param for each in params for part in each.values() for param in part]
    grads = dict(zip(map(id, flat), torch.autograd.grad(model.loss(*batch), flat), strict=True))
    return [
        {
            name: sum(grads[id(param)].square().sum().item() for param in part) ** 0.5
            for name, part in each.items()
            if part
        }
        for each in params
    ]


def _all(model: Model) -> list[Tensor]:
    """A factor of 1 for each head of each attention."""
    weight = next(model.parameters())
    return [torch.ones(site.attention.spec.heads, dtype=weight.dtype) for site in model.sites()]
