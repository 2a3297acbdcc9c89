"""A duel: two methods on one text, at equal parameters, each at its own learning rate, in limited time."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.analysis.arms import of_arms
from ablate.analysis.compare import Comparison, compare
from ablate.analysis.load import load
from ablate.compose.asked import Sweep
from ablate.config.identity import digest
from ablate.config.rules import ConfigError, did_you_mean
from ablate.config.schema import STANDARD_FUSION, STANDARD_SCORES
from ablate.phrases import counted, duration
from ablate.store.record import StudyRecord
from ablate.store.store import Store
from ablate.study.run import declared_here, run

if TYPE_CHECKING:
    from ablate.study.outcome import Outcome

MARGIN, METRIC = 0.01, "test_loss"
DEVELOP, RATES = [0, 1, 2, 3, 4], [0.006, 0.012, 0.024]
EXTENSIONS = 1  # octaves by which grids grow in most studies, for the forecast
FIRST_SEED, FEWEST, MOST = 100, 4, 400  # reporting seeds
# The scatter of paired differences on pydoc at the defaults (docs/noise.csv), until this text shows its own.
USUAL_SD = 0.0122
UNIFORM = "uniform"  # the arm whose heads average all earlier tokens, which says what attention is worth


@dataclass(frozen=True)
class Side:
    """A method in the duel, with the override that chooses it."""

    kind: str
    name: str

    @property
    def arm(self) -> dict[str, str]:
        """What it sets, with the standard part of the other kind."""
        standard = {"fusion": STANDARD_FUSION, "scores": STANDARD_SCORES}
        return {**standard, self.kind: self.name, "match": "params"}


@dataclass(frozen=True)
class Plan:
    """What a budget buys. seeds: reporting ones. seconds: of all runs, one grid extension included. sees:
    the smallest difference in nats that is found with 80 % power."""

    seeds: int
    seconds: float
    sees: float


@dataclass(frozen=True)
class Result:
    """comparison: of the two. line: its one sentence. study: its name in the store."""

    comparison: Comparison
    line: str
    study: str


class Duel:
    """The duel of `one` against `other`, the baseline. settings: overrides of every run."""

    def __init__(self, one: Side, other: Side, settings: Sequence[str], command: str) -> None:
        if one == other:
            raise ConfigError(f"{one.name}: a method can't be in a duel with itself; name another one")
        self.one, self.other, self.settings, self.command = one, other, [*settings], command
        suffix = f"-{digest(sorted(settings))[:6]}" if settings else ""
        self.study = f"duel-{one.name}-{other.name}{suffix}"

    def plan(self, budget_s: float) -> Plan:
        """What a budget buys on this machine. Raises ConfigError if that is nothing."""
        estimate = run(self._asked(FEWEST), dry_run=True).estimate
        assert estimate is not None
        development = len(self._arms) * len(DEVELOP) * (len(RATES) + EXTENSIONS)
        left = estimate.runs - estimate.finished
        each_s = estimate.seconds / left if left else self._seconds_of_runs() / estimate.workers
        a_seed_s = len(self._arms) * each_s
        seeds = min(math.floor((budget_s - development * each_s) / a_seed_s), MOST)
        before = Store().read_study(self.study)
        seeds = max(seeds, len(before.seeds) - len(DEVELOP) if before else 0)  # what was begun goes on
        if seeds < FEWEST:
            rows = [(n, (development * each_s) + n * a_seed_s) for n in (FEWEST, 12, 24)]
            takes = "; ".join(f"{duration(s)} sees {_sees(n):.3f} nats" for n, s in rows)
            raise ConfigError(f"--budget {duration(budget_s)}: too short to see anything; {takes}")
        return Plan(seeds, development * each_s + seeds * a_seed_s, _sees(seeds))

    def fight(self, plan: Plan) -> tuple["Outcome", Result]:
        """Train what is missing, and say which is better. Raises ConfigError."""
        outcome = run(self._asked(plan.seeds))
        results = load([self.study])
        (record,) = results.records
        result = compare(results.rows, records=[record])
        return outcome, Result(result, self._line(result, results.rows, record), self.study)

    @property
    def _arms(self) -> dict[str, Mapping[str, str]]:
        of_other = {key: value for key, value in self.other.arm.items() if key != "match"}
        return {
            self.other.name: self.other.arm,
            self.one.name: self.one.arm,
            UNIFORM: {**of_other, "scores": UNIFORM},
        }

    def _asked(self, seeds: int) -> Sweep:
        unmatched = [{k: v for k, v in side.arm.items() if k != "match"} for side in (self.one, self.other)]
        block: dict[str, Any] = {
            **{"kind": "tuned", "question": f"Is {self.one.name} better than {self.other.name}?"},
            **{"tune": "train.lr", "factors": {"train.lr": RATES}, "arms": self._arms},
            **{"develop": DEVELOP, "extend": 3, "report_at": ["tuned"]},
            "seeds": [*range(FIRST_SEED, FIRST_SEED + seeds)],
            "primary": [{"baseline": unmatched[1], "variants": [unmatched[0]]}],
            **{"metric": METRIC, "margin": MARGIN},
        }
        return declared_here(block, [f"name={self.study}", *self.settings], command=self.command)

    def _seconds_of_runs(self) -> float:
        """The median time of the finished runs."""
        times = [float(row["wall_s"]) for row in Store().study_rows(self.study) if row.get("wall_s")]
        return float(np.median(times)) if times else 0.0

    def time_ratio(self, result: Result) -> str:
        """How long a training step of `one` takes relative to `other`, taking turns here, with its range."""
        from ablate.execution.timing import with_cost  # loads torch

        primary = result.comparison.family("primary").reset_index(drop=True)
        timed, _ = with_cost(primary, result.comparison.runs, [Store()])
        (row,) = timed.query("baseline == baseline").to_dict("records")
        return f"{row['step_ratio']:.2f} [{row['step_ratio_low']:.2f}, {row['step_ratio_high']:.2f}]"

    def _line(self, result: Comparison, rows: pd.DataFrame, record: StudyRecord) -> str:
        """The result in a sentence, from the side of `one`."""
        (row,) = result.family("primary").query("baseline == baseline").to_dict("records")
        losses = of_arms(self._arms, rows, record, METRIC, sorted({*record.seeds} - {*DEVELOP}))
        worth = float(np.nanmean(losses[UNIFORM] - losses[self.other.name]))
        names, diff, low, high = (self.one.name, self.other.name), row["diff"], row["low"], row["high"]
        if row["verdict"] == stats.UNDECIDED:
            told = f"{names[0]} against {names[1]} is undecided: {diff:+.3f}"
        elif row["verdict"] == stats.EQUIVALENT:
            told = f"{names[0]} and {names[1]} are equivalent within {MARGIN:g}: {diff:+.3f}"
        else:
            side = "better" if diff < 0 else "worse"
            diff, low, high = (diff, low, high) if diff > 0 else (-diff, -high, -low)
            told = f"{names[0]} is {side} than {names[1]} by {diff:.3f}"
        share = f", {100 * abs(diff) / worth:.2g} % of what attention is worth" if worth > 0 else ""
        return f"{told} [{low:.3f}, {high:.3f}] nats{share}, n = {row['pairs']}"


def side(given: str) -> Side:
    """The method of this name, or of this plugin file, which has to be in use. Raises ConfigError."""
    from ablate.execution.plugins import methods, read
    from ablate.model import fusion, scores

    if given.endswith(".py"):
        own = [Side(method.kind, method.name) for method in methods([read(Path(given))])]
        if len(own) != 1:
            raise ConfigError(f"{given}: {counted(len(own), 'method')} in it; a duel takes a file with one")
        return own[0]
    known = {"fusion": fusion.methods(), "scores": scores.methods()}
    for kind, names in known.items():
        if given in names:
            return Side(kind, given)
    names = [name for of_kind in known.values() for name in of_kind]
    raise ConfigError(f"{given}: no such method{did_you_mean(given, names)}")


def failed_check(side: Side) -> Iterator[str]:
    """A line for each check of the contract that a method fails (ablate check)."""
    from ablate.verify.contract import findings

    for finding in findings(side.kind, side.name):
        if finding.broken:
            yield f"{finding.variant}: {finding.check}: {finding.broken}"


def _sees(seeds: int) -> float:
    return float(stats.least_difference(seeds, USUAL_SD, 0.05))
