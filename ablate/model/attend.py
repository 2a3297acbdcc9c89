"""Softmax attention in two formulations that differ only in speed.

The fused one is PyTorch's kernel, which never stores a whole attention pattern; the unfused one is matrix
products and a softmax. In bfloat16 on a CPU the fused kernel can take five times as long as in float32, so
the choice has to be timed.

legend: B batch, T time of the queries, S time of the keys and values, P patterns, K key width, W width of all
values that a pattern reads.
"""

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.model.masks import CAUSAL, EVERYTHING, Mask

Attend = Callable[[Tensor, Tensor, Tensor, Mask, float, float], Tensor]


def fused(q_BPTK: Tensor, k_BPSK: Tensor, v_BPSW: Tensor, mask: Mask, dropout: float, scale: float) -> Tensor:
    """softmax(scale·QKᵀ) V for each pattern, over the positions that the mask shows: (B, P, T, W).

    Raises ValueError for a mask that does not fit T and S.
    """
    T, S = q_BPTK.shape[-2], k_BPSK.shape[-2]
    if mask == CAUSAL and T == S:  # the same result, from a kernel that needs no mask tensor
        return F.scaled_dot_product_attention(
            q_BPTK, k_BPSK, v_BPSW, dropout_p=dropout, is_causal=True, scale=scale
        )
    visible = None if mask == EVERYTHING else mask.visible(T, S, q_BPTK.device)
    return F.scaled_dot_product_attention(
        q_BPTK, k_BPSK, v_BPSW, attn_mask=visible, dropout_p=dropout, scale=scale
    )


def unfused(
    q_BPTK: Tensor, k_BPSK: Tensor, v_BPSW: Tensor, mask: Mask, dropout: float, scale: float
) -> Tensor:
    """As `fused`, but computes the whole pattern."""
    return F.dropout(masked_softmax(scale * q_BPTK @ k_BPSK.mT, mask), dropout) @ v_BPSW


def masked_softmax(scores_BPTS: Tensor, mask: Mask) -> Tensor:
    """Softmax over the positions that the mask shows to each query; 0 elsewhere."""
    if mask == EVERYTHING:
        return torch.softmax(scores_BPTS, -1)
    T, S = scores_BPTS.shape[-2:]
    # Not cached when compiled, where it is free, nor with padding, which differs between batches.
    hidden = _hidden if mask.constant and not torch.compiler.is_compiling() else _hidden.__wrapped__
    return torch.softmax(scores_BPTS + hidden(mask, T, S, scores_BPTS.dtype, scores_BPTS.device), -1)


@functools.lru_cache(maxsize=64)
def _hidden(mask: Mask, T: int, S: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The additive mask: 0, and the least number there is where the mask hides a position, so that a row that
    sees nothing stays finite. Cached, since every layer needs it in every step."""
    visible = mask.visible(T, S, device)
    zeros = torch.zeros(visible.shape, dtype=dtype, device=device)
    return zeros.masked_fill(~visible, torch.finfo(dtype).min)


FORMULATIONS: dict[str, Attend] = {"fused": fused, "unfused": unfused}
