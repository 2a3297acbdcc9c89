import math
from typing import Any

import torch
from torch import Tensor

from ablate.config.rules import ConfigError
from ablate.model.parts import Options
from ablate.model.readout.base import Readout, register
from ablate.model.spec import HeadShape


@register("hadamard")
class Hadamard(Readout):
    """A fixed Walsh–Hadamard matrix in place of out_proj: y = fused · H/√d_model, where H has entries ±1.

    It is orthogonal and has no parameters; the fused vector must be d_model wide, a power of two. See:
    Aggarwal and Kumar, "Rethinking attention output projection", arXiv 2603.08343.
    """

    invertible = True
    signs_CC: Tensor

    def __init__(self, shape: HeadShape, options: Options) -> None:
        super().__init__(shape, options)
        signs = torch.ones(1, 1)
        while len(signs) < shape.d_model:  # Sylvester's construction
            signs = torch.cat([torch.cat([signs, signs], 1), torch.cat([signs, -signs], 1)])
        self.register_buffer("signs_CC", signs, persistent=False)

    @classmethod
    def check(cls, shape: HeadShape, options: Any) -> None:
        d = shape.d_model
        if d & (d - 1):
            below = 2 ** (d.bit_length() - 1)
            raise ConfigError(
                f"out_proj={cls.name}: a Walsh–Hadamard matrix has a power of two of rows, and"
                f" model.d_model={d}; use model.d_model={below} or model.d_model={2 * below}"
            )
        if shape.fused != d:
            slots = shape.fused // shape.value_width
            fitting = "" if d % slots else f"value_width={d // slots} or "
            raise ConfigError(
                f"out_proj={cls.name}: it takes as many numbers as it gives, model.d_model={d}, and the fused"
                f" heads are {shape.fused}; use {fitting}out_proj=true"
            )

    @classmethod
    def count_flops(cls, shape: HeadShape, options: Any) -> int:
        return 2 * shape.fused * shape.d_model

    def forward(self, fused_BTF: Tensor) -> Tensor:
        return fused_BTF @ self.signs_CC.to(fused_BTF.dtype) / math.sqrt(self.shape.d_model)
