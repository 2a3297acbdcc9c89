import math
from typing import Any

from ablate.config.rules import ConfigError
from ablate.lazy import Tensor, torch
from ablate.model.attend import Mask, masked_softmax
from ablate.model.parts import HeadShape, Options
from ablate.model.scores import Scores, register
from ablate.model.spec import STD


@register("differential")
class Differential(Scores):
    """The difference of two softmaxes, A = (1 − λ_0)(A_1 − λ A_2), each of half the channels of queries and
    keys: A_i = softmax(√2 · scale · Q_i K_iᵀ). A pattern may have negative entries.

    λ = exp(a_1·b_1) − exp(a_2·b_2) + λ_0, with vectors that all heads of a layer share and that are drawn
    from N(0, 0.1²), and λ_0 = 0.8 − 0.6 exp(−0.3 (layer − 1)). The published norm of each head is
    fusion=head_norm fusion.gain=differential, on which the factor 1 − λ_0 here has no effect. See: Ye et al.,
    "Differential transformer", arXiv 2410.05258.
    """

    scale_folds = order_free = True

    def __init__(self, shape: HeadShape, options: Options) -> None:
        super().__init__(shape, options)
        from ablate.model.layers import Linear  # which loads torch

        self.vectors = Linear(shape.key_width // 2, 4, bias=False, scale=0.1 / STD)  # a_1, b_1, a_2, b_2

    @classmethod
    def check(cls, shape: HeadShape, options: Any) -> None:
        parts = 4 if shape.rotary else 2
        if shape.key_width % parts:
            how = "halves the channels of queries and keys" + (", which are turned" if shape.rotary else "")
            raise ConfigError(
                f"scores=differential: it {how}, and a head has {shape.key_width}; use"
                f" key_width={-(-shape.key_width // parts) * parts}"
            )

    @classmethod
    def count_params(cls, shape: HeadShape, options: Any) -> int:
        return shape.key_width // 2 * 4

    @classmethod
    def count_flops_per_source(cls, shape: HeadShape, options: Any) -> int:
        return 2 * shape.heads * shape.value_width  # the values are read twice

    def before_rotary(self, q_BHTK: Tensor, k_BHSK: Tensor) -> tuple[Tensor, Tensor]:
        """Each half of the channels as a head of its own: first all first halves, then all second ones."""
        q, k = (torch.cat(x.chunk(2, -1), 1) for x in (q_BHTK, k_BHSK))
        return q, k

    def forward(self, q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, mask: Mask, dropout: float) -> Tensor:
        scale = math.sqrt(2) * self.shape.scale
        return self._difference(self.attend(q_BHTK, k_BHSK, v_BHSV.repeat(1, 2, 1, 1), mask, dropout, scale))

    def probabilities(self, q_BHTK: Tensor, k_BHSK: Tensor, mask: Mask) -> Tensor:
        return self._difference(masked_softmax(math.sqrt(2) * self.shape.scale * q_BHTK @ k_BHSK.mT, mask))

    def _difference(self, of_halves: Tensor) -> Tensor:
        """(1 − λ_0)(first − λ second) of what the patterns of both halves give."""
        wide = self.vectors.weight.to(torch.promote_types(self.vectors.weight.dtype, torch.float32))
        start, (a_1, b_1, a_2, b_2) = self.shape.differential_start, wide.unbind()
        share = (a_1 @ b_1).exp() - (a_2 @ b_2).exp() + start
        first, second = of_halves.chunk(2, 1)
        return (1 - start) * (first - share.to(first.dtype) * second)
