"""Masks, which say what a query may see, and softmax attention under them in three formulations.

The formulations differ only in speed. The fused one is PyTorch's kernel, which never stores a whole attention
pattern; the unfused one is matrix products and a softmax. In bfloat16 on a CPU the fused kernel can take five
times as long as in float32, so the third calls it in float32. Attention is always given its mask explicitly.

legend: B batch, H heads, T time of the queries, S time of the keys and values, K key width, V value width.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from ablate.lazy import F, Tensor, torch
from ablate.model.parts import constant


class Mask(ABC):
    constant: bool = True  # whether the mask is the same for all batches with these T and S

    @abstractmethod
    def visible(self, queries: int, sources: int, device: "torch.device | None" = None) -> Tensor:
        """Booleans that broadcast to (B, H, T, S): whether the query at position t sees position s; (T, S) if
        they are the same for all rows and heads.

        Raises ValueError if the mask is undefined for these T and S.
        """


@dataclass(frozen=True)
class Causal(Mask):
    """s ≤ t: a position sees itself and all earlier ones."""

    def visible(self, queries: int, sources: int, device: "torch.device | None" = None) -> Tensor:
        if queries != sources:
            raise ValueError(
                f"a causal mask needs queries and keys at the same positions, not {queries} and {sources}"
                " of them; attention to another sequence takes EVERYTHING"
            )
        return torch.ones(queries, sources, dtype=torch.bool, device=device).tril()


@dataclass(frozen=True)
class Everything(Mask):
    """Every position sees every source."""

    def visible(self, queries: int, sources: int, device: "torch.device | None" = None) -> Tensor:
        return torch.ones(queries, sources, dtype=torch.bool, device=device)


@dataclass(frozen=True, eq=False)
class PaddingMask(Mask):
    """`mask`, with padding hidden. padding_mask_BS: false where the source is padding; true at least once per
    row."""

    mask: Mask
    padding_mask_BS: Tensor
    constant = False

    def visible(self, queries: int, sources: int, device: "torch.device | None" = None) -> Tensor:
        """(B, 1, T, S), or (B, 1, 1, S) if every query sees the same."""
        visible_B11S = self.padding_mask_BS[:, None, None]
        if self.mask == EVERYTHING:
            return visible_B11S
        return visible_B11S & self.mask.visible(queries, sources, device)


CAUSAL, EVERYTHING = Causal(), Everything()
Attend = Callable[[Tensor, Tensor, Tensor, Mask, float, float], Tensor]


def by_kernel(kernel: Callable[..., Tensor]) -> Attend:
    """softmax(scale·QKᵀ) V of each head, over the positions that the mask shows: (B, H, T, V). It raises
    ValueError for a mask that does not fit T and S."""

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float, scale: float) -> Tensor:
        T, S = q.shape[-2], k.shape[-2]
        if mask == CAUSAL and T == S:  # the same result, from a kernel that needs no mask tensor
            return kernel(q, k, v, None, dropout, True, scale=scale)
        visible = None if mask == EVERYTHING else visible_under(mask, T, S, q.device)
        return kernel(q, k, v, visible, dropout, False, scale=scale)

    return attend


# By name, since it loads torch.
fused = by_kernel(lambda *inputs, scale: F.scaled_dot_product_attention(*inputs, scale=scale))


def unfused(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, mask: Mask, dropout: float, scale: float
) -> Tensor:
    """As `fused`, but computes the whole pattern."""
    return F.dropout(masked_softmax(scale * q_BHTK @ k_BHSK.mT, mask), dropout) @ v_BHSV


def masked_softmax(scores_BHTS: Tensor, mask: Mask) -> Tensor:
    """Softmax over the positions that the mask shows to each query; 0 elsewhere."""
    if mask == EVERYTHING:
        return torch.softmax(scores_BHTS, -1)
    T, S = scores_BHTS.shape[-2:]
    hidden = _kept_hidden if mask.constant else _hidden  # padding differs between batches
    return torch.softmax(scores_BHTS + hidden(mask, T, S, scores_BHTS.dtype, scores_BHTS.device), -1)


def visible_under(mask: Mask, T: int, S: int, device: "torch.device") -> Tensor:
    """Mask.visible, made once where it is the same for all batches."""
    return _kept_visible(mask, T, S, device) if mask.constant else mask.visible(T, S, device)


def _hidden(mask: Mask, T: int, S: int, dtype: "torch.dtype", device: "torch.device") -> Tensor:
    """The additive mask: 0, and the least number there is where the mask hides a position, so that a row that
    sees nothing stays finite."""
    visible = mask.visible(T, S, device)
    zeros = torch.zeros(visible.shape, dtype=dtype, device=device)
    return zeros.masked_fill(~visible, torch.finfo(dtype).min)


_kept_hidden = constant(_hidden)
_kept_visible = constant(lambda mask, T, S, device: mask.visible(T, S, device))


def in_float32(attend: Attend) -> Attend:
    """As `attend`, computed in float32 and rounded once."""

    def rounded(q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float, scale: float) -> Tensor:
        return attend(q.float(), k.float(), v.float(), mask, dropout, scale).to(v.dtype)

    return rounded


FORMULATIONS: dict[str, Attend] = {"fused": fused, "unfused": unfused, "float32": in_float32(fused)}
