"""Multi-head attention: projections, a rule on scores, the fusion of the heads, and out_proj.

Several heads may share keys or values: head i has set ⌊i·count/heads⌋ of them.
See: Shazeer, "Fast transformer decoding: one write-head is all you need", 2019; Ainslie et al., "GQA", 2023.

legend: B batch, T time of the queries, S time of the keys and values, H heads, K key width, V value width,
C model width, F fused width.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ablate.model import fusion, scores
from ablate.model.attend import Mask, PaddingMask
from ablate.model.layers import Linear, LowRank, Nothing, Rotary
from ablate.model.spec import AttentionSpec


class Look(NamedTuple):
    """What one attention makes of an input, in the order of its equation.

    queries_BHTK, keys_BHSK: as its rule compares them. patterns_BHTS: without dropout; NaN where patterns
    don't say all that the heads read (Scores.reads_more). heads_BTHV: their outputs before fusion, z. inputs:
    what the fusion gets besides them. fused_BTF: what goes into out_proj.
    """

    queries_BHTK: Tensor
    keys_BHSK: Tensor
    patterns_BHTS: Tensor
    values_BHSV: Tensor
    heads_BTHV: Tensor
    inputs: tuple[Tensor, ...]
    fused_BTF: Tensor


class Attention(nn.Module):
    """out_proj(fusion(heads)), where out_proj may be left out.

    Queries, keys and values have separate weights, so that changing one width leaves the draws of the others
    alone. The last projection before the residual stream starts at spec.residual_scale: out_proj or, without
    it, the value projection (AttentionSpec.value_start).
    """

    def __init__(self, spec: AttentionSpec, mask: Mask, layer: int = 1) -> None:
        super().__init__()
        C, K, V = spec.d_model, spec.key_width, spec.value_width
        rule, rule_options = scores.method_of(spec.scores)
        method, options = fusion.method_of(spec.fusion)
        shape = spec.head_shape(layer)
        assert spec.out_proj or spec.fused_width == C, "sizing lets no other width into the residual stream"
        self.spec, self.mask = spec, mask
        self.query = Linear(C, spec.heads * K, bias=spec.bias) if K else Nothing()
        self.key = Linear(C, spec.key_heads * K, bias=spec.bias) if K and not spec.tie_qk else self.query
        self.value = Linear(C, spec.value_heads * V, bias=spec.bias, scale=spec.value_start)
        self.scores = rule(shape, rule_options)
        self.turn = Rotary(spec.rope_base or 0.0) if spec.rotary else nn.Identity()
        self.fusion = method(shape, options)
        self.out_proj = _out_proj(spec)

    def forward(self, x_BTC: Tensor, source_BSC: Tensor, padding_mask_BS: Tensor | None = None) -> Tensor:
        """x_BTC gives the queries, source_BSC the keys and values; in self-attention they are the same.
        padding_mask_BS: false where the source is padding; None if it has none."""
        v_BHSV, heads_BTHV = self._read(x_BTC, source_BSC, self._mask(padding_mask_BS))[2:]
        fused = self.fusion(heads_BTHV, *self._fusion_inputs(x_BTC, v_BHSV))
        return self.out_proj(fused.to(x_BTC.dtype))  # where a method has buffers of a wider type

    def look(self, x_BTC: Tensor, source_BSC: Tensor, padding_mask_BS: Tensor | None = None) -> Look:
        """What it makes of an input, as of `forward`, step by step."""
        mask = self._mask(padding_mask_BS)
        q_BHTK, k_BHSK, v_BHSV, heads_BTHV = self._read(x_BTC, source_BSC, mask)
        patterns_BHTS = self.scores.probabilities(q_BHTK, k_BHSK, mask)
        if self.scores.reads_more:
            patterns_BHTS = torch.full_like(patterns_BHTS, torch.nan)
        inputs = self._fusion_inputs(x_BTC, v_BHSV)
        fused_BTF = self.fusion(heads_BTHV, *inputs)
        return Look(q_BHTK, k_BHSK, patterns_BHTS, v_BHSV, heads_BTHV, inputs, fused_BTF)

    def _read(self, x_BTC: Tensor, source_BSC: Tensor, mask: Mask) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries and keys as the rule compares them, values, and the output of each head before fusion:
        q_BHTK, k_BHSK, v_BHSV, z_BTHV."""
        q_BHTK = self._by_head(self.query(x_BTC), self.spec.heads, self.spec.key_width)
        k_BHSK = self._by_head(self.key(source_BSC), self.spec.key_heads, self.spec.key_width)
        v_BHSV = self._by_head(self.value(source_BSC), self.spec.value_heads, self.spec.value_width)
        q_BHTK, k_BHSK = map(self.turn, self.scores.before_rotary(q_BHTK, k_BHSK))
        dropout = self.spec.dropout if self.training else 0.0
        z_BTHV = self.scores(q_BHTK, k_BHSK, v_BHSV, mask, dropout).to(x_BTC.dtype).transpose(1, 2)
        return q_BHTK, k_BHSK, v_BHSV, z_BTHV if self.spec.gain == 1 else self.spec.gain * z_BTHV

    def _fusion_inputs(self, x_BTC: Tensor, v_BHTV: Tensor) -> tuple[Tensor, ...]:
        """What the fusion gets besides the outputs of the heads: x_BTC, and v_BTHV if it reads values."""
        return (x_BTC, v_BHTV.transpose(1, 2)) if self.fusion.reads_values else (x_BTC,)

    def _by_head(self, x_BTX: Tensor, sets: int, width: int) -> Tensor:
        """What each head has of a projection to so many sets: (B, H, T, width)."""
        of_sets = x_BTX.unflatten(-1, (sets, width)).transpose(1, 2)
        heads = self.spec.heads
        return of_sets if sets == heads else of_sets.repeat_interleave(heads // sets, 1)

    def _mask(self, padding_mask_BS: Tensor | None) -> Mask:
        return self.mask if padding_mask_BS is None else PaddingMask(self.mask, padding_mask_BS)


def _out_proj(spec: AttentionSpec) -> nn.Module:
    if not spec.out_proj:
        return nn.Identity()
    sizes, common = (spec.fused_width, spec.d_model), {"bias": spec.bias, "scale": spec.residual_scale}
    return Linear(*sizes, **common) if spec.out_rank is None else LowRank(*sizes, spec.out_rank, **common)
