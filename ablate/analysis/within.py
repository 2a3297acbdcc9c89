"""Contrasts of contrasts: whether a difference is the same at two levels of a column. Such a one has the
sides of the first difference, and those of the second with opposite weights. In words and tables the two
differences stand like variants: `fusion=sum - concat layers=2` against `fusion=sum - concat layers=1`."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from ablate.analysis.contrasts import Weighed
from ablate.analysis.finding import Finding
from ablate.analysis.stats import Array, moments
from ablate.analysis.variants import Variant, Variants
from ablate.config.rules import ConfigError, as_number
from ablate.phrases import first_few
from ablate.store.columns import WIDTHS


def crossed(variants: Variants, contrasts: Sequence[Weighed], column: str) -> list[Weighed]:
    """Of contrasts that are otherwise equal, the one between each two levels of a column; a study's own, as
    it has them. Raises ConfigError without any."""
    level = dict(enumerate(variants.table[column]))
    if len({*level.values()}) < 2:
        raise ConfigError(f"--within {column}: every row has {level[0] or 'none'}; name a column that varies")
    alone = [one for one in contrasts if not one.is_crossed and len({level[c] for _, c in one.sides}) == 1]
    at_level = pd.Series([level[one.baseline] for one in alone], dtype=object).to_numpy()
    bases = variants.table.iloc[[one.baseline for one in alone]]
    free = {column, *WIDTHS, *variants.free}
    kept = [name for name in variants.columns if name not in free]
    follow = {name for name in kept if bases.groupby(at_level)[name].nunique().max() < 2}
    set_by = variants.table[kept].to_dict("records")
    by_key: dict[object, dict[str, Weighed]] = {}
    for one in alone:
        v, b = set_by[one.variant], set_by[one.baseline]
        key = tuple((name, v[name]) for name in kept if v[name] != b[name] or name not in follow)
        by_key.setdefault(key, {})[level[one.baseline]] = one
    planned = [one for one in contrasts if one.is_crossed and len({level[c] for _, c in one.sides}) == 2]
    order = sorted({*level.values()}, key=lambda at: (np.inf if (of := as_number(at)) is None else of, at))
    known = {frozenset(one.sides) for one in planned}
    new = [
        Weighed("", [*high.sides, *((-weight, c) for weight, c in low.sides)])
        for of_levels in by_key.values()
        for low, high in itertools.combinations([of_levels[at] for at in order if at in of_levels], 2)
    ]
    if not new and not planned:
        there = first_few(sorted({*level.values()}))
        raise ConfigError(f"--within {column}: no difference is there at two of its levels ({there})")
    return [*planned, *(one for one in new if frozenset(one.sides) not in known)]


def as_variants(variants: Variants, one: Weighed) -> tuple[Variant, Variant]:
    """What stands in words for the two sides of a contrast: its variants or, of a contrast of contrasts, the
    two differences."""
    if not one.is_crossed:
        return variants.each[one.variant], variants.each[one.baseline]
    n = len(one.sides) // 2
    first, second = one.sides[:n], [(-weight, c) for weight, c in one.sides[n:]]
    return _difference(variants, Weighed("", first)), _difference(variants, Weighed("", second))


def _difference(variants: Variants, one: Weighed) -> Variant:
    v, b = variants.each[one.variant], variants.each[one.baseline]
    apart = v.differing(b)
    levels = {name: f"{v.levels[name]} - {b.levels[name]}" for name in apart}
    return replace(v, levels={**v.levels, **levels}, arm="", difference=apart)


def rows(findings: Sequence[Finding], like: pd.DataFrame) -> pd.DataFrame:
    """The rows of the differences that stand like variants, in a summary with the columns of another."""
    values = dict[str, Array]()
    for one in findings:
        parts_PS, half = one.weights[:, None] * one.values, len(one.weights) // 2
        for side, of in ((one.variant, parts_PS[:half].sum(0)), (one.baseline, -parts_PS[half:].sum(0))):
            values[side.name] = np.where(np.isfinite(one.differences), of, np.nan)
    n, mean, sd = moments(np.array([*values.values()]))
    levels = {side.name: side.levels for one in findings for side in one.both}
    table = pd.DataFrame([*levels.values()]).assign(variant=[*values], n=n, diverged=0, mean=mean, sd=sd)
    return table.reindex(columns=like.columns)
