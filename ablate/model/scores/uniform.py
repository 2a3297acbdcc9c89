import torch.nn.functional as F
from torch import Tensor

from ablate.model.masks import Mask
from ablate.model.scores.base import Scores, register


@register("uniform")
class Uniform(Scores):
    """All visible positions have equal weight: A_ts = 1/|visible to t|, in causal attention a running mean.

    There are no queries and no keys, and all heads share one pattern. The advantage of softmax over it is the
    gain from choosing where to look.
    """

    compares = False

    def forward(self, q_BPTK: Tensor, k_BPSK: Tensor, v_BPSW: Tensor, mask: Mask, dropout: float) -> Tensor:
        return F.dropout(self.probabilities(q_BPTK, k_BPSK, mask), dropout) @ v_BPSW

    def probabilities(self, q_BPTK: Tensor, k_BPSK: Tensor, mask: Mask) -> Tensor:
        visible_TS = mask.visible(q_BPTK.shape[-2], k_BPSK.shape[-2], q_BPTK.device).to(q_BPTK.dtype)
        mean_TS = visible_TS / visible_TS.sum(-1, keepdim=True)
        return mean_TS.expand(*q_BPTK.shape[:2], *mean_TS.shape)
