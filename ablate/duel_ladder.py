"""A duel on a ladder: two methods at several sizes, with a prediction for the largest (docs/scale.md)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ablate.analysis.compare import Comparison, compare
from ablate.analysis.load import load
from ablate.compose.sweep import Sweep
from ablate.config.rules import ConfigError
from ablate.duel import DEVELOP, MOST, Duel, Plan, Side, budget_text, detectable
from ablate.phrases import counted, duration
from ablate.reporting.ladder import findings
from ablate.study.ladder import FEWEST
from ablate.study.run import run

TOKENS = 10  # for each parameter, which corpus=stdlib carries to the fourth rung
FEWEST_SEEDS, ENOUGH = 2, (2, 4, 8)  # at each rung; and for which a budget is named if it is too short


@dataclass(frozen=True)
class LadderPlan(Plan):
    """seeds: that report at each rung. seconds: of all runs, if no grid grows. detectable: at one rung.
    rungs: how many there are."""

    rungs: int

    def __str__(self) -> str:
        return (
            f"about {duration(self.seconds)}: {self.rungs} sizes with {counted(self.seeds, 'seed')} each, of"
            " which the last is predicted from the others before it runs"
        )


class LadderDuel(Duel):
    """The duel of `one` against `other` at the `rungs` smallest presets of configs/model/rung."""

    kind_of_plan = LadderPlan

    def __init__(self, one: Side, other: Side, settings: Sequence[str], command: str, rungs: int) -> None:
        if rungs < FEWEST:
            raise ConfigError(
                f"--rungs {rungs}: a ladder takes at least {FEWEST}, of which the last is predicted"
            )
        super().__init__(one, other, settings, command)
        self.rungs = rungs

    def _settled(self, budget_s: float) -> LadderPlan:
        first = run(self._sweep_with(FEWEST_SEEDS, DEVELOP), dry_run=True).estimate
        assert first is not None
        if not first.costs:
            raise ConfigError(f"a budget needs a machine that can time a run: {first.untimed}")
        a_seed_s = sum(2 * cost.seconds for cost in first.costs) / first.at_once
        least_s = sum(cost.seconds * cost.stage.count for cost in first.costs) / first.at_once
        seeds = FEWEST_SEEDS + int(min((budget_s - least_s) // a_seed_s, MOST))
        if seeds < FEWEST_SEEDS:
            takes = "; ".join(
                f"--budget {budget_text(least_s + (n - FEWEST_SEEDS) * a_seed_s)} pays for {n} seeds at each"
                for n in ENOUGH
            )
            raise ConfigError(f"--budget {budget_text(budget_s)}: too short for {self.rungs} rungs; {takes}")
        seconds = least_s + (seeds - FEWEST_SEEDS) * a_seed_s
        return LadderPlan(seeds, seconds, detectable(seeds), self.rungs)

    def answer(self, plan: Plan) -> tuple[Comparison, list[str]]:
        results = load([self.study])
        comparison = compare(results.rows, records=results.records)
        if comparison.ladder is None:
            raise ConfigError(
                f"{self.study}: neither side has a result; ablate runs {self.study} lists the runs"
            )
        return comparison, findings(comparison, comparison.ladder)

    def _sweep_with(self, seeds: int, develop: Sequence[int]) -> Sweep:
        one, other = self._arms
        block = {
            **{"kind": "ladder", "rungs": [f"r{number}" for number in range(1, self.rungs + 1)]},
            **{"tokens": TOKENS, "seeds_a_rung": [seeds] * self.rungs},
            **{"arms": {self.other.name: other, self.one.name: one}, "baseline": self.other.name},
        }
        return replace(self._sweep, study={**self._block(seeds, develop), **block})
