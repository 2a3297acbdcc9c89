"""How a model knows the order of its tokens: model.position.

- learned: a vector for each position is added to the embedding of its token. See: Radford et al., "Language
  models are unsupervised multitask learners", 2019.
- rope: queries and keys are turned by angles that grow with their position, so that a score depends on the
  content and the distance of two tokens alone. See: Su et al., "RoFormer", arXiv 2104.09864.
- none: nothing but the causal mask. See: Haviv et al., arXiv 2203.16634.

legend: B batch, P patterns, T time, K key width.
"""

import torch
from torch import Tensor, nn

from ablate.model.constants import constant


class Rotary(nn.Module):
    """Turns x_BPTK: channels j and j + K/2 at position t are turned as a pair by the angle t · base^(−2j/K).

    A turn keeps lengths, and ⟨turn(q, t), turn(k, s)⟩ depends on t and s by t − s alone. Angles and products
    are at least in float32. K is even. still: so many channels, the first ones, are not turned; K is without
    them.
    """

    def __init__(self, base: float, still: int = 0) -> None:
        super().__init__()
        self.base, self.still = base, still

    def forward(self, x_BPTK: Tensor, first: int = 0) -> Tensor:
        """first: the position of the first vector."""
        if self.still:
            still, x_BPTK = x_BPTK[..., : self.still], x_BPTK[..., self.still :]
            return torch.cat([still, Rotary(self.base)(x_BPTK, first)], -1)
        T, K = x_BPTK.shape[-2:]
        assert K % 2 == 0, "sizing and the rules on scores let no odd width be turned"
        dtype = torch.promote_types(x_BPTK.dtype, torch.float32)
        cos_TK, sin_TK = _turns(first, T, K, self.base, dtype, x_BPTK.device)
        low, high = x_BPTK.to(dtype).chunk(2, -1)
        turned = torch.cat([low * cos_TK - high * sin_TK, high * cos_TK + low * sin_TK], -1)
        return turned.to(x_BPTK.dtype)


@constant
def _turns(first: int, T: int, K: int, base: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(2, T, K/2): cos and sin of the angle of each position and pair."""
    rates = base ** -(torch.arange(0, K, 2, device=device).to(dtype) / K)
    angles = torch.outer(torch.arange(first, first + T, device=device).to(dtype), rates)
    return torch.stack([angles.cos(), angles.sin()])
