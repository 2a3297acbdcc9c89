from ablate.lazy import Tensor
from ablate.model.attend import Mask, masked_softmax
from ablate.model.scores import Scores, register


@register("softmax")
class Softmax(Scores):
    """A = softmax(scale·QKᵀ). See: Vaswani et al., "Attention is all you need", 2017."""

    scale_folds = sums_to_one = order_free = bilinear = True

    def forward(self, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, mask: Mask, dropout: float) -> Tensor:
        return self.attend(q_BHTK, k_BHSK, v_BHSV, mask, dropout, self.shape.scale)

    def probabilities(self, q_BHTK: Tensor, k_BHSK: Tensor, mask: Mask) -> Tensor:
        return masked_softmax(self.shape.scale * q_BHTK @ k_BHSK.mT, mask)
