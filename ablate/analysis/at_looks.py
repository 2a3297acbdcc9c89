"""A comparison of a study with looks: what these have decided, and which of its results count. It reads no
files, prints nothing, and loads no torch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ablate.analysis.contrasts import Pair
from ablate.analysis.controls import equal_variants
from ablate.analysis.looks import Decisions, Looks
from ablate.analysis.stats import Array
from ablate.analysis.variants import Variants
from ablate.phrases import Note, counted, first_few, lines_if
from ablate.store.record import StudyRecord


def decisions(
    variants: Variants,
    records: Sequence[StudyRecord],
    pairs: Mapping[str, Sequence[Pair]],
    margin: float,
    alpha: float,
) -> dict[str, Decisions]:
    """What the looks of the one study that these variants are of have decided, by family; empty if it has
    none. pairs: of each family. The primary one has at least as many contrasts as were planned."""
    if len(records) != 1 or records[0].looks is None or variants.crossed or "seed" not in variants.seeds:
        return {}
    planned, now = records[0].looks, dict[str, Decisions]()
    for family, those in pairs.items():
        equal = [k for k, other in enumerate(equal_variants(variants, those)) if other is not None]
        looks = Looks(
            at=planned.taken,
            pairs=those,
            equal=equal,
            contrasts=max(len(those) - len(equal), planned.contrasts if family == "primary" else 1),
            metric=variants.metric,
            margin=margin,
            alpha=alpha,
            seeds=[*map(str, planned.seeds)],
            late=planned.late,
        )
        in_order = _in_order(looks, variants, variants.values, np.nan)
        now[family] = looks.decide(in_order, _in_order(looks, variants, variants.diverged, False))
    return now


def that_count(variants: Variants, now: Mapping[str, Decisions]) -> Variants:
    """The variants without results beyond the last look at which a contrast of each stands or, of one without
    a contrast, at which any does; before the first look, beyond that one. now: by family."""
    if not now:
        return variants
    reach, looks = np.zeros(len(variants.table), int), next(iter(now.values())).looks
    for decided in now.values():
        for pair, look in zip(decided.looks.pairs, decided.seeds, strict=True):
            reach[[*pair]] = np.maximum(reach[[*pair]], max(look, looks.at[0]))
    seeds_C = np.where(reach, reach, reach.max(initial=looks.at[0]))
    counted_CS = counted_seeds(variants, looks, seeds_C)
    return replace(
        variants,
        values=np.where(counted_CS, variants.values, np.nan),
        diverged=variants.diverged & counted_CS,
    )


def counted_seeds(variants: Variants, looks: Looks, seeds_K: Array) -> Array:
    """(K, S) which seeds are among the first so many."""
    return looks.places(variants.seeds["seed"]) < np.asarray(seeds_K)[:, None]


def _in_order(looks: Looks, variants: Variants, values_CS: Array, missing: float | bool) -> Array:
    """The columns in the order in which looks take their seeds; `missing` for a seed without runs."""
    place_S, last = looks.places(variants.seeds["seed"]), looks.at[-1]
    ordered = np.full((len(values_CS), last), missing)
    ordered[:, place_S[place_S < last]] = values_CS[:, place_S < last]
    return ordered


def notes(
    before: Variants, after: Variants, now: Mapping[str, Decisions], records: Iterable[StudyRecord]
) -> list[Note]:
    """Lines on results that do not count, and on promises that are off. before, after: with and without the
    results beyond their looks."""
    if not now:
        several = any(record.looks for record in records)
        grew = [(record.name, record.grew) for record in records if record.grew]
        return [
            *lines_if(
                several,
                Note(
                    "looks are a promise of one study by itself: these rows are of several, so each interval"
                    " is as if its number of seeds had been fixed",
                    "doubt",
                    "looks of several studies",
                ),
            ),
            *(
                Note(
                    f"{name}: grew from {' to '.join(map(str, sizes))} seeds although there were results, so"
                    " its intervals no longer hold together; study.looks names the numbers of seeds"
                    " beforehand",
                    "doubt",
                    f"{name} grew after results",
                )
                for name, sizes in grew
            ),
        ]
    looks = next(iter(now.values())).looks
    beyond, late = int((before.ran & ~after.ran).sum()), first_few(looks.late)
    line = f"not judged: {counted(beyond, 'run')} beyond the look at which the contrasts of its arm stand"
    first = f"a late seed in development ({late}): the first look is at {looks.at[0]} seeds"
    return [*lines_if(late, Note(first)), *lines_if(beyond, Note(line))]
