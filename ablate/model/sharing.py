"""Which heads share an attention pattern, and which values each pattern reads.

A rule on scores computes a pattern from one set of queries and one set of keys. Heads with equal queries,
keys and rule share a pattern, which is computed once; it may read the values of several heads, concatenated.
See: Shazeer, "Fast transformer decoding: one write-head is all you need", 2019; Ainslie et al., "GQA", 2023.

legend: B batch, T time, H heads, P patterns, n values that a pattern reads, K key width, V value width.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ablate.model import scores
from ablate.model.spec import AttentionSpec, HeadShape


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


def head_shape(spec: AttentionSpec) -> HeadShape:
    """The sizes that the parts of this attention are given."""
    inside = spec.scale in ("inside", "both") and spec.key_width > 0
    return HeadShape(
        heads=spec.heads,
        key_width=spec.key_width,
        value_width=spec.value_width,
        d_model=spec.d_model,
        patterns=sharing(spec).heads,
        scale=1 / math.sqrt(spec.key_width) if inside else 1.0,
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
        self.each = shared.each
        self.query_heads, self.key_heads, self.value_heads = (
            spec.query_heads,
            spec.key_heads,
            spec.value_heads,
        )
        self.key_width, self.value_width = spec.key_width, spec.value_width
        self._index("of_queries", shared.queries, spec.query_heads)
        self._index("of_keys", shared.keys, spec.key_heads)
        self._index("of_values", shared.values, spec.value_heads)
        self._index("of_heads", shared.reads, len(shared.values))
        self._index("of_patterns", [place // shared.each for place in shared.reads], len(shared.heads))

    def queries(self, q_BTX: Tensor) -> Tensor:
        """The queries of each pattern, q_BPTK, from the projection of all of them."""
        return _picked(
            q_BTX.unflatten(-1, (self.query_heads, self.key_width)).transpose(1, 2), self.of_queries
        )

    def keys(self, k_BSX: Tensor) -> Tensor:
        """The keys of each pattern, k_BPSK."""
        return _picked(k_BSX.unflatten(-1, (self.key_heads, self.key_width)).transpose(1, 2), self.of_keys)

    def values(self, v_BSX: Tensor) -> Tensor:
        """The values that each pattern reads, concatenated: (B, P, S, n·V)."""
        v = _picked(v_BSX.unflatten(-1, (self.value_heads, self.value_width)).transpose(1, 2), self.of_values)
        return v.unflatten(1, (-1, self.each)).transpose(2, 3).flatten(3)

    def heads(self, read: Tensor) -> Tensor:
        """The outputs of the heads, z_BTHV, from those of the patterns, (B, P, T, n·V)."""
        z = read.unflatten(-1, (self.each, self.value_width)).transpose(1, 2).flatten(2, 3)
        return z if self.of_heads is None else z.index_select(2, self.of_heads)

    def patterns(self, patterns_BPTS: Tensor) -> Tensor:
        """The pattern of each head: A_BHTS."""
        return _picked(patterns_BPTS, self.of_patterns)

    def _index(self, name: str, places: Sequence[int], count: int) -> None:
        """Store `places` as an index buffer, or None if they are all of `count` in order."""
        as_they_are = [*places] == [*range(count)]
        self.register_buffer(name, None if as_they_are else torch.tensor(places), persistent=False)


def _picked(x: Tensor, index: Tensor | None) -> Tensor:
    """The indexed entries of dimension 1."""
    return x if index is None else x.index_select(1, index)
