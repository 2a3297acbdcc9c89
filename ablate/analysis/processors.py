"""On which kinds of processors paired runs were made: one run has other losses on each kind, by as much as on
other seeds (docs/precision.md)."""

from collections.abc import Iterable

import numpy as np

from ablate.analysis.contrasts import Pair
from ablate.analysis.incomparable import Incomparable
from ablate.analysis.variants import Variants
from ablate.phrases import Doubt, counted, some


def kinds_of_pairs(variants: Variants, pairs: Iterable[Pair], *, mixed: bool) -> list[str]:
    """A line if runs of several kinds are compared, with the number of pairs over two kinds. Raises
    Incomparable, unless mixed, if a variant and its baseline have no kind in common."""
    kinds_CS, ran_CS = variants.processors, variants.ran
    apart, paired = 0, 0
    for variant, base in pairs:
        one, other = ({*kinds_CS[side][ran_CS[side]]} for side in (variant, base))
        if one and other and not one & other and not mixed:
            raise Incomparable(
                f"{variants.names[variant]} was trained on {some(sorted(one))}, its baseline"
                f" {variants.names[base]} on {some(sorted(other))}, so their difference is also one of"
                " processors; train one of them again where the other was (force=true), or allow it with"
                " --mixed"
            )
        both_S = ran_CS[variant] & ran_CS[base]
        paired += int(both_S.sum())
        apart += int((both_S & (kinds_CS[variant] != kinds_CS[base])).sum())
    kinds, counts = np.unique(kinds_CS[ran_CS].astype(str), return_counts=True)
    if len(kinds) < 2:
        return []
    runs = "; ".join(f"{kind}: {counted(count, 'run')}" for kind, count in zip(kinds, counts, strict=True))
    line = f"processors of {len(kinds)} kinds ({runs})"
    if not apart:
        return [f"{line}; each pair is of one kind"]
    pairs_apart = f"{apart} of {counted(paired, 'pair')}"
    return [
        Doubt(
            f"{line}; {pairs_apart} are over two kinds, which adds to their noise",
            f"{pairs_apart} over two kinds of processors",
        )
    ]
