"""Multi-head attention: projections, a rule on scores, the fusion of the heads, and the readout (out_proj).

A rule on scores computes a pattern from one set of queries and one set of keys. Heads with equal queries,
keys and rule share a pattern, which is computed once; it may read the values of several heads, concatenated.
See: Shazeer, "Fast transformer decoding: one write-head is all you need", 2019; Ainslie et al., "GQA", 2023.

legend: B batch, T time of the queries, S time of the keys and values, H heads, P patterns, n values that a
pattern reads, K key width, V value width, C model width, F fused width.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ablate.model import fusion, readout, scores
from ablate.model.attend import Mask, PaddingMask
from ablate.model.latent import FromLatent, Latent
from ablate.model.layers import STD, Linear, LowRank, Nothing, Times
from ablate.model.parts import Part
from ablate.model.position import Rotary
from ablate.model.spec import AttentionSpec, HeadShape


def form(spec: AttentionSpec) -> str:
    """The form of the attention's fusion: equal forms compute the same function (Fusion.form)."""
    method, options = fusion.method_of(spec.fusion)
    return method.form(spec.heads, options)


def parts_of(spec: AttentionSpec) -> list[tuple[type[Part], Any]]:
    """The classes of its exchangeable parts, each with its options."""
    parts: list[tuple[type[Part], Any]] = [scores.method_of(spec.scores), fusion.method_of(spec.fusion)]
    return parts + ([readout.method_of(spec.out_proj)] if isinstance(spec.out_proj, str) else [])


def check_parts(spec: AttentionSpec) -> None:
    """Raises ConfigError if a part does not fit these sizes."""
    shape = head_shape(spec)
    for part, options in parts_of(spec):
        part.check(shape, options)


def value_start(spec: AttentionSpec) -> float:
    """The factor on the initial weights of the values. Without out_proj they are the last projection before
    the residual stream. A readout in its place keeps sizes, and out_proj shrinks them by STD·√d_model."""
    if spec.out_proj is True:
        return 1.0
    return spec.residual_scale * (STD * spec.d_model**0.5 if spec.out_proj else 1.0)


@dataclass(frozen=True)
class Sharing:
    """P patterns, each of which reads n values.

    heads: (P,) the first head of each pattern. queries, keys: (P,) the sets it compares. values: (P·n,) the
    sets it reads; a pattern with fewer than n repeats its last. reads: (H,) the index into `values` of each
    head.
    """

    heads: tuple[int, ...]
    queries: tuple[int, ...]
    keys: tuple[int, ...]
    values: tuple[int, ...]
    reads: tuple[int, ...]

    @property
    def each(self) -> int:
        """n, the number of values that a pattern reads."""
        return len(self.values) // len(self.heads)


def sharing(spec: AttentionSpec) -> Sharing:
    method, options = scores.method_of(spec.scores)
    rules = method.rules(spec.heads, options)
    read: dict[tuple, dict[int, int]] = {}  # by pattern, its values and their places
    of_head, first = [], []
    for head in range(spec.heads):
        query, key, value = (
            head * count // spec.heads for count in (spec.query_heads, spec.key_heads, spec.value_heads)
        )
        pattern = (query, key, rules[head])
        if pattern not in read:
            first.append(head)
        places = read.setdefault(pattern, {})
        of_head.append((pattern, places.setdefault(value, len(places))))
    each = max(map(len, read.values()))
    start = {pattern: i * each for i, pattern in enumerate(read)}
    values = [[*places, *[[*places][-1]] * (each - len(places))] for places in read.values()]
    return Sharing(
        heads=tuple(first),
        queries=tuple(query for query, _, _ in read),
        keys=tuple(key for _, key, _ in read),
        values=tuple(value for of_pattern in values for value in of_pattern),
        reads=tuple(start[pattern] + place for pattern, place in of_head),
    )


def head_shape(spec: AttentionSpec, layer: int = 1) -> HeadShape:
    """The sizes that the parts of this attention are given."""
    method, options = fusion.method_of(spec.fusion)
    inside, shared = spec.scale in ("inside", "both") and spec.key_width > 0, sharing(spec)
    return HeadShape(
        heads=spec.heads,
        key_width=spec.key_width,
        value_width=spec.value_width,
        d_model=spec.d_model,
        patterns=shared.heads,
        scale=1 / math.sqrt(spec.key_width) if inside else 1.0,
        layer=layer,
        each=shared.each,
        fused=method.slots(spec.heads, options) * spec.value_width,
        turned=spec.turned,
    )


