"""Record what the heads of a model compute on some rows of tokens.

legend: B rows, T positions, H heads, V value width of a head, C model width.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ablate.model.attention import Attention
from ablate.model.hooks import inputs_of_attention
from ablate.model.layers import Linear, LowRank
from ablate.model.lm import LM


@dataclass(frozen=True)
class Heads:
    """The heads of one layer, in float64.

    patterns: A_BHTT. read: their outputs before fusion, z_BTHV. written: what each head adds to the residual
    stream, (B, T, H, C), through the readout without its bias. fused: what all heads together add, (B, T, C).
    exact: whether `written` sums to `fused`; otherwise it is the change when a head is replaced by its mean
    (Fusion.contributions). fuse: computes `fused` from other heads, z_BTHV -> (B, T, C).
    """

    patterns: Tensor
    read: Tensor
    written: Tensor
    fused: Tensor
    exact: bool
    fuse: Callable[[Tensor], Tensor]


@torch.no_grad()
def look(model: LM, tokens_BT: Tensor) -> list[Heads]:
    """The heads of each layer. The model is not changed."""
    inputs = inputs_of_attention(model, tokens_BT)
    found = []
    for block, x_BTC in zip(model.blocks, inputs, strict=True):
        attention = block.attention
        read_BTHV = attention.read(x_BTC, x_BTC)
        fuse = functools.partial(_fused, attention, x_BTC)
        found.append(
            Heads(
                patterns=attention.probabilities(x_BTC, x_BTC),
                read=read_BTHV,
                written=without_bias(attention.out_proj, attention.fusion.contributions(read_BTHV, x_BTC)),
                fused=fuse(read_BTHV),
                exact=attention.fusion.adds_up,
                fuse=fuse,
            )
        )
    return found


@torch.no_grad()
def _fused(attention: Attention, x_BTC: Tensor, read_BTHV: Tensor) -> Tensor:
    return without_bias(attention.out_proj, attention.fusion(read_BTHV, x_BTC))


@torch.no_grad()
def patterns(model: LM, tokens_BT: Tensor) -> list[Tensor]:
    """The patterns of each layer, A_BHTT, which is cheaper than `look`."""
    inputs = inputs_of_attention(model, tokens_BT)
    return [block.attention.probabilities(x, x) for block, x in zip(model.blocks, inputs, strict=True)]


def without_bias(readout: torch.nn.Module, x: Tensor) -> Tensor:
    """x through out_proj without its bias, which belongs to no head."""
    if isinstance(readout, LowRank):
        return without_bias(readout.up, without_bias(readout.down, x))
    return x @ readout.weight.T if isinstance(readout, Linear) else x
