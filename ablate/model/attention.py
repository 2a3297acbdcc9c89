"""Causal multi-head attention up to the seam, the fusion of its heads, and the readout.

legend: B batch, T time of the queries, S time of the keys and values, H heads, K key width,
V value width, C model width, F fused width.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from ablate.model import fusion
from ablate.model.layers import Linear
from ablate.model.spec import ModelSpec


def causal_attention(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSV: Tensor, dropout: float = 0.0) -> Tensor:
    """softmax(QKᵀ/√K + causal mask) V for each head: (B, H, T, V)."""
    return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSV, dropout_p=dropout, is_causal=True)


class Attention(nn.Module):
    """readout(fusion(heads)). The readout is out_proj, or nothing.

    Queries, keys and values have a weight each, so that a width changes one of them only. GPT-2 starts
    what writes into the residual stream at 1/√(2·layers); without out_proj the values carry that.
    """

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        C, H, K, V = spec.d_model, spec.heads, spec.key_width, spec.value_width
        method, options = fusion.method_of(spec.fusion)
        fused = method.slots(H, options) * V
        assert spec.out_proj or fused == C, "sizing lets no other width into the residual stream"
        residual_scale = (2 * spec.layers) ** -0.5
        self.heads, self.dropout = H, spec.dropout
        self.query = Linear(C, H * K, bias=spec.bias)
        self.key = Linear(C, H * K, bias=spec.bias)
        self.value = Linear(C, H * V, bias=spec.bias, scale=1.0 if spec.out_proj else residual_scale)
        self.fusion = fusion.build(spec)
        self.out_proj = (
            Linear(fused, C, bias=spec.bias, scale=residual_scale) if spec.out_proj else nn.Identity()
        )
        self.attend = causal_attention

    def forward(self, x_BTC: Tensor, source_BSC: Tensor) -> Tensor:
        """x_BTC asks, source_BSC answers; self-attention gives the same tensor twice."""
        q_BHTK = self._split(self.query(x_BTC))
        k_BHSK = self._split(self.key(source_BSC))
        v_BHSV = self._split(self.value(source_BSC))
        z_BHTV = self.attend(q_BHTK, k_BHSK, v_BHSV, self.dropout if self.training else 0.0)
        return self.out_proj(self.fusion(z_BHTV.transpose(1, 2), x_BTC))

    def _split(self, heads_BTX: Tensor) -> Tensor:
        return heads_BTX.unflatten(-1, (self.heads, -1)).transpose(1, 2)