class Share(nn.Module):
    """Rearranges projections by pattern, and the outputs of patterns by head."""

    of_queries: Tensor | None
    of_keys: Tensor | None
    of_values: Tensor | None
    of_heads: Tensor | None
    of_patterns: Tensor | None

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__()
        shared = sharing(spec)
        self.spec, self.each = spec, shared.each
        self._index("of_queries", shared.queries, spec.query_heads)
        self._index("of_keys", shared.keys, spec.key_heads)
        self._index("of_values", shared.values, spec.value_heads)
        self._index("of_heads", shared.reads, len(shared.values))
        self._index("of_patterns", [place // shared.each for place in shared.reads], len(shared.heads))

    def queries(self, q_BTX: Tensor) -> Tensor:
        """The queries of each pattern, q_BPTK, from the projection of all of them."""
        return _picked(_sets(q_BTX, self.spec.query_heads, self.spec.key_width), self.of_queries)

    def keys(self, k_BSX: Tensor) -> Tensor:
        """The keys of each pattern, k_BPSK."""
        return _picked(_sets(k_BSX, self.spec.key_heads, self.spec.key_width), self.of_keys)

    def values(self, v_BSX: Tensor) -> Tensor:
        """The values that each pattern reads, concatenated: (B, P, S, n·V)."""
        v = _picked(_sets(v_BSX, self.spec.value_heads, self.spec.value_width), self.of_values)
        return v.unflatten(1, (-1, self.each)).transpose(2, 3).flatten(3)

    def own(self, v_BTX: Tensor) -> Tensor:
        """The values of each head: v_BTHV."""
        v = v_BTX.unflatten(-1, (self.spec.value_heads, -1))
        return v.repeat_interleave(self.spec.heads // self.spec.value_heads, 2)

    def heads(self, read: Tensor) -> Tensor:
        """The outputs of the heads, z_BTHV, from those of the patterns, (B, P, T, n·V)."""
        z = read.unflatten(-1, (self.each, self.spec.value_width)).transpose(1, 2).flatten(2, 3)
        return z if self.of_heads is None else z.index_select(2, self.of_heads)

    def patterns(self, patterns_BPTS: Tensor) -> Tensor:
        """The pattern of each head: A_BHTS."""
        return _picked(patterns_BPTS, self.of_patterns)

    def _index(self, name: str, places: Sequence[int], count: int) -> None:
        """Store `places` as an index buffer, or None if they are all of `count` in order."""
        as_they_are = [*places] == [*range(count)]
        self.register_buffer(name, None if as_they_are else torch.tensor(places), persistent=False)


class Attention(nn.Module):
    """readout(fusion(heads)), where the readout is out_proj, another part, or the identity.

    Queries, keys and values have separate weights, so that changing one width leaves the draws of the others
    alone. The last projection before the residual stream starts at spec.residual_scale: out_proj or, without
    it, the value projection (value_start).
    """

    def __init__(self, spec: AttentionSpec, mask: Mask, layer: int = 1) -> None:
        super().__init__()
        C, K, V = spec.d_model, spec.key_width, spec.value_width
        rule, rule_options = scores.method_of(spec.scores)
        method, options = fusion.method_of(spec.fusion)
        shape = head_shape(spec, layer)
        assert spec.out_proj or shape.fused == C, "sizing lets no other width into the residual stream"
        self.spec, self.mask = spec, mask
        self.query = Linear(C, spec.query_heads * K, bias=spec.bias) if K else Nothing()
        if not spec.query_proj:
            self.query = nn.Identity()
        if spec.kv_rank:
            self.latent = Latent(spec)
            self.key = FromLatent(spec, K - spec.rope_width, shared=True)
            self.value = FromLatent(spec, V, shared=False, start=value_start(spec))
        else:
            self.latent = nn.Identity()
            self.key = Linear(C, spec.key_heads * K, bias=spec.bias) if K and not spec.tie_qk else self.query
            sizes = (C, spec.value_heads * V)
            self.value = (
                Linear(*sizes, bias=spec.bias, scale=value_start(spec)) if spec.value_proj else nn.Identity()
            )
        self.share = Share(spec)
        self.scores = rule(shape, rule_options)
        still = K - spec.turned
        self.turn = Rotary(spec.rope_base or 0.0, still) if spec.turned else nn.Identity()
        self.gain = Times(spec.gain) if spec.gain != 1 else nn.Identity()
        self.fusion = method(shape, options)
        self.out_proj = _readout(shape, spec)

    def forward(self, x_BTC: Tensor, source_BSC: Tensor, padding_mask_BS: Tensor | None = None) -> Tensor:
        """x_BTC gives the queries, source_BSC the keys and values; in self-attention they are the same.
        padding_mask_BS: false where the source is padding; None if it has none."""
        held_BSX = self.latent(source_BSC)
        v_BSX = self.value(held_BSX)
        read_BTHV = self._read(x_BTC, held_BSX, v_BSX, padding_mask_BS)
        fused = self.fusion(read_BTHV, *self._besides(x_BTC, v_BSX))
        return self.out_proj(fused.to(x_BTC.dtype))  # where a method has buffers of a wider type

    def read(self, x_BTC: Tensor, source_BSC: Tensor, padding_mask_BS: Tensor | None = None) -> Tensor:
        """The output of each head before fusion: z_BTHV."""
        held_BSX = self.latent(source_BSC)
        return self._read(x_BTC, held_BSX, self.value(held_BSX), padding_mask_BS)

    def besides(self, x_BTC: Tensor) -> tuple[Tensor, ...]:
        """What the fusion gets besides the outputs of the heads: x_BTC, and v_BTHV if it reads values."""
        return self._besides(x_BTC, self.value(self.latent(x_BTC))) if self.fusion.reads_values else (x_BTC,)

    def _besides(self, x_BTC: Tensor, v_BTX: Tensor) -> tuple[Tensor, ...]:
        return (x_BTC, self.share.own(v_BTX)) if self.fusion.reads_values else (x_BTC,)

    def _read(self, x_BTC: Tensor, held_BSX: Tensor, v_BSX: Tensor, padding_mask_BS: Tensor | None) -> Tensor:
        q_BPTK, k_BPSK = self.compared(x_BTC, held_BSX)
        v_BPSW = self.share.values(v_BSX)
        dropout = self.spec.dropout if self.training else 0.0
        read = self.scores(q_BPTK, k_BPSK, v_BPSW, self._mask(padding_mask_BS), dropout).to(x_BTC.dtype)
        return self.gain(self.share.heads(read))

    def probabilities(
        self, x_BTC: Tensor, source_BSC: Tensor, padding_mask_BS: Tensor | None = None
    ) -> Tensor:
        """The attention pattern of each head, without dropout: A_BHTS."""
        compared = self.compared(x_BTC, self.latent(source_BSC))
        return self.share.patterns(self.scores.probabilities(*compared, self._mask(padding_mask_BS)))

    def shown(self, x_BTC: Tensor, source_BSC: Tensor, padding_mask_BS: Tensor | None = None) -> Tensor:
        """The patterns A_BHTS, for probes: NaN where they don't say all that heads read."""
        patterns_BHTS = self.probabilities(x_BTC, source_BSC, padding_mask_BS)
        return torch.full_like(patterns_BHTS, torch.nan) if self.scores.reads_more else patterns_BHTS

    def compared(self, x_BTC: Tensor, held_BSX: Tensor) -> tuple[Tensor, Tensor]:
        """The queries and keys of each pattern as its rule compares them: q_BPTK, k_BPSK. held_BSX: what keys
        are made of, self.latent(source_BSC)."""
        q_BPTK, k_BPSK = self.share.queries(self.query(x_BTC)), self.share.keys(self.key(held_BSX))
        q_BPTK, k_BPSK = self.scores.prepared(q_BPTK, k_BPSK)
        return self.turn(q_BPTK), self.turn(k_BPSK)

    def _mask(self, padding_mask_BS: Tensor | None) -> Mask:
        return self.mask if padding_mask_BS is None else PaddingMask(self.mask, padding_mask_BS)


def _readout(shape: HeadShape, spec: AttentionSpec) -> nn.Module:
    if isinstance(spec.out_proj, str):
        part, options = readout.method_of(spec.out_proj)
        return part(shape, options)
    if not spec.out_proj:
        return nn.Identity()
    sizes, common = (shape.fused, spec.d_model), {"bias": spec.bias, "scale": spec.residual_scale}
    return Linear(*sizes, **common) if spec.out_rank is None else LowRank(*sizes, spec.out_rank, **common)


def _sets(x_BTX: Tensor, count: int, width: int) -> Tensor:
    """Projections, set by set: (B, count, T, width)."""
    return x_BTX.unflatten(-1, (count, width)).transpose(1, 2)


def _picked(x: Tensor, index: Tensor | None) -> Tensor:
    """The indexed entries of dimension 1."""
    return x if index is None else x.index_select(1, index)
