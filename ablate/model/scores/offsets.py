from typing import Any

from ablate.lazy import Tensor, torch
from ablate.model.attend import Mask, visible_under
from ablate.model.parts import HeadShape, constant
from ablate.model.scores import Scores, register


@register("offsets")
class Offsets(Scores):
    """Head i reads the token i places back, A_ts = 1 for s = t − i, counting heads from 1; nothing where the
    text has not begun.

    There are no queries and no keys: nothing is learned about where to look. What softmax gains over it is
    the gain from looking at more than fixed places.
    See: Raganato et al., "Fixed encoder self-attention patterns in transformer-based machine translation",
    arXiv 2002.10260.
    """

    compares = False

    def __init__(self, shape: HeadShape, options: Any) -> None:
        super().__init__(shape, options)
        self.offsets = tuple(range(1, shape.heads + 1))

    def probabilities(self, q_BHTK: Tensor, k_BHSK: Tensor, mask: Mask) -> Tensor:
        T, S = q_BHTK.shape[-2], k_BHSK.shape[-2]
        read_HTS = _places_back(self.offsets, T, S, q_BHTK.device) & visible_under(mask, T, S, q_BHTK.device)
        return read_HTS.to(q_BHTK.dtype).expand(len(q_BHTK), -1, T, S)


@constant
def _places_back(offsets: tuple[int, ...], T: int, S: int, device: "torch.device") -> Tensor:
    """(H, T, S) booleans: whether s is that many places before t."""
    back_TS = torch.arange(T, device=device)[:, None] - torch.arange(S, device=device)
    return back_TS == torch.tensor(offsets, device=device)[:, None, None]
