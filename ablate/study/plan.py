"""What a study will judge, and when: its contrasts as weighted sums of arms, each with the seeds that it
takes. A pure function of the rows so far says which of them are decided, by the judge of a comparison."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from ablate.analysis.looks import Case, stand
from ablate.analysis.stats import Array, Judged
from ablate.compose.composer import Overrides
from ablate.config.conditions import key_in
from ablate.config.contrast import Contrast
from ablate.config.rules import ConfigError, did_you_mean, line_on
from ablate.store.columns import column_named
from ablate.store.record import PlannedContrast, Side

if TYPE_CHECKING:
    from ablate.analysis.variants import Settings

Sides = Sequence[tuple[float, Overrides]]  # arms with their weights


@dataclass(frozen=True)
class ArmContrast:
    """declared: what the YAML calls it. equal: whether its arms are one function by construction."""

    name: str
    sides: Sides
    declared: str = ""
    equal: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """contrasts: those named beforehand. arms: that can be built, with what each is called. seeds: in the
    order in which they are trained. at: the numbers of seeds of the looks; none for a fixed design. margin:
    in the unit of `metric`. Shapes: V arms, S seeds."""

    contrasts: Sequence[ArmContrast]
    arms: Mapping[Overrides, str]
    seeds: Sequence[str]
    metric: str
    margin: float
    at: Sequence[int] = ()

    @property
    def family(self) -> int:
        """How many contrasts are tested."""
        return sum(not one.equal for one in self.contrasts)

    def stand(self, values_VS: Array, lost_VS: Array) -> Judged:
        """Where each contrast stands. lost_VS: which runs diverged; a seed without a number that did not
        diverge has no result yet."""
        place, cases = {arm: at for at, arm in enumerate(self.arms)}, list[Case]()
        for one in self.contrasts:
            of = [place[arm] for _, arm in one.sides]
            weights = np.array([weight for weight, _ in one.sides])
            cases.append(Case(weights, values_VS[of], lost_VS[of], one.equal))
        how = {"margin": self.margin, "higher_is_better": column_named(self.metric).higher_is_better}
        return stand(cases, at=self.at, k=self.family, **how)

    def seeds_wanted(self, now: Judged, when: Literal["now", "most"]) -> dict[Overrides, int]:
        """At how many seeds each arm is trained: now, and at most. An arm whose contrasts are all decided
        gets no more seeds; one without a contrast has those of the first look."""
        following = dict(zip([0, *self.at], [*self.at, self.at[-1]], strict=True))
        after = dict.fromkeys(following, self.at[-1]) if when == "most" else following
        wanted = dict.fromkeys(self.arms, 0)
        for one, seeds, decided in zip(self.contrasts, now.seeds.tolist(), now.decided, strict=True):
            for _, arm in one.sides:
                wanted[arm] = max(wanted[arm], seeds if decided else after[seeds])
        return {arm: count or self.at[0] for arm, count in wanted.items()}

    def recorded(self, runs: Mapping[Overrides, Iterable[str]]) -> list[PlannedContrast]:
        """The contrasts as study.json keeps them. runs: the ids of those that report, by arm."""
        return [
            PlannedContrast(
                name=one.name,
                sides=[Side(weight, self.arms[arm], sorted(runs.get(arm, ()))) for weight, arm in one.sides],
                equal=one.equal,
            )
            for one in self.contrasts
        ]


def contrasts_of(
    declared: Sequence[Contrast],
    variants: "Settings",
    arms: Mapping[Overrides, int],
    named: Mapping[str, Mapping[str, Overrides]],
    names: Mapping[Overrides, str],
) -> list[ArmContrast]:
    """The contrasts that a study declares, of arms that can be built.

    variants: by what the arms set; arms: the place of each among them. named: by the end of a clause that
    says where, the arms by name. names: of all arms. Raises ConfigError for one that can't be.
    """
    from ablate.analysis.contrasts import declared_pairs, equal_variants

    found, at = dict[str, tuple[Sides, str]](), {place: arm for arm, place in reversed([*arms.items()])}
    for one in declared:
        of_one = dict[str, Sides]()
        for where, by_name in named.items() if one.arms else ():
            if [*by_name] == [""]:
                raise ConfigError(f"study.primary: {one}: this study names no arms; list them as study.arms")
            if unknown := [name for _, name in one.terms if name not in by_name]:
                near = did_you_mean(unknown[0], by_name)
                raise ConfigError(f"study.primary: {one}: {unknown[0]} is no arm{near}")
            sides = [(weight, by_name[name]) for weight, name in one.terms]
            if all(arm in arms for _, arm in sides):
                if len({arms[arm] for _, arm in sides}) < len(sides):
                    raise ConfigError(f"study.primary: {one}: both arms are the same; name another one")
                of_one[f"{one.arms}{where}"] = sides
        try:
            pairs = [] if one.arms else declared_pairs(variants, one)
        except ConfigError as error:
            raise ConfigError(f"study.primary: {error}") from error
        for v, b in pairs:
            of_one[f"{names[at[v]]} - {names[at[b]]}"] = [(1.0, at[v]), (-1.0, at[b])]
        for name, sides in (_within(one, of_one) if one.within else of_one).items():
            found.setdefault(name, (sides, str(one)))
    pairs = [(arms[sides[0][1]], arms[sides[-1][1]]) for sides, _ in found.values()]
    equal = equal_variants(variants, pairs)
    return [
        ArmContrast(name, sides, one, same is not None and len(sides) == 2)
        for (name, (sides, one)), same in zip(found.items(), equal, strict=True)
    ]


def _within(one: Contrast, contrasts: Mapping[str, Sides]) -> dict[str, Sides]:
    """Of contrasts that differ in nothing but the level of a factor, the one between each two levels. Raises
    ConfigError if it is no factor, or one in which their sides differ."""
    shared = {of for sides in contrasts.values() for of in set.intersection(*({*arm} for _, arm in sides))}
    levels = Counter(override.partition("=")[0] for override in shared)
    if not (key := key_in(one.within, levels)) and contrasts:
        factors = [key for key, count in levels.items() if count > 1]
        near = did_you_mean(one.within, factors) if factors else "; add one with two levels to study.factors"
        unknown = f"{one.within} is no factor that both sides share{near}"
        raise ConfigError(line_on(one.within) or f"study.primary: {one}: {unknown}")
    alike = dict[object, list[tuple[str, Sides]]]()
    for name, sides in contrasts.items():
        level = [{of for of in arm if of.startswith(f"{key}=")} for _, arm in sides]
        if level[0] and all(of == level[0] for of in level):
            alike.setdefault(name.replace(min(level[0]), ""), []).append((name, sides))
    return {
        f"({high}) - ({low})": [*above, *((-weight, arm) for weight, arm in below)]
        for several in alike.values()
        for (low, below), (high, above) in itertools.combinations(several, 2)
    }
