from ablate.lazy import Tensor, nn, torch
from ablate.model.parts import HeadShape, Options, without_length
from ablate.model.scores import register
from ablate.model.scores.softmax import Softmax


@register("qk_norm")
class QKNorm(Softmax):
    """Softmax of normalized queries and keys: q ← γ_q ⊙ RMSNorm(q), k ← γ_k ⊙ RMSNorm(k).

    γ_q and γ_k, (K,), are shared by the heads and start at 1. Scores depend on directions only, so they can't
    grow with W_Q and W_K. See: Dehghani et al., "Scaling vision transformers to 22 billion parameters", 2023.
    """

    sums_to_one = order_free = True

    def __init__(self, shape: HeadShape, options: Options) -> None:
        super().__init__(shape, options)
        self.query_gain = nn.Parameter(torch.ones(shape.key_width))
        self.key_gain = nn.Parameter(torch.ones(shape.key_width))

    @classmethod
    def count_params(cls, shape: HeadShape, options: Options) -> int:
        return 2 * shape.key_width

    def before_rotary(self, q_BHTK: Tensor, k_BHSK: Tensor) -> tuple[Tensor, Tensor]:
        return without_length(q_BHTK, self.query_gain), without_length(k_BHSK, self.key_gain)
