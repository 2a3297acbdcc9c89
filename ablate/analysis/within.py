"""Contrasts of contrasts: whether a difference is the same at two levels of a column. Such a one has the
sides of the first difference, and those of the second with opposite weights. In words and tables the two
differences stand like variants: `fusion=sum - concat layers=2` against `fusion=sum - concat layers=1`."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pandas as pd

from ablate.analysis.contrasts import Weighed, tuned_columns
from ablate.analysis.stats import Array, moments
from ablate.analysis.variant import Variant
from ablate.analysis.variants import Variants
from ablate.config.rules import ConfigError, as_number
from ablate.phrases import first_few
from ablate.store.columns import WIDTHS

T = TypeVar("T")
Sides = Sequence[tuple[float, int]]


def crossed(variants: Variants, contrasts: Sequence[Weighed], column: str) -> list[Weighed]:
    """Of contrasts that are otherwise equal, the one between each two levels of a column; a study's own, as
    it has them. Raises ConfigError without any."""
    level = dict(enumerate(variants.table[column]))
    if len({*level.values()}) < 2:
        raise ConfigError(f"--within {column}: every row has {level[0] or 'none'}; name a column that varies")
    alone = [one for one in contrasts if not is_crossed(one) and len({level[c] for _, c in one.sides}) == 1]
    at_level = pd.Series([level[one.baseline] for one in alone], dtype=object).to_numpy()
    bases = variants.table.iloc[[one.baseline for one in alone]]
    free = {column, *WIDTHS, *tuned_columns(variants)}
    kept = [name for name in variants.columns if name not in free]
    follow = {name for name in kept if bases.groupby(at_level)[name].nunique().max() < 2}
    set_by = variants.table[kept].to_dict("records")
    by_key: dict[object, dict[str, Weighed]] = {}
    for one in alone:
        v, b = set_by[one.variant], set_by[one.baseline]
        key = tuple((name, v[name]) for name in kept if v[name] != b[name] or name not in follow)
        by_key.setdefault(key, {})[level[one.baseline]] = one
    planned = [one for one in contrasts if is_crossed(one) and len({level[c] for _, c in one.sides}) == 2]
    order = sorted({*level.values()}, key=lambda at: _place(variants, column, at))
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


def is_crossed(one: Weighed) -> bool:
    first, second = halves(one.sides)
    return len(first) > 1 and [weight for weight, _ in first] == [-weight for weight, _ in second]


def halves(sides: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    return sides[: len(sides) // 2], sides[len(sides) // 2 :]


def as_variants(variants: Variants, one: Weighed) -> tuple[Variant, Variant]:
    """What stands in words for the two sides of a contrast: its variants or, of a contrast of contrasts, the
    two differences."""
    if not is_crossed(one):
        return variants.each[one.variant], variants.each[one.baseline]
    first, second = halves(one.sides)
    return _difference(variants, first), _difference(variants, [(-weight, c) for weight, c in second])


def _difference(variants: Variants, sides: Sides) -> Variant:
    one = Weighed("", sides)
    v, b = variants.each[one.variant], variants.each[one.baseline]
    apart = v.differing(b)
    levels = {name: f"{v.levels[name]} - {b.levels[name]}" for name in apart}
    return replace(v, levels={**v.levels, **levels}, arm="", difference=apart)


def rows(differences: Mapping[str, tuple[Variant, Array]], like: pd.DataFrame) -> pd.DataFrame:
    """The rows of differences, by their names, in a summary with the columns of another."""
    n, mean, sd = moments(np.array([values for _, values in differences.values()]))
    levels = pd.DataFrame([side.levels for side, _ in differences.values()])
    table = levels.assign(variant=[*differences], n=n, diverged=0, mean=mean, sd=sd)
    return table.reindex(columns=like.columns)


def _place(variants: Variants, column: str, level: str) -> tuple[float, float, str]:
    """Where a level stands: by its number or, of words, by the parameters of its smallest variant."""
    number = as_number(level)
    params = pd.to_numeric(variants.table["params"], errors="coerce")[variants.table[column] == level]
    return np.inf if number is None else number, float(params.astype(float).fillna(np.inf).min()), level
