"""A comparison of a study with looks: where its contrasts stand, and which of its results count. It reads no
files, prints nothing, and loads no torch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ablate.analysis import looks
from ablate.analysis.contrasts import Pair
from ablate.analysis.controls import equal_variants
from ablate.analysis.looks import Standing
from ablate.analysis.stats import Array
from ablate.analysis.variants import Variants
from ablate.phrases import Doubt, counted, lines_if, some
from ablate.store.columns import column_named
from ablate.store.record import PlannedLooks, StudyRecord


@dataclass(frozen=True)
class AtLooks:
    """The looks of the study that some variants are of. place_S: the place of each of their seeds in the
    order in which looks take them; beyond all looks for any other seed."""

    planned: PlannedLooks
    place_S: Array

    @property
    def last(self) -> int:
        return self.planned.at[-1]

    def standing(
        self, variants: Variants, family: str, pairs: Sequence[Pair], margin: float, alpha: float
    ) -> Standing:
        """Where each pair of a family stands."""
        ones, bases = np.array(pairs, int).reshape(-1, 2).T
        values, lost = self._in_order(variants.values, np.nan), self._in_order(variants.diverged, False)
        tested = np.array([equal is None for equal in equal_variants(variants, pairs)], bool)
        return looks.stand(
            values[ones],
            values[bases],
            (lost[ones], lost[bases]),
            self.planned.taken,
            margin=margin,
            alpha=alpha,
            higher_is_better=column_named(variants.metric).higher_is_better,
            in_family=tested,
            contrasts=self.contrasts(family, tested),
        )

    def contrasts(self, family: str, tested: Array) -> int:
        """How many contrasts a family has: at least as many primary ones as were planned. tested: (K,) of
        those that there are."""
        return max(int(tested.sum()), self.planned.contrasts if family == "primary" else 1)

    def that_count(
        self, variants: Variants, pairs: Mapping[str, Sequence[Pair]], now: Mapping[str, Standing]
    ) -> Variants:
        """The variants without results beyond the last look at which a contrast of each stands or, of one
        without a contrast, at which any does; before the first look, beyond that one. pairs, now: by
        family."""
        reach, first = np.zeros(len(variants.table), int), self.planned.taken[0]
        for family, those in pairs.items():
            for pair, look in zip(those, now[family].seeds, strict=True):
                reach[[*pair]] = np.maximum(reach[[*pair]], max(look, first))
        counted_CS = self.counted(np.where(reach, reach, reach.max(initial=first)))
        return replace(
            variants,
            values=np.where(counted_CS, variants.values, np.nan),
            diverged=variants.diverged & counted_CS,
        )

    def counted(self, seeds_K: Array) -> Array:
        """(K, S) which seeds are among the first so many."""
        return self.place_S < np.asarray(seeds_K)[:, None]

    def overstated(self, diff: float, sd: float, margin: float, seeds: int, contrasts: int) -> float:
        """By what share a difference like this one, decided at so many seeds, is larger than the true one, on
        average; NaN if too few simulated ones are."""
        effect, bound = (round(abs(value) / sd, 1) for value in (diff, margin))
        simulated = looks.expected(tuple(self.planned.taken), contrasts, effect, bound)
        return float(simulated.overstated[self.planned.taken.index(seeds)])

    def _in_order(self, values_CS: Array, missing: float | bool) -> Array:
        """The columns in the order in which looks take their seeds; `missing` for a seed without runs."""
        known = self.place_S < self.last
        ordered = np.full((len(values_CS), self.last), missing)
        ordered[:, self.place_S[known]] = values_CS[:, known]
        return ordered


def at_looks(variants: Variants, records: Sequence[StudyRecord]) -> AtLooks | None:
    """The looks of the one study that these variants are of, if it has any."""
    if len(records) != 1 or records[0].looks is None or variants.crossed or "seed" not in variants.seeds:
        return None
    planned = records[0].looks
    places = {str(seed): place for place, seed in enumerate(planned.seeds)}
    return AtLooks(planned, np.array([places.get(seed, planned.at[-1]) for seed in variants.seeds["seed"]]))


def notes(before: Variants, after: Variants, at: AtLooks | None, records: Iterable[StudyRecord]) -> list[str]:
    """Lines on results that do not count, and on promises that are off. before, after: with and without the
    results beyond their looks."""
    if at is None:
        several = any(record.looks for record in records)
        grew = [(record.name, record.grew) for record in records if record.grew]
        return [
            *lines_if(
                several,
                Doubt(
                    "looks are a promise of one study by itself: these rows are of several, so each interval"
                    " is as if its number of seeds had been fixed",
                    "looks of several studies",
                ),
            ),
            *(
                Doubt(
                    f"{name}: grew from {' to '.join(map(str, sizes))} seeds although there were results, so"
                    " its intervals no longer hold together; study.looks names the numbers of seeds"
                    " beforehand",
                    f"{name} grew after results",
                )
                for name, sizes in grew
            ),
        ]
    beyond, late = int((before.ran & ~after.ran).sum()), some(at.planned.late)
    line = f"not judged: {counted(beyond, 'run')} beyond the look at which the contrasts of its arm stand"
    first = f"a late seed in development ({late}): the first look is at {at.planned.taken[0]} seeds"
    return [*lines_if(late, first), *lines_if(beyond, line)]
