"""Multi-head attention: projections, a rule on scores, the fusion of the heads, and the readout (out_proj).

legend: B batch, T time of the queries, S time of the keys and values, H heads, P patterns, n values that a
pattern reads, K key width, V value width, C model width, F fused width.
"""

from torch import Tensor, nn

from ablate.model import fusion, scores
from ablate.model.layers import Linear, LowRank, Nothing, Times
from ablate.model.masks import Filled, Mask
from ablate.model.sharing import Share, head_shape
from ablate.model.spec import AttentionSpec


def form(spec: AttentionSpec) -> str:
    """The form of the attention's fusion: equal forms compute the same function (Fusion.form)."""
    method, options = fusion.method_of(spec.fusion)
    return method.form(spec.heads, options)


class Attention(nn.Module):
    """readout(fusion(heads)), where the readout is out_proj or the identity.

    Queries, keys and values have separate weights, so that changing one width leaves the draws of the others
    alone. The last projection before the residual stream starts at spec.residual_scale: out_proj or, without
    it, the value projection.
    """

    def __init__(self, spec: AttentionSpec, mask: Mask) -> None:
        super().__init__()
        C, K, V = spec.d_model, spec.key_width, spec.value_width
        rule, rule_options = scores.method_of(spec.scores)
        method, options = fusion.method_of(spec.fusion)
        fused = method.slots(spec.heads, options) * V
        assert spec.out_proj or fused == C, "sizing lets no other width into the residual stream"
        self.spec, self.mask = spec, mask
        self.query = Linear(C, spec.query_heads * K, bias=spec.bias) if K else Nothing()
        self.key = Linear(C, spec.key_heads * K, bias=spec.bias) if K and not spec.tie_qk else self.query
        start = 1.0 if spec.out_proj else spec.residual_scale
        self.value = (
            Linear(C, spec.value_heads * V, bias=spec.bias, scale=start) if spec.value_proj else nn.Identity()
        )
        self.share = Share(spec)
        self.scores = rule(head_shape(spec), rule_options)
        self.gain = Times(spec.gain) if spec.gain != 1 else nn.Identity()
        self.fusion = method(head_shape(spec), options)
        self.out_proj = _readout(fused, spec)

    def forward(self, x_BTC: Tensor, source_BSC: Tensor, filled_BS: Tensor | None = None) -> Tensor:
        """x_BTC gives the queries, source_BSC the keys and values; in self-attention they are the same.
        filled_BS: true where the source is no padding; None if it has none."""
        return self.out_proj(self.fusion(self.read(x_BTC, source_BSC, filled_BS), x_BTC))

    def read(self, x_BTC: Tensor, source_BSC: Tensor, filled_BS: Tensor | None = None) -> Tensor:
        """The output of each head before fusion: z_BTHV."""
        q_BPTK, k_BPSK = self.compared(x_BTC, source_BSC)
        v_BPSW = self.share.values(self.value(source_BSC))
        dropout = self.spec.dropout if self.training else 0.0
        read = self.scores(q_BPTK, k_BPSK, v_BPSW, self._mask(filled_BS), dropout)
        return self.gain(self.share.heads(read))

    def probabilities(self, x_BTC: Tensor, source_BSC: Tensor, filled_BS: Tensor | None = None) -> Tensor:
        """The attention pattern of each head, without dropout: A_BHTS."""
        compared = self.compared(x_BTC, source_BSC)
        return self.share.patterns(self.scores.probabilities(*compared, self._mask(filled_BS)))

    def compared(self, x_BTC: Tensor, source_BSC: Tensor) -> tuple[Tensor, Tensor]:
        """The queries and keys of each pattern: q_BPTK, k_BPSK."""
        return self.share.queries(self.query(x_BTC)), self.share.keys(self.key(source_BSC))

    def _mask(self, filled_BS: Tensor | None) -> Mask:
        return self.mask if filled_BS is None else Filled(self.mask, filled_BS)


def _readout(fused: int, spec: AttentionSpec) -> nn.Module:
    if not spec.out_proj:
        return nn.Identity()
    if spec.out_rank is None:
        return Linear(fused, spec.d_model, bias=spec.bias, scale=spec.residual_scale)
    return LowRank(fused, spec.d_model, spec.out_rank, bias=spec.bias, scale=spec.residual_scale)
