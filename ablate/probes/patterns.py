"""Record what the heads of a model compute on some rows of tokens; probes of their patterns: the shape, and
how much those of two heads differ.

A pattern has a row for each position: weights over the positions up to it, which sum to 1. The first row is
always 1, so it is left out. Where a rule may weigh below 0, as talking and differential, rows have another
sum, and entropy and divergence, which have no meaning then, are left out.

legend: B rows of text, T positions of the queries, S of the keys and values, H heads, V value width of a
head, C model width.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ablate.data.corpora import distinct
from ablate.data.splits import Batch
from ablate.model.attention import Attention
from ablate.model.fusion import Fusion
from ablate.model.models import Model, Site, inputs_of_attention

ROUNDING = 1e-9  # in float64, relative to the largest entry


@dataclass(frozen=True)
class Heads:
    """The heads of one attention, in float64.

    site: which attention it is. read: their outputs before fusion, z_BTHV. written: what each head adds to
    the residual stream, (B, T, H, C), through out_proj without its bias (`contribution`). fused: what all
    heads together add, (B, T, C). fuse: computes `fused` from other heads, z_BTHV -> (B, T, C). real: (B, T),
    true where a position is no padding.
    """

    site: Site
    read: Tensor
    written: Tensor
    fused: Tensor
    fuse: Callable[[Tensor], Tensor]
    real: Tensor

    @property
    def exact(self) -> bool:
        """Whether what heads write sums to what all of them add, as where a fusion adds heads up."""
        off = (self.written.sum(2) - self.fused).abs().max()
        return bool(off <= ROUNDING * self.fused.abs().max())


@torch.no_grad()
def look(model: Model, batch: Batch) -> list[Heads]:
    """The heads of each attention. The model is not changed."""
    inputs = inputs_of_attention(model, batch.inputs, batch.source)
    seen = []
    for site, (x_BTC, source_BSC, padding_mask_BS) in zip(model.sites(), inputs, strict=True):
        attention = site.attention
        look = attention.look(x_BTC, source_BSC, padding_mask_BS)
        given, H = (look.heads_BTHV, *look.inputs), look.heads_BTHV.shape[-2]
        each = [contribution(attention.fusion, look.fused_BTF, head, *given) for head in range(H)]
        seen.append(
            Heads(
                site=site,
                read=look.heads_BTHV,
                written=without_bias(attention.out_proj, torch.stack(each, -2)),
                fused=without_bias(attention.out_proj, look.fused_BTF),
                fuse=functools.partial(_fused, attention, look.inputs),
                real=real_at(site, batch),
            )
        )
    return seen


def contribution(fusion: Fusion, fused_BTF: Tensor, head: int, z_BTHV: Tensor, *others: Tensor) -> Tensor:
    """What the fused vector lacks without a head, (B, T, F): what it is, less what it is with that head at 0.
    Where heads are added up, this is the head's own term. others: what else the fusion is given."""
    fuse: Callable[..., Tensor] = fusion.forward  # without hooks, one of which may have called this
    is_other_H1 = (torch.arange(z_BTHV.shape[-2]) != head)[:, None]
    return fused_BTF - fuse(z_BTHV * is_other_H1, *others)


@torch.no_grad()
def _fused(attention: Attention, inputs: tuple[Tensor, ...], read_BTHV: Tensor) -> Tensor:
    return without_bias(attention.out_proj, attention.fusion(read_BTHV, *inputs))


@torch.no_grad()
def patterns_of(model: Model, batch: Batch) -> list[Tensor]:
    """The patterns of each attention, A_BHTS."""
    inputs = inputs_of_attention(model, batch.inputs, batch.source)
    return [
        site.attention.look(*given).patterns_BHTS for site, given in zip(model.sites(), inputs, strict=True)
    ]


def real_at(site: Site, batch: Batch) -> Tensor:
    """(B, T), true where a query of this attention is no padding. In a row with targets at some positions
    only, all positions after the last of them count as padding."""
    if site.kind == "encoder":
        assert batch.source is not None, "an encoder has a source"
        return batch.source >= 0
    B, T = batch.inputs.shape
    if batch.target_positions is None:
        return torch.ones(B, T, dtype=torch.bool)
    target_BT = torch.zeros(B * T, dtype=torch.bool).index_fill(0, batch.target_positions, True).view(B, T)
    return target_BT.flip(1).cummax(1).values.flip(1)


