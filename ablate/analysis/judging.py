"""Contrasts judged: each with its interval, those of a study as one family, all others as another."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ablate.analysis import stats
from ablate.analysis.contrasts import Weighed
from ablate.analysis.looks import stand
from ablate.analysis.variants import Variants
from ablate.store.record import NO_STUDY, StudyRecord


@dataclass(frozen=True, eq=False)
class Case:
    """A contrast with what counts for it. sides: weights and (S,) values. (S,) each: difference; twin, of the
    metric on validation; more, on how many more arms of the variant's side a run diverged; ended. judged:
    what it comes to, at its place `at` there; groups: of values that do not pair. last: the look at which it
    ends; 0 without looks."""

    contrast: Weighed
    sides: list[tuple[float, stats.Array]]
    difference: stats.Array
    twin: stats.Array | None
    more: stats.Array
    ended: stats.Array
    judged: stats.Judged | None = None
    at: int = 0
    groups: bool = False
    last: int = 0

    def number(self, name: str) -> float:
        return float(getattr(self.judged, name)[self.at])

    @property
    def verdict(self) -> str:
        assert self.judged is not None
        return str(self.judged.verdict[self.at])

    @property
    def scale(self) -> float:
        return max(float(np.nanmax(np.abs(values), initial=0)) for _, values in self.sides)


def _case(variants: Variants, one: Weighed, order: stats.Array) -> Case:
    """order: the places of units to take, −1 for one that has none."""

    def of_sides(of_CS: stats.Array, missing: Any) -> list[stats.Array]:
        each = zip(one.sides, one.counts(variants), strict=True)
        values = [np.where(counts_S, of_CS[at], missing) for (_, at), counts_S in each]
        return [np.where(order >= 0, of[order], missing) for of in values]

    weights = [weight for weight, _ in one.sides]
    values, lost = of_sides(variants.judged, np.nan), of_sides(variants.diverged, False)

    def weighed(values: Sequence[stats.Array]) -> stats.Array:
        return np.sum([weight * of for weight, of in zip(weights, values, strict=True)], 0)

    return Case(
        one,
        [*zip(weights, values, strict=True)],
        weighed(values),
        None if variants.twin is None else weighed(of_sides(variants.twin, np.nan)),
        np.sum([np.sign(weight) * of for weight, of in zip(weights, lost, strict=True)], 0),
        np.all([np.isfinite(of) | gone for of, gone in zip(values, lost, strict=True)], 0),
    )


def judge_all(
    variants: Variants,
    contrasts: Sequence[Weighed],
    records: Sequence[StudyRecord],
    margin: float,
    before: int,
) -> list[Case]:
    """Each contrast with its interval: those of a study as one family, whose size its record says, all others
    as one that is at least as large. before: how many of the others there were before rows were chosen."""
    family = sum(record.family for record in records)
    only = records[0] if len(records) == 1 else NO_STUDY
    cases = []
    for record in (*records, None):
        of_family = [one for one in contrasts if one.record is record]
        k = record.family if record else 0
        if record is None:
            there = [one for one in of_family if one.equal is None and _has_values(variants, one)]
            k = family + max(len(there), before)
        if of_family:
            cases += _family(variants, of_family, record or only, k, margin)
    return cases


def _has_values(variants: Variants, one: Weighed) -> bool:
    return all((np.isfinite(variants.judged[at])).sum() >= 2 for _, at in one.sides)


def _family(
    variants: Variants, contrasts: Sequence[Weighed], record: StudyRecord, k: int, margin: float
) -> list[Case]:
    """The contrasts judged at the looks of their study or, without any, on all their values at once; there,
    values that do not pair are judged as groups."""
    looks = record.looks if "seed" in variants.seeds and not variants.crossed else None
    S = variants.values.shape[1]
    order, at, once = np.arange(S), [S], [False] * len(contrasts)
    if looks:
        places = {seed: place for place, seed in enumerate(variants.seeds["seed"])}
        order = np.array([places.get(str(seed), -1) for seed in looks.seeds[: looks.at[-1]]], int)
        at, compared = looks.at, {run_id for one in record.contrasts for run_id in one.runs}
        alone = {c for c, ids in enumerate(variants.run_ids) if compared and not compared & {*ids}}
        once = [any(c in alone for _, c in one.sides) for one in contrasts]
    cases = [_case(variants, one, order) for one in contrasts]
    difference_KS, ended_KS, more_KS = (
        np.array([getattr(of, name) for of in cases]) for name in ("difference", "ended", "more")
    )
    judged = stand(
        difference_KS,
        ended_KS if looks else np.ones_like(ended_KS),  # what is missing is missing for good
        more_KS,
        at=at,
        k=k,
        margin=margin,
        higher_is_better=variants.higher_is_better,
        scale=np.array([of.scale for of in cases]),
        untested=np.array([one.equal is not None for one in contrasts]),
        once=np.array(once),
    )
    groups = np.zeros(len(cases), bool)
    if not looks:
        pairs = np.isfinite(difference_KS).sum(1)
        fewest = np.array([min(np.isfinite(values).sum() for _, values in of.sides) for of in cases])
        groups = (fewest >= 2) & ((pairs < 2) | (not variants.paired))
    for i in np.flatnonzero(groups):
        welch = stats.of_groups([(weight, values[None]) for weight, values in cases[i].sides])
        alone_1 = stats.judge(welch, 1 - stats.ALPHA / max(k, 1), margin, variants.higher_is_better)
        for name, of in vars(alone_1).items():
            getattr(judged, name)[i] = of[0]
        judged.verdict[i] = stats.withheld(alone_1.verdict, more_KS[i].sum())[0]
    return [
        replace(
            of,
            sides=[(weight, values[:n]) for weight, values in of.sides],
            difference=of.difference[:n],
            twin=None if of.twin is None else of.twin[:n],
            more=of.more[:n],
            judged=judged,
            at=i,
            groups=bool(groups[i]),
            last=0 if not looks else at[0] if once[i] else at[-1],
        )
        for i, (of, n) in enumerate(zip(cases, np.where(groups, S, judged.seeds).tolist(), strict=True))
    ]


def that_count(variants: Variants, cases: Sequence[Case], records: Sequence[StudyRecord]) -> Variants:
    """The variants without results beyond the last look at which a contrast of each stands or, of one without
    a contrast, at which any does; before the first look, beyond that one."""
    looks = records[0].looks if len(records) == 1 else None
    if looks is None or not any(one.last for one in cases):
        return variants
    reach = np.zeros(len(variants.table), int)
    for one in cases:
        for _, c in one.contrast.sides:
            reach[c] = max(reach[c], int(one.number("seeds")), looks.at[0])
    places = {str(seed): at for at, seed in enumerate(looks.seeds)}
    place_S = np.array([places.get(seed, looks.at[-1]) for seed in variants.seeds["seed"]])
    counts_CS = place_S < np.where(reach, reach, reach.max(initial=looks.at[0]))[:, None]
    values, lost = np.where(counts_CS, variants.values, np.nan), variants.diverged & counts_CS
    return replace(variants, values=values, diverged=lost)
