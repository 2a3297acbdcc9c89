"""Record what the heads of a model compute on some rows of tokens.

legend: B rows, T positions of the queries, S of the keys and values, H heads, V value width of a
head, C model width.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ablate.data.splits import Batch
from ablate.model.attention import Attention
from ablate.model.blocks import Model, Site
from ablate.model.hooks import inputs_of_attention
from ablate.model.layers import Linear, LowRank


@dataclass(frozen=True)
class Heads:
    """The heads of one attention, in float64.

    site: which attention it is. patterns: A_BHTS. read: their outputs before fusion, z_BTHV. written: what
    each head adds to the residual stream, (B, T, H, C), through the readout without its bias. fused: what all
    heads together add, (B, T, C). exact: whether `written` sums to `fused`; otherwise it is the change when a
    head is replaced by its mean (Fusion.contributions). fuse: computes `fused` from other heads, z_BTHV ->
    (B, T, C). real: (B, T), true where a position is no padding.
    """

    site: Site
    patterns: Tensor
    read: Tensor
    written: Tensor
    fused: Tensor
    exact: bool
    fuse: Callable[[Tensor], Tensor]
    real: Tensor


@torch.no_grad()
def look(model: Model, batch: Batch) -> list[Heads]:
    """The heads of each attention. The model is not changed."""
    inputs = inputs_of_attention(model, batch.inputs, batch.source)
    found = []
    for site, (x_BTC, source_BSC, filled_BS) in zip(model.sites(), inputs, strict=True):
        attention = site.attention
        read_BTHV = attention.read(x_BTC, source_BSC, filled_BS)
        fuse = functools.partial(_fused, attention, x_BTC)
        found.append(
            Heads(
                site=site,
                patterns=attention.probabilities(x_BTC, source_BSC, filled_BS),
                read=read_BTHV,
                written=without_bias(attention.out_proj, attention.fusion.contributions(read_BTHV, x_BTC)),
                fused=fuse(read_BTHV),
                exact=attention.fusion.adds_up,
                fuse=fuse,
                real=real_at(site, batch),
            )
        )
    return found


@torch.no_grad()
def _fused(attention: Attention, x_BTC: Tensor, read_BTHV: Tensor) -> Tensor:
    return without_bias(attention.out_proj, attention.fusion(read_BTHV, x_BTC))


@torch.no_grad()
def patterns(model: Model, batch: Batch) -> list[Tensor]:
    """The patterns of each attention, A_BHTS, which is cheaper than `look`."""
    inputs = inputs_of_attention(model, batch.inputs, batch.source)
    return [site.attention.probabilities(*given) for site, given in zip(model.sites(), inputs, strict=True)]


def real_at(site: Site, batch: Batch) -> Tensor:
    """(B, T), true where a query of this attention is no padding. In a row with targets at some positions
    only, all positions after the last of them count as padding."""
    if site.kind == "encoder":
        assert batch.source is not None, "an encoder has a source"
        return batch.source >= 0
    B, T = batch.inputs.shape
    if batch.asked is None:
        return torch.ones(B, T, dtype=torch.bool)
    asked_BT = torch.zeros(B * T, dtype=torch.bool).index_fill(0, batch.asked, True).view(B, T)
    return asked_BT.flip(1).cummax(1).values.flip(1)


def without_bias(readout: torch.nn.Module, x: Tensor) -> Tensor:
    """x through out_proj without its bias, which belongs to no head."""
    if isinstance(readout, LowRank):
        return without_bias(readout.up, without_bias(readout.down, x))
    return x @ readout.weight.T if isinstance(readout, Linear) else x
