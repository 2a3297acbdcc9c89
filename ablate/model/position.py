"""How a model knows the order of its tokens: model.position.

- learned: a vector for each position is added to the embedding of its token. See: Radford et al., "Language
  models are unsupervised multitask learners", 2019.
- rope: queries and keys are turned by angles that grow with their position, so that a score depends on the
  content and the distance of two tokens alone. See: Su et al., "RoFormer", arXiv 2104.09864.
- none: nothing but the causal mask. See: Haviv et al., arXiv 2203.16634.

legend: B batch, H heads, T time, K key width.
"""

import torch
from torch import Tensor, nn

from ablate.model.constants import constant


class Rotary(nn.Module):
    """Turns x_BHTK: channels j and j + K/2 at position t are turned as a pair by the angle t · base^(−2j/K).

    A turn keeps lengths, and ⟨turn(q, t), turn(k, s)⟩ depends on t and s by t − s alone. Angles and products
    are at least in float32. K is even.
    """

    def __init__(self, base: float) -> None:
        super().__init__()
        self.base = base

    def forward(self, x_BHTK: Tensor, first: int = 0) -> Tensor:
        """first: the position of the first vector."""
        T, K = x_BHTK.shape[-2:]
        assert K % 2 == 0, "sizing and the rules on scores let no odd width be turned"
        dtype = torch.promote_types(x_BHTK.dtype, torch.float32)
        cos_TK, sin_TK = _turns(first, T, K, self.base, dtype, x_BHTK.device)
        low, high = x_BHTK.to(dtype).chunk(2, -1)
        turned = torch.cat([low * cos_TK - high * sin_TK, high * cos_TK + low * sin_TK], -1)
        return turned.to(x_BHTK.dtype)


@constant
def _turns(first: int, T: int, K: int, base: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(2, T, K/2): cos and sin of the angle of each position and pair."""
    rates = base ** -(torch.arange(0, K, 2, device=device).to(dtype) / K)
    angles = torch.outer(torch.arange(first, first + T, device=device).to(dtype), rates)
    return torch.stack([angles.cos(), angles.sin()])
