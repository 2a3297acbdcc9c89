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
from ablate.probes.patterns import real_at


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
    """Inside the block, which is for this batch, a head of this attention is at its mean over the tokens that
    the model is given, without padding. For a fusion that does not add heads up, contributions are already
    relative to the mean."""

    def hook(fusion, given: tuple[Tensor, Tensor], fused_BTF: Tensor) -> Tensor:
        each_BTHF = fusion.contributions(*given)
        if fusion.adds_up:
            each_BTHF = each_BTHF - each_BTHF[real_at(site, batch)].mean(0)
        return fused_BTF - each_BTHF[..., head, :]

    handle = site.attention.fusion.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
