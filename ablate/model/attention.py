"""Multi-head attention up to the seam, the fusion of its heads, and the readout.

legend: B batch, T time of the queries, S time of the keys and values, H heads, K key width,
V value width, C model width, F fused width.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model import fusion
from ablate.model.layers import Linear
from ablate.model.masks import CAUSAL, EVERYTHING, Mask
from ablate.model.spec import AttentionSpec


def attend(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, mask: Mask, dropout: float = 0.0) -> Tensor:
    """softmax(QKᵀ/√K) V over what the mask lets each query see, for each head: (B, H, T, V).

    Raises ValueError for a mask that does not fit T and S.
    """
    T, S = q_BHTK.shape[-2], k_BHSK.shape[-2]
    if mask == CAUSAL and T == S:  # the same, by a kernel that builds no mask
        return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSV, dropout_p=dropout, is_causal=True)
    visible_TS = None if mask == EVERYTHING else mask.visible(T, S, q_BHTK.device)
    return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSV, attn_mask=visible_TS, dropout_p=dropout)


def form(spec: AttentionSpec) -> str:
    """The function that attention is from the same start, as its parts declare it (Fusion.form)."""
    method, options = fusion.method_of(spec.fusion)
    return method.form(spec.heads, options)


class Attention(nn.Module):
    """readout(fusion(heads)). The readout is out_proj, or nothing.

    Queries, keys and values have a weight each, so that a width changes one of them only. What writes into
    the residual stream starts at spec.residual_scale; without out_proj the values carry that.
    """

    def __init__(self, spec: AttentionSpec, mask: Mask) -> None:
        super().__init__()
        C, H, K, V = spec.d_model, spec.heads, spec.key_width, spec.value_width
        method, options = fusion.method_of(spec.fusion)
        fused = method.slots(H, options) * V
        assert spec.out_proj or fused == C, "sizing lets no other width into the residual stream"
        self.heads, self.dropout, self.mask = H, spec.dropout, mask
        self.query = Linear(C, H * K, bias=spec.bias)
        self.key = Linear(C, H * K, bias=spec.bias)
        self.value = Linear(C, H * V, bias=spec.bias, scale=1.0 if spec.out_proj else spec.residual_scale)
        self.fusion = method(spec.shape, options)
        self.out_proj = (
            Linear(fused, C, bias=spec.bias, scale=spec.residual_scale) if spec.out_proj else nn.Identity()
        )
        self.attend = attend

    def forward(self, x_BTC: Tensor, source_BSC: Tensor) -> Tensor:
        """x_BTC asks, source_BSC answers; self-attention gives the same tensor twice."""
        q_BHTK = self._split(self.query(x_BTC))
        k_BHSK = self._split(self.key(source_BSC))
        v_BHSV = self._split(self.value(source_BSC))
        z_BHTV = self.attend(q_BHTK, k_BHSK, v_BHSV, self.mask, self.dropout if self.training else 0.0)
        return self.out_proj(self.fusion(z_BHTV.transpose(1, 2), x_BTC))

    def _split(self, heads_BTX: Tensor) -> Tensor:
        return heads_BTX.unflatten(-1, (self.heads, -1)).transpose(1, 2)
