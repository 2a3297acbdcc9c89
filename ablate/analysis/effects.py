"""The interaction of heads and output projection: weighted sums of variants, tested over seeds.

An interaction is the mean, over blocks of four variants, of a difference of differences: one number per seed,
with a t-interval over seeds.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.analysis.contrasts import own_values
from ablate.analysis.controls import more_diverged, otherwise_equal
from ablate.analysis.variant import varying
from ablate.analysis.variants import Variants
from ablate.config.contrast import Contrast
from ablate.config.schema import STANDARD_FUSION

Block = tuple[tuple[int, ...], tuple[int, ...]]  # the variants with weight +1, and those with weight −1


def projection_and_heads(variants: Variants, contrasts: Sequence[Contrast], *, alpha: float) -> pd.DataFrame:
    """Whether many heads need the projection: (L_h − L_1)_off − (L_h − L_1)_on for concat, one row per h and
    setting of all else, such as the steps; empty if no contrast is about one of them.

    The fewest heads in the rows, few, take the place of 1. Columns: effect, blocks, few, n (seeds), diff, sd,
    low, high (simultaneous; these rows are a family of their own), low_marginal, high_marginal, p, p_holm.
    more_diverged: on how many more seeds one variant diverged than another. at_few, with _low and _high:
    off − on with the fewest heads, NaN if one of these diverged on more seeds; at one head that is
    parametrization alone.
    """
    if not any({"out_proj", "heads"} & contrast.baseline.keys() for contrast in contrasts):
        return pd.DataFrame()
    has_both = all(variants.table[factor].nunique() > 1 for factor in ("heads", "out_proj"))
    groups: dict[str, list[Block]] = {}
    few = ""
    if has_both and "true" in set(variants.table["out_proj"]):
        few = min(variants.table["heads"].unique(), key=int)
        partners = (otherwise_equal(variants, wanted) for wanted in ({"heads": few}, {"out_proj": "true"}))
        blocks = [block for block in _crossings(*partners) if _is_of_concat(variants, block)]
        many = [variants.each[block[0][0]] for block in blocks]
        _, tuned = own_values(variants)
        settings = [c for c in varying(many) if c not in ("heads", *tuned)]
        for one, block in zip(many, blocks, strict=True):
            at = f" at {label}" if (label := one.label(settings)) else ""
            groups.setdefault(f"heads={one.levels['heads']} − heads={few}{at}", []).append(block)
    at_few: dict[str, list[Block]] = {
        key: [((few_off,), (few_on,)) for (_, few_on), (few_off, _) in blocks]
        for key, blocks in groups.items()
    }
    sound = {key: blocks for key, blocks in at_few.items() if not _more_diverged(variants, blocks)}
    table = _table(variants, groups, alpha)
    table["few"] = few
    table["more_diverged"] = [_more_diverged(variants, blocks) for blocks in groups.values()]
    part = _table(variants, sound, alpha).set_index("effect").reindex(table["effect"])
    table[["at_few", "at_few_low", "at_few_high"]] = part[["diff", "low", "high"]].to_numpy()
    return table


def _is_of_concat(variants: Variants, block: Block) -> bool:
    """Whether it is of concat without the projection; a readout by name is neither with nor without it."""
    row = variants.table.iloc[block[0][0]]
    return (row["fusion"], row["out_proj"]) == (STANDARD_FUSION, "false")


def _more_diverged(variants: Variants, blocks: Sequence[Block]) -> int:
    return more_diverged(variants, [variant for block in blocks for side in block for variant in side])


def _table(variants: Variants, groups: Mapping[str, list[Block]], alpha: float) -> pd.DataFrame:
    values = np.empty((len(groups), variants.values.shape[1]))  # NaN for a seed that lacks a variant
    for row, blocks in zip(values, groups.values(), strict=True):
        sums = [[variants.values[[*side]].sum(0) for side in block] for block in blocks]
        row[:] = np.mean([plus - minus for plus, minus in sums], axis=0)
    result = stats.paired(values, np.zeros_like(values), margin=np.inf, alpha=alpha)
    kept = ("n", "diff", "sd", "low", "high", "low_marginal", "high_marginal", "p", "p_holm")
    table = pd.DataFrame({key: result[key] for key in kept})
    table.insert(0, "effect", [*groups])
    table.insert(1, "blocks", [len(blocks) for blocks in groups.values()])
    return table


def _crossings(f: Mapping[int, int], g: Mapping[int, int]) -> list[Block]:
    """Blocks of four variants, (a − f(a)) − (g(a) − f(g(a))), for which f(g(a)) = g(f(a))."""
    return [
        ((a, g[f[a]]), (f[a], g[a])) for a in f if a in g and f[a] in g and g[a] in f and f[g[a]] == g[f[a]]
    ]
