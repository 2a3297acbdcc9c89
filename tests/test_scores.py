"""Each rule on scores against its formula, in float64, at sizes where a mask, a gain or a head can't hide."""

import pytest
import torch
from torch import Tensor

from ablate.model.scores import methods
from ablate.verify.attentions import Bench, relative_error

SIZES = [{}, {"T": 33, "H": 6, "V": 3, "C": 12}, {"B": 1, "T": 5, "H": 7, "K": 2, "V": 3, "C": 10}]


def softmax(b: Bench) -> tuple[Tensor, Tensor]:
    return b.out(b.concat), b.written(b.z, b.concat)


def talking(b: Bench) -> tuple[Tensor, Tensor]:
    """P_post softmax(P_pre Q Kᵀ)"""
    attention = b.attention(scores="talking")
    pre, post = (attention.get_parameter(f"scores.{name}") for name in ("pre", "post"))
    mixed = torch.einsum("ij,bjts->bits", pre, b.scores(attention))
    patterns = torch.einsum("ij,bjts->bits", post, b.patterns(mixed))
    return b.out(attention), b.written(b.heads(attention, patterns), attention)


def differential(b: Bench) -> tuple[Tensor, Tensor]:
    """(1 − λ_0)(A_1 − λ A_2) V, λ = exp(a_1 · b_1) − exp(a_2 · b_2) + λ_0, λ_0 = 0.2"""
    attention = b.attention(scores="differential")
    a_1, b_1, a_2, b_2 = attention.get_parameter("scores.vectors.weight")
    halves = [b.projected(attention, name, b.K).chunk(2, -1) for name in ("query", "key")]
    first, second = (b.patterns((b.K / 2) ** -0.5 * q @ k.mT) for q, k in zip(*halves, strict=True))
    patterns = 0.8 * (first - ((a_1 @ b_1).exp() - (a_2 @ b_2).exp() + 0.2) * second)
    return b.out(attention), b.written(b.heads(attention, patterns), attention)


def uniform(b: Bench) -> tuple[Tensor, Tensor]:
    """A running mean of the values."""
    attention = b.attention(scores="uniform")
    counts = torch.arange(1, b.T + 1, dtype=torch.float64)[:, None]
    means = b.projected(attention, "value", b.V).cumsum(-2) / counts
    return b.out(attention), b.written(means, attention)


def offsets(b: Bench) -> tuple[Tensor, Tensor]:
    """z_t of head i = v_(t−i), from 0 on."""
    attention = b.attention(scores="offsets")
    values = b.projected(attention, "value", b.V)
    shifted = [torch.nn.functional.pad(values[:, h], (0, 0, h + 1, 0))[:, : b.T] for h in range(b.H)]
    return b.out(attention), b.written(torch.stack(shifted, 1), attention)


def windows(b: Bench) -> tuple[Tensor, Tensor]:
    """softmax over |t − s| < w_i"""
    widths = [1 + head % b.T for head in range(b.H)]
    attention = b.attention(scores="windows", scores_windows=widths)
    every = torch.ones(b.T, b.T, dtype=torch.bool)
    hidden = torch.stack([~(every.tril() & every.triu(1 - width)) for width in widths])
    patterns = torch.softmax(b.scores(attention).masked_fill(hidden, -torch.inf), -1)
    return b.out(attention), b.written(b.heads(attention, patterns), attention)


def qk_norm(b: Bench) -> tuple[Tensor, Tensor]:
    """softmax((γ_q ⊙ q/|q|) · (γ_k ⊙ k/|k|) · √K)"""
    attention = b.attention(scores="qk_norm")
    q, k = (
        torch.nn.functional.normalize(b.projected(attention, name, b.K), dim=-1)
        * attention.get_parameter(f"scores.{name}_gain")
        for name in ("query", "key")
    )
    patterns = b.patterns(b.K**0.5 * q @ k.mT)
    return b.out(attention), b.written(b.heads(attention, patterns), attention)


BY_FORMULA = (softmax, talking, differential, uniform, offsets, windows, qk_norm)


def test_every_rule_has_its_formula():
    assert {*methods()} == {sides.__name__ for sides in BY_FORMULA}


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("sides", BY_FORMULA, ids=lambda sides: sides.__name__)
@torch.no_grad()
def test_by_formula(sides, sizes):
    assert relative_error(*sides(Bench(**sizes))) < 1e-10
