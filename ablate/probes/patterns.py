"""What attention patterns look like, and how far those of two heads differ.

A pattern has a row for each position, of weights over the positions up to it that add up to 1. The first row
is 1 whatever the head does, so it is left out. `but_first` leaves out the first position too: heads with
nothing to look for often look there.

legend: B rows of text, H heads, T positions of the queries, S of the keys.
"""

import numpy as np
import torch
from torch import Tensor

from ablate.data.tasks.base import distinct
from ablate.probes.apart import effective_rank, over_others


def entropies(patterns_BHTS: Tensor, *, but_first: bool = False) -> list[float]:
    """Of each head: −Σ A log A as a share of what it is where all that is seen weighs the same."""
    rows, seen_T = _rows(patterns_BHTS, but_first=but_first)
    nats = -torch.special.xlogy(rows, rows).sum(-1)
    return _mean(nats / seen_T.log())


def distances(patterns_BHTS: Tensor, *, but_first: bool = False) -> list[float]:
    """Of each head: how far back it looks, Σ A_ts (t − s), as a multiple of what it is where all that is seen
    weighs the same."""
    rows, seen_T = _rows(patterns_BHTS, but_first=but_first)
    place = torch.arange(rows.shape[-1], dtype=rows.dtype)
    back_TS = place[1:, None] - place
    return _mean((rows * back_TS).sum(-1) / ((seen_T - 1) / 2))


def first_position(patterns_BHTS: Tensor) -> list[float]:
    """Of each head: the weight on position 0."""
    return _mean(patterns_BHTS[:, :, 1:, 0])


def previous(patterns_BHTS: Tensor) -> list[float]:
    """Of each head: the weight on the position before."""
    return _mean(patterns_BHTS.diagonal(-1, 2, 3))


def induction(patterns_BHTS: Tensor) -> list[float]:
    """Of each head, on rows that are a random text of T/2 tokens twice: the weight, in the second half, on
    what came after the same token in the first. See: Olsson et al., 2022."""
    half = patterns_BHTS.shape[-1] // 2
    second = patterns_BHTS[:, :, half:, :]
    return _mean(second.diagonal(1, 2, 3))


def twice(vocab: int, context: int, rows: int, draws: np.random.Generator) -> Tensor:
    """(rows, 2·(context // 2)) tokens for `induction`: half of them, different ones if there are enough,
    twice."""
    half = context // 2
    once = draws.integers(vocab, size=(rows, half)) if vocab < half else distinct(draws, rows, vocab, half)
    once = torch.from_numpy(once)
    return torch.cat([once, once], 1)


def divergences(patterns_BHTS: Tensor) -> list[float]:
    """Of each head, the mean over the others of `divergence`. Empty for one head."""
    return over_others(divergence(patterns_BHTS))


def divergence(patterns_BHTS: Tensor) -> np.ndarray:
    """(H, H) Jensen-Shannon divergence of the rows of two heads, a mean in nats: 0 for equal patterns, log 2
    for those that never look at the same."""
    rows = patterns_BHTS[:, :, 1:]
    H = rows.shape[1]
    entropy = -torch.special.xlogy(rows, rows).sum(-1)
    pairs = torch.zeros(H, H, dtype=rows.dtype)
    for head in range(H):
        middle = (rows + rows[:, head : head + 1]) / 2
        mixed = -torch.special.xlogy(middle, middle).sum(-1)
        apart = mixed - (entropy + entropy[:, head : head + 1]) / 2
        pairs[head] = apart.mean((0, 2))
    return pairs.numpy()


def pattern_rank(patterns_BHTS: Tensor) -> float:
    """How many different patterns the heads have: the effective rank of what they add to the uniform one."""
    T = patterns_BHTS.shape[-1]
    uniform = torch.ones(T, T, dtype=patterns_BHTS.dtype).tril()
    beside = (patterns_BHTS - uniform / uniform.sum(-1, keepdim=True)).transpose(0, 1).flatten(1)
    return effective_rank(torch.linalg.eigvalsh(beside @ beside.T).numpy())


def _rows(patterns_BHTS: Tensor, *, but_first: bool) -> tuple[Tensor, Tensor]:
    """Rows with a choice, renormalized over what they may choose from, and how many positions these are."""
    skipped = 1 if but_first else 0
    rows = patterns_BHTS[:, :, 1 + skipped :, skipped:]
    if but_first:
        rows = rows / rows.sum(-1, keepdim=True).clamp_min(1e-12)
    return rows, torch.arange(2, rows.shape[-2] + 2, dtype=rows.dtype)


def _mean(x_BHT: Tensor) -> list[float]:
    return x_BHT.mean((0, 2)).tolist()
