"""How much the loss depends on each head: what is added to it without the head.

A head is removed by replacing its output by its mean over all tokens (mean ablation), since the layers above
have never seen zero. Effects of single heads do not add up: of two heads that do the same, each can be
spared. See: Michel, Levy and Neubig, "Are sixteen heads really better than one?", 2019.

legend: T positions, H heads, F fused width.
"""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from ablate.data.splits import Batch
from ablate.model.models import Model, Site
from ablate.probes.patterns import contribution, real_at


@torch.no_grad()
def loss_added(model: Model, batch: Batch) -> list[list[float]]:
    """By attention and head: the increase of the mean loss when the head is removed."""
    whole, added = model.loss(*batch).item(), list[list[float]]()
    for site in model.sites():
        added.append([])
        for head in range(site.attention.spec.heads):
            with without(site, head, batch):
                added[-1].append(model.loss(*batch).item() - whole)
    return added


@contextlib.contextmanager
def without(site: Site, head: int, batch: Batch) -> Iterator[None]:
    """Inside the block, which is for this batch, what a head of this attention contributes is at its mean
    over all tokens but padding."""

    def hook(fusion, given: tuple[Tensor, Tensor], fused_BTF: Tensor) -> Tensor:
        head_BTF = contribution(fusion, fused_BTF, head, *given)
        return fused_BTF - head_BTF + head_BTF[real_at(site, batch)].mean(0)

    handle = site.attention.fusion.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
