import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model.attend import Mask, masked_softmax
from ablate.model.parts import Options
from ablate.model.scores.base import Scores, register
from ablate.model.spec import HeadShape


@register("qk_norm")
class QKNorm(Scores):
    """Softmax of normalized queries and keys: q ← γ_q ⊙ RMSNorm(q), k ← γ_k ⊙ RMSNorm(k).

    γ_q and γ_k, (K,), are shared by the heads and start at 1. Scores depend on directions only, so they can't
    grow with W_Q and W_K. See: Dehghani et al., "Scaling vision transformers to 22 billion parameters", 2023.
    """

    sums_to_one = order_free = True

    def __init__(self, shape: HeadShape, options: Options) -> None:
        super().__init__(shape, options)
        self.query_gain = nn.Parameter(torch.ones(shape.key_width))
        self.key_gain = nn.Parameter(torch.ones(shape.key_width))

    def prepared(self, q_BPTK: Tensor, k_BPSK: Tensor) -> tuple[Tensor, Tensor]:
        width = (self.shape.key_width,)
        return F.rms_norm(q_BPTK, width, self.query_gain), F.rms_norm(k_BPSK, width, self.key_gain)

    def forward(self, q_BPTK: Tensor, k_BPSK: Tensor, v_BPSW: Tensor, mask: Mask, dropout: float) -> Tensor:
        return self.attend(q_BPTK, k_BPSK, v_BPSW, mask, dropout, self.shape.scale)

    def probabilities(self, q_BPTK: Tensor, k_BPSK: Tensor, mask: Mask) -> Tensor:
        return masked_softmax(self.shape.scale * q_BPTK @ k_BPSK.mT, mask)
