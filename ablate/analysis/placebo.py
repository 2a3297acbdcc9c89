"""The placebo floor: how much arms of the same functions differ, by their parametrization alone."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ablate.analysis.contrasts import Pair, own_values
from ablate.analysis.controls import equal_forms, more_diverged, same_classes
from ablate.analysis.variants import Variants
from ablate.analysis.verdicts import contrast_table, decisions
from ablate.store.columns import config_about
from ablate.store.record import StudyRecord

FAMILY = "placebo"


@dataclass(frozen=True)
class Floor:
    """value: the largest absolute end of the intervals of differences, in the metric's unit. of: that of the
    pairs with whose text, size and training a variant shares all, by the variant's name. level: at which
    the intervals hold together. pairs: how many pairs of arms they are of. seeds: the fewest that one has."""

    value: float
    of: Mapping[str, float]
    level: float
    pairs: int
    seeds: int


def placebo_floor(variants: Variants, records: Sequence[StudyRecord], alpha: float) -> Floor | None:
    """The floor of these variants; None without a pair of arms of the same functions. In a study with looks
    each pair stands at a look of its own, and the intervals hold together wherever they stand (looks.py)."""
    if not (pairs := placebo_pairs(variants)):
        return None
    # No margin ends a pair before its last look; and within a margin of infinity no pair asks for more seeds.
    now = decisions(variants, records, {FAMILY: pairs}, np.nan, alpha).get(FAMILY)
    table = contrast_table(variants, FAMILY, pairs, np.inf, alpha, now, 0)
    tested = table[table["p"].notna() & table["n_baseline"].isna()]
    if tested.empty:
        return None
    ends = tested[["low", "high"]].abs().max(axis=1)
    place_of = dict(zip(variants.names, _places(variants), strict=True))
    largest = ends.groupby(tested["baseline"].map(place_of).to_numpy()).max()
    of = {name: float(largest[place]) for name, place in place_of.items() if place in largest.index}
    return Floor(float(ends.max()), of, 1 - alpha, len(tested), int(tested["pairs"].min()))


def placebo_pairs(variants: Variants) -> list[Pair]:
    """The pairs of arms that can learn the same functions and differ only in how attention is written, in a
    tuned study also in their own values. Two names of one form are one arm; and no pair has an arm that
    diverged on more seeds than the other."""
    if not (classes := variants.known("function_class")).any():
        return []
    (own, _), (of_attention, _) = own_values(variants), _columns(variants)
    forms = equal_forms(replace(variants, columns=of_attention))
    settings = [*zip(classes, _places(variants), strict=True)]
    alike: dict[tuple[str, str], dict[tuple[str, ...], int]] = {}
    for arm in (arm for arm in own if classes[arm]):
        alike.setdefault(settings[arm], {}).setdefault(forms[arm], arm)
    pairs = [pair for arms in alike.values() for pair in itertools.combinations(arms.values(), 2)]
    same = zip(pairs, same_classes(variants, pairs), strict=True)
    return [pair for pair, is_same in same if is_same and not more_diverged(variants, pair)]


def _columns(variants: Variants) -> tuple[list[str], list[str]]:
    """The columns that say how attention is written, and those of text, size and training; neither has the
    tuned ones."""
    _, tuned = own_values(variants)
    of_attention = {*config_about(""), *itertools.chain(*variants.options.values())}
    columns = [column for column in variants.columns if column not in tuned]
    return [c for c in columns if c in of_attention], [c for c in columns if c not in of_attention]


def _places(variants: Variants) -> list[str]:
    """Of each variant its text, size and training, as one key."""
    _, rest = _columns(variants)
    return [*map(repr, variants.table[rest].to_numpy().tolist())]


def clears(table: pd.DataFrame, floor: Floor | None) -> pd.Series:
    """(K,) whether the interval of each contrast lies beyond the floor on one side of 0; missing without a
    floor, for what is not tested, and where both can learn the same functions, as all is parametrization."""
    nearest, value = np.fmax(table["low"], -table["high"]), pd.Series(np.nan, table.index)
    if floor:
        value = table["baseline"].map(floor.of).astype(float).fillna(floor.value)
    beyond = pd.Series(nearest > value, table.index, "boolean")
    return beyond.where(table["p"].notna() & ~table["same_class"] & (floor is not None))
