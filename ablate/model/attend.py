"""Softmax attention in two formulations, which compute the same and differ in speed.

PyTorch's fused kernel never holds a whole pattern; the unfused one is products and a softmax. In bfloat16 on
a CPU the fused one can take five times its float32 time, which nobody can know without timing it.

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
    """softmax(scale·QKᵀ) V over what the mask lets each query see, for each pattern: (B, P, T, W).

    Raises ValueError for a mask that does not fit T and S.
    """
    T, S = q_BPTK.shape[-2], k_BPSK.shape[-2]
    if mask == CAUSAL and T == S:  # the same, by a kernel that builds no mask
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
    """The same, by way of the whole pattern."""
    return F.dropout(masked_softmax(scale * q_BPTK @ k_BPSK.mT, mask), dropout) @ v_BPSW


def masked_softmax(scores_BPTS: Tensor, mask: Mask) -> Tensor:
    """Softmax over what the mask lets each query see; 0 elsewhere."""
    if mask == EVERYTHING:
        return torch.softmax(scores_BPTS, -1)
    T, S = scores_BPTS.shape[-2:]
    hidden = _hidden.__wrapped__ if torch.compiler.is_compiling() else _hidden  # compiled, it costs nothing
    return torch.softmax(scores_BPTS + hidden(mask, T, S, scores_BPTS.dtype, scores_BPTS.device), -1)


@functools.lru_cache(maxsize=64)
def _hidden(mask: Mask, T: int, S: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """What is added to scores: −∞ where the mask shows nothing, else 0. Remembered, as a step asks for it in
    every layer."""
    visible = mask.visible(T, S, device)
    return torch.zeros(visible.shape, dtype=dtype, device=device).masked_fill(~visible, float("-inf"))


FORMULATIONS: dict[str, Attend] = {"fused": fused, "unfused": unfused}