def without_bias(out_proj: torch.nn.Module, x: Tensor) -> Tensor:
    """x, (…, F), through out_proj, less its bias, which belongs to no head: (…, C)."""
    rows = x.reshape(1, -1, x.shape[-1])
    return (out_proj(rows) - out_proj(torch.zeros_like(rows[:, :1]))).reshape(*x.shape[:-1], -1)


# --- probes of patterns ----------------------------------------------------------------------------


def previous(patterns_BHTS: Tensor) -> list[float]:
    """For each head, the mean weight on the position before."""
    return over_positions(patterns_BHTS.diagonal(-1, 2, 3))


def induction(patterns_BHTS: Tensor) -> list[float]:
    """For each head, the mean weight in the second half on the token that followed the same token in the
    first half. The rows have to be a random text of T/2 tokens twice (`twice`)."""
    half = patterns_BHTS.shape[-1] // 2
    second = patterns_BHTS[:, :, half:, :]
    return over_positions(second.diagonal(1, 2, 3))


def twice(vocab: int, context: int, rows: int, draws: np.random.Generator) -> Tensor:
    """Rows for `induction`, (rows, 2·(context // 2)): random tokens, distinct if there are enough, twice."""
    half = context // 2
    once = draws.integers(vocab, size=(rows, half)) if vocab < half else distinct(draws, rows, vocab, half)
    once = torch.from_numpy(once)
    return torch.cat([once, once], 1)


def over_positions(x_BHT: Tensor) -> list[float]:
    """The mean of each head."""
    return x_BHT.mean((0, 2)).tolist()


def entropies(patterns_BHTS: Tensor) -> list[float]:
    """For each head, the mean entropy −Σ A log A, relative to that of uniform weights; NaN if a weight is
    below 0 or weights do not add up to 1."""
    rows = distributions(patterns_BHTS)[:, :, 1:]
    seen_T = torch.arange(2, rows.shape[-1] + 1, dtype=rows.dtype)
    nats = -torch.special.xlogy(rows, rows).sum(-1)
    return over_positions(nats / seen_T.log())


def distances(patterns_BHTS: Tensor) -> list[float]:
    """For each head, how far back it looks, Σ A_ts (t − s), relative to uniform weights; NaN if weights do
    not add up to 1."""
    rows = distributions(patterns_BHTS)[:, :, 1:]
    place = torch.arange(rows.shape[-1], dtype=rows.dtype)
    back_TS = place[1:, None] - place
    return over_positions((rows * back_TS).sum(-1) / (place[1:] / 2))


def divergences(patterns_BHTS: Tensor) -> list[float]:
    """For each head, the mean Jensen-Shannon divergence between its rows and those of the others, in nats: 0
    for equal patterns, log 2 for heads that never look at the same positions; NaN if a weight is below 0
    or weights do not add up to 1. Empty for one head."""
    rows = distributions(patterns_BHTS)[:, :, 1:]
    H = rows.shape[1]
    entropy = -torch.special.xlogy(rows, rows).sum(-1)
    pairs = torch.zeros(H, H, dtype=rows.dtype)
    for head in range(H):
        middle = (rows + rows[:, head : head + 1]) / 2
        mixed = -torch.special.xlogy(middle, middle).sum(-1)
        apart = mixed - (entropy + entropy[:, head : head + 1]) / 2
        pairs[head] = apart.mean((0, 2))
    return [] if H < 2 else ((pairs.sum(1) - pairs.diag()) / (H - 1)).tolist()


def distributions(patterns_BHTS: Tensor) -> Tensor:
    """The patterns, with NaN in rows whose weights add up neither to 1 nor, as where a head reads nothing, to
    0."""
    sums = patterns_BHTS.sum(-1, keepdim=True)
    is_one = torch.isclose(sums, torch.ones_like(sums), rtol=0, atol=1e-5)
    return patterns_BHTS.where(is_one | (sums == 0), torch.nan)
