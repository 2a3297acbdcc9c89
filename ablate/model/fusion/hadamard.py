import math
from typing import Any

from ablate.config.rules import ConfigError
from ablate.lazy import Tensor, torch
from ablate.model.fusion import register
from ablate.model.fusion.concat import Concat
from ablate.model.parts import HeadShape, Options, constant


@register("hadamard")
class Hadamard(Concat):
    """Heads concatenated and mixed by a fixed Walsh–Hadamard matrix: fused = [z_1; …; z_H] · M/√F, where M
    has entries ±1.

    The matrix is orthogonal and has no parameters; F, the width of all heads, is a power of two. It is meant
    for out_proj=false, whose place it takes: each head writes into all channels, and nothing is learned about
    where. With out_proj it folds into that.
    See: Aggarwal and Kumar, "Rethinking attention output projection", arXiv 2603.08343.
    """

    Options = Options
    homogeneous = True

    @classmethod
    def form(cls, heads: int, options: Any) -> str:
        return cls.spelled(options)

    @classmethod
    def folds(cls, heads: int, options: Any) -> bool:
        return heads == 1

    @classmethod
    def check(cls, shape: HeadShape, options: Any) -> None:
        width = shape.heads * shape.value_width
        if width & (width - 1):
            key, by = ("model.d_model", 1) if width == shape.d_model else ("value_width", shape.heads)
            below = 2 ** (width.bit_length() - 1)
            fitting = [f"{key}={fit // by}" for fit in (below, 2 * below) if fit % by == 0]
            raise ConfigError(
                f"fusion={cls.name}: a Walsh–Hadamard matrix has a power of two of rows, and"
                f" heads={shape.heads} of value_width={shape.value_width} are {width} wide; use"
                f" {' or '.join(fitting) or 'a power of two of heads'}"
            )

    @classmethod
    def count_flops(cls, shape: HeadShape, options: Any) -> int:
        return 2 * (shape.heads * shape.value_width) ** 2

    def forward(self, z_BTHV: Tensor, x_BTC: Tensor) -> Tensor:
        joined_BTF = z_BTHV.flatten(-2)
        width = joined_BTF.shape[-1]
        return joined_BTF @ _signs(width, joined_BTF.dtype, joined_BTF.device) / math.sqrt(width)


@constant
def _signs(width: int, dtype: "torch.dtype", device: "torch.device") -> Tensor:
    """(F, F): the matrix M, by Sylvester's construction."""
    signs = torch.ones(1, 1, dtype=dtype, device=device)
    while len(signs) < width:
        signs = torch.cat([torch.cat([signs, signs], 1), torch.cat([signs, -signs], 1)])
    return signs
