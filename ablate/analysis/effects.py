"""Effects of factors and their interactions: weighted sums of variants, tested over seeds.

A main effect is the mean difference between two levels over all blocks: pairs of variants that differ only in
that factor and have equal key and value widths. An interaction is the mean difference of such differences.
Each is one number per seed, with a t-interval over seeds.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.analysis.contrasts import own_values, pair_up
from ablate.analysis.controls import counterparts, equal_forms, more_diverged, unknown_forms
from ablate.analysis.variants import Variants
from ablate.config.conditions import as_level
from ablate.config.schema import STANDARD_FUSION
from ablate.store.columns import WIDTHS, column_named

Block = tuple[tuple[int, ...], tuple[int, ...]]  # the variants with weight +1, and those with weight −1


def effects(
    variants: Variants, references: Mapping[str, Any] | None = None, *, alpha: float = 0.05
) -> tuple[pd.DataFrame, list[str]]:
    """One row per effect: effect, widths, blocks, n (seeds), diff, sd, low, high (simultaneous),
    low_marginal, high_marginal, p, p_holm; and lines on unknown forms and on factors without variants of
    equal widths.

    references: by factor, the level that effects are relative to; by default fusion=concat, out_proj=true,
    and the lowest level of other factors. heads × out_proj is also given without the condition of equal
    widths: (L_h − L_1)_off − (L_h − L_1)_on, which says whether many heads need the projection.
    """
    factors = {column: _reference(variants, column, references or {}) for column in _factors(variants)}
    forms = equal_forms(variants)
    partner = {f: dict(pair_up(variants, {f: reference})) for f, reference in factors.items()}
    groups: dict[tuple[str, str], list[Block]] = {}
    lines = unknown_forms(variants)
    for factor, pairs in partner.items():
        blocks = [((a,), (b,)) for a, b in pairs.items() if forms[a] != forms[b]]
        equal = [block for block in blocks if _equal_widths(variants, block)]
        for block in equal:
            groups.setdefault((_level(variants, factor, factors, block[0][0]), "equal"), []).append(block)
        if blocks and not equal:
            lines.append(
                f"{factor}: no two variants of equal key and value width, so it has no main effect here;"
                " set key_width and value_width, or read the single contrasts"
            )
    for f, g in combinations(factors, 2):
        for block in _crossings(partner[f], partner[g]):
            if len({forms[variant] for side in block for variant in side}) < 4:
                continue  # some of them are the same function, so there is no interaction
            name = " × ".join(_level(variants, factor, factors, block[0][0]) for factor in (f, g))
            if _equal_widths(variants, block):
                groups.setdefault((name, "equal"), []).append(block)
            elif {f, g} == {"heads", "out_proj"} and variants.table.at[
                block[0][0], "fusion"
            ] == STANDARD_FUSION:
                groups.setdefault((f"{name} (fusion={STANDARD_FUSION})", "as they are"), []).append(block)
    return _table(variants, groups, alpha), lines


def projection_and_heads(
    variants: Variants, placebo: Mapping[str, Any], *, alpha: float = 0.05
) -> pd.DataFrame:
    """Whether many heads need the projection: (L_h − L_1)_off − (L_h − L_1)_on for concat, one row per h.

    The fewest heads in the rows take the place of 1. Columns as in `effects`; these rows are a family of
    their own. controlled, with _low and _high: the same under the placebo. at_few, likewise: off − on with
    the fewest heads, under the placebo where there is one; at one head that is parametrization alone. If
    more_diverged, on how many more seeds one variant diverged than another, is above 0, these two are NaN.
    """
    own, tuned = own_values(variants)
    has_both = {"heads", "out_proj"} <= {*_factors(variants)}
    groups: dict[tuple[str, str], list[Block]] = {}
    if has_both and "true" in set(variants.table["out_proj"]):
        few = _reference(variants, "heads", {})
        partners = [
            dict(pair_up(variants, {f: level}, own, free=tuned))
            for f, level in (("heads", few), ("out_proj", "true"))
        ]
        for block in _crossings(*partners):
            row = variants.table.iloc[block[0][0]]
            if row["fusion"] == STANDARD_FUSION:
                groups.setdefault((f"heads={row['heads']} − heads={few}", "as they are"), []).append(block)
    partner = counterparts(variants, placebo)
    under: dict[tuple[str, str], list[Block]] = {
        key: [
            ((partner[many_off], few_on), (partner[few_off], many_on))
            for (many_off, few_on), (few_off, many_on) in blocks
        ]
        for key, blocks in groups.items()
        if all(side[0] in partner for block in blocks for side in block)
    }
    at_few = {
        key: [((few_off,), (few_on,)) for (_, few_on), (few_off, _) in under.get(key, blocks)]
        for key, blocks in groups.items()
    }
    table = _table(variants, groups, alpha)
    table["more_diverged"] = [_more_diverged(variants, blocks) for blocks in groups.values()]
    for name, blocks in (("controlled", under), ("at_few", at_few)):
        sound = {key: those for key, those in blocks.items() if not _more_diverged(variants, those)}
        part = _table(variants, sound, alpha).set_index("effect").reindex(table["effect"])
        table[[name, f"{name}_low", f"{name}_high"]] = part[["diff", "low", "high"]].to_numpy()
    return table


def _more_diverged(variants: Variants, blocks: Sequence[Block]) -> int:
    return more_diverged(variants, [variant for block in blocks for side in block for variant in side])


def _table(variants: Variants, groups: Mapping[tuple[str, str], list[Block]], alpha: float) -> pd.DataFrame:
    values = np.empty((len(groups), variants.values.shape[1]))  # NaN for a seed that lacks a variant
    for row, blocks in zip(values, groups.values(), strict=True):
        sums = [[variants.values[[*side]].sum(0) for side in block] for block in blocks]
        row[:] = np.mean([plus - minus for plus, minus in sums], axis=0)
    result = stats.paired(values, np.zeros_like(values), margin=np.inf, alpha=alpha)
    kept = ("n", "diff", "sd", "low", "high", "low_marginal", "high_marginal", "p", "p_holm")
    table = pd.DataFrame({key: result[key] for key in kept})
    table.insert(0, "effect", [name for name, _ in groups])
    table.insert(1, "widths", [widths for _, widths in groups])
    table.insert(2, "blocks", [len(blocks) for blocks in groups.values()])
    return table


def _factors(variants: Variants) -> list[str]:
    """The columns that are factors: those that vary, except widths and options of parts."""
    follows = {
        *WIDTHS,
        *column_named("fusion").brings,
        *(name for names in variants.options.values() for name in names),
    }
    return [c for c in variants.shown if variants.table[c].nunique() > 1 and c not in follows]


def _reference(variants: Variants, factor: str, references: Mapping[str, Any]) -> Any:
    levels = list(variants.table[factor].unique())
    usual = as_level(references.get(factor, {"fusion": STANDARD_FUSION, "out_proj": "true"}.get(factor)))
    if usual and usual in levels:
        return usual
    numbers = pd.to_numeric(pd.Series(levels), errors="coerce")
    return levels[int(numbers.argmin())] if numbers.notna().all() else min(levels)


def _level(variants: Variants, factor: str, references: Mapping[str, Any], variant: int) -> str:
    """The name of an effect, such as `fusion: sum normalize=variance − concat`; options belong to a level."""
    row = variants.table.iloc[variant]
    is_part = factor in variants.options
    options = [*column_named(factor).brings, *variants.options[factor]] if is_part else []
    varying = [c for c in options if c in variants.columns and len({*variants.table[c]} - {""}) > 1]
    level = " ".join([row[factor], *(f"{c}={row[c]}" for c in varying if row[c])])
    return f"{factor}: {level} − {references[factor]}"


def _equal_widths(variants: Variants, block: Block) -> bool:
    widths = [column for column in ("value_width", "key_width") if column in variants.columns]
    return bool((variants.table.iloc[[*block[0], *block[1]]][widths].nunique() == 1).all())


def _crossings(f: Mapping[int, int], g: Mapping[int, int]) -> list[Block]:
    """Blocks of four variants, (a − f(a)) − (g(a) − f(g(a))), for which f(g(a)) = g(f(a))."""
    return [
        ((a, g[f[a]]), (f[a], g[a])) for a in f if a in g and f[a] in g and g[a] in f and f[g[a]] == g[f[a]]
    ]
