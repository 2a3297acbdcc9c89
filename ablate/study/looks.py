"""Looks in a study: at how many seeds each of its arms is trained, given the rows so far."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ablate.analysis.looks import USUAL_SD, Standing, Wanted, cost_lines, stand, wanted
from ablate.analysis.stats import IDENTICAL
from ablate.analysis.variants import USABLE
from ablate.compose.composer import Overrides
from ablate.store.columns import Row, Status, column_named
from ablate.store.record import PlannedLooks

Results = Mapping[tuple[Overrides, str], Row]  # of arms, by arm and seed


@dataclass(frozen=True)
class Looks:
    """The looks of a study, and what it decides at them.

    at: numbers of seeds, ascending. seeds: in the order in which they are trained, in the syntax of
    overrides. arms: what is compared; names: what they are called. pairs: the primary contrasts, as indices
    of a variant and its baseline among the arms. tested: (K,) which of them are not equal by construction.
    contrasts: how many the study tests. metric, margin: what they are judged by. late: arms in which a run of
    development learned late.
    """

    at: Sequence[int]
    seeds: Sequence[str]
    arms: Sequence[Overrides]
    names: Sequence[str]
    pairs: Sequence[tuple[int, int]]
    tested: Sequence[bool]
    contrasts: int
    metric: str
    margin: float
    late: Sequence[str] = ()

    def planned(self, **known: Any) -> PlannedLooks:
        """As study.json keeps them."""
        own = {"at": [*self.at], "seeds": [*map(int, self.seeds)], "contrasts": self.contrasts}
        return PlannedLooks(**own, **known)

    def after(self, late: Sequence[str]) -> "Looks":
        """The looks that are taken after development. late: arms in which a run of it learned late."""
        return replace(self, at=self.planned(late=[*late]).taken, late=late)

    def standing(self, results: Results) -> Standing:
        """Where the contrasts stand after these results."""
        values = np.full((len(self.arms), len(self.seeds)), np.nan)
        lost = np.zeros(values.shape, bool)
        for a, arm in enumerate(self.arms):
            for s, seed in enumerate(self.seeds):
                if (row := results.get((arm, seed))) and row["status"] in (*USABLE, Status.DIVERGED):
                    value = row.get(self.metric)
                    values[a, s] = np.nan if value is None else value
                    lost[a, s] = row["status"] == Status.DIVERGED or np.isinf(values[a, s])
        values[lost] = np.nan
        ones, bases = np.array(self.pairs, int).reshape(-1, 2).T
        return stand(
            values[ones],
            values[bases],
            (lost[ones], lost[bases]),
            self.at,
            margin=self.margin,
            higher_is_better=column_named(self.metric).higher_is_better,
            in_family=np.array(self.tested, bool),
            contrasts=self.contrasts,
        )

    def wanted(self, results: Results) -> Wanted:
        """At how many seeds each arm is trained after these results."""
        return wanted(self.pairs, self.standing(results), self.at, len(self.arms))

    def lines(self, now: Standing, passed: int) -> list[str]:
        """A line for each look that has been passed since that of so many seeds: what it decided, and what
        goes on."""
        return [self._line(now, look) for look in self.at if passed < look <= self.passed(now)]

    def passed(self, now: Standing) -> int:
        """The last look that no contrast still waits for; 0 before the first."""
        waiting = now.seeds[~now.decided]
        return int(waiting.min() if len(waiting) else now.seeds.max(initial=0))

    def _line(self, now: Standing, look: int) -> str:
        one_baseline = len({base for _, base in self.pairs}) == 1
        said, going_on = list[str](), list[str]()
        for k, pair in enumerate(self.pairs):
            name = self.names[pair[0]] if one_baseline else self.contrast(pair)
            if now.decided[k] and now.seeds[k] == look:
                interval = f", {now.diff[k]:+.4f} [{now.low[k]:.4f}, {now.high[k]:.4f}]"
                interval = "" if now.verdict[k] == IDENTICAL else interval
                said.append(
                    f"{name}: {now.verdict[k]}{interval}, decided"
                    if self.tested[k]
                    else f"{name}: equal by construction"
                )
            elif not now.decided[k] or now.seeds[k] > look:
                going_on.append(name)
        if going_on:
            how = "undecided" if look == self.at[-1] else "goes on" if len(going_on) == 1 else "go on"
            said.append(f"{', '.join(going_on)} {how}")
        first = self.late and look == self.at[0]
        why = f" (the first look: a late seed in development, {', '.join(self.late)})" if first else ""
        return f"{look} seeds{why}: {'; '.join(said)}"

    def cost_lines(self, runs_a_seed: Mapping[Overrides, int], seconds: float) -> list[str]:
        """Lines on what the study will cost, if differences scatter as they usually do. runs_a_seed: of each
        arm. seconds: of a run; NaN if unknown."""
        variants = {
            self.arms[one] for (one, _), tested in zip(self.pairs, self.tested, strict=True) if tested
        }
        variants -= {self.arms[base] for _, base in self.pairs}
        of_variants = sum(runs_a_seed[arm] for arm in variants)
        of_others = sum(runs_a_seed[arm] for arm in self.arms) - of_variants
        sd = USUAL_SD.get(self.metric)
        lines = cost_lines(
            self.at, self.contrasts, (of_variants, of_others), self.margin, self.margin, sd, seconds
        )
        return [*lines[:-1], f"{lines[-1]}, as in docs/noise.csv"] if len(lines) > 1 else lines

    def contrast(self, pair: tuple[int, int]) -> str:
        """The name of a contrast."""
        return f"{self.names[pair[0]]} against {self.names[pair[1]]}"
