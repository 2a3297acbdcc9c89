from ablate.lazy import Tensor
from ablate.model.attend import Mask, visible_under
from ablate.model.scores import Scores, register


@register("uniform")
class Uniform(Scores):
    """All visible positions have equal weight: A_ts = 1/|visible to t|, in causal attention a running mean.

    There are no queries and no keys, and all heads have one pattern. The advantage of softmax over it is the
    gain from choosing where to look.
    See: Zhang et al., "Accelerating neural transformer via an average attention network", arXiv 1805.00631.
    """

    compares = False
    sums_to_one = order_free = True

    def probabilities(self, q_BHTK: Tensor, k_BHSK: Tensor, mask: Mask) -> Tensor:
        T, S = q_BHTK.shape[-2], k_BHSK.shape[-2]
        visible = visible_under(mask, T, S, q_BHTK.device).to(q_BHTK.dtype)
        return (visible / visible.sum(-1, keepdim=True)).expand(*q_BHTK.shape[:2], T, S)
