"""What is computed otherwise within torch.func.vmap: softmax attention, as rows of a batch, and products."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.compute.arithmetic import onednn
from ablate.model.attend import FORMULATIONS, by_kernel, fused, in_float32


class _Folded(torch.autograd.Function):
    """Has a rule for vmap alone: autograd sees the call of the kernel that it makes. PyTorch's rule fails in
    float32 on a GPU."""

    @staticmethod
    def forward(q: Tensor, *rest: Any) -> Tensor:
        raise NotImplementedError("it is called within torch.func.vmap")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def vmap(
        info: Any,
        in_dims: Sequence[int | None],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        visible: Tensor | None,
        dropout: float,
        causal: bool,
        scale: float,
    ) -> tuple[Tensor, int]:
        members = info.batch_size
        rows = (
            x.expand(members, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip((q, k, v), in_dims, strict=False)
        )
        q, k, v = (x.flatten(0, 1) for x in rows)
        read = F.scaled_dot_product_attention(q, k, v, visible, dropout, causal, scale=scale)
        return read.unflatten(0, (members, -1)), 0


def _kernel(*inputs: Any, scale: float) -> Tensor:
    return _Folded.apply(*inputs, scale)  # pyright: ignore[reportReturnType]


folded = by_kernel(_kernel)
# What takes the place of a formulation, or of a product, within torch.func.vmap.
MAPPED: dict[Any, Any] = {fused: folded, FORMULATIONS["float32"]: in_float32(folded), onednn: F.linear}
