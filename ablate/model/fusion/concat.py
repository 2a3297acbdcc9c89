from typing import Any

from ablate.lazy import Tensor
from ablate.model.fusion import Fusion, Normalized, always, register


@register("concat")
class Concat(Fusion):
    """Heads concatenated: fused = [z_1; …; z_H].

    With out_proj this is standard multi-head attention. Its variance already is that of one head, so
    normalize=variance changes nothing. See: Vaswani et al., "Attention is all you need", 2017.
    """

    Options = Normalized
    one_head_passes = homogeneous = True
    folds = always

    @classmethod
    def slots(cls, heads: int, options: Any) -> int:
        return heads

    @classmethod
    def form(cls, heads: int, options: Any) -> str:
        return "concat"

    def forward(self, z_BTHV: Tensor, x_BTC: Tensor) -> Tensor:
        return z_BTHV.flatten(-2)
