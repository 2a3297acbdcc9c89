"""A duel: two methods on one text, at equal parameters, each at its own learning rate, in limited time."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.analysis import stats
from ablate.analysis.compare import Comparison, compare
from ablate.analysis.load import load
from ablate.compose.asked import Sweep
from ablate.compute.cores import side_by_side
from ablate.config.identity import digest
from ablate.config.rules import ConfigError, did_you_mean
from ablate.config.schema import STANDARD_FUSION, STANDARD_SCORES
from ablate.execution.prepare import Prepared
from ablate.files.atomic import write_atomically
from ablate.phrases import counted, duration
from ablate.reporting.words import share_of_attention
from ablate.store.store import Store
from ablate.study.run import declared_here, run

if TYPE_CHECKING:
    from ablate.study.outcome import Outcome

MARGIN, METRIC = 0.01, "test_loss"
DEVELOP, RATES = [0, 1, 2, 3, 4], [0.006, 0.012, 0.024]
EXTENSIONS = 1  # octaves by which grids grow in most studies, for the forecast
FIRST_SEED, FEWEST, MOST = 1000, 4, 400  # reporting seeds
# The scatter of paired differences on pydoc at the defaults (docs/noise.csv), taken for every text.
USUAL_SD = 0.0122
ONE, OTHER, YARDSTICK = ARMS = ("one", "other", "yardstick")
UNIFORM = "uniform"  # the scores of the yardstick: its heads average all earlier tokens
TAKEN = ("name", "seed", "seeds", "study", "size", "force", "hydra/sweeper")  # keys that a duel sets
PLAN = "plan.json"


@dataclass(frozen=True)
class Side:
    """A method in the duel, with the group that chooses it."""

    kind: str
    name: str

    @property
    def arm(self) -> dict[str, str]:
        """What it sets, with the standard part of the other kind."""
        return {"fusion": STANDARD_FUSION, "scores": STANDARD_SCORES, self.kind: self.name}


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
    """The duel of `one` against `other`, the baseline. settings: overrides of every run. command: what was
    typed; another command, as with another budget, is another duel with fresh seeds."""

    def __init__(self, one: Side, other: Side, settings: Sequence[str], command: str) -> None:
        if one.arm == other.arm:
            raise ConfigError(f"{one.name}: a method can't be in a duel with itself; name another one")
        for setting in settings:
            key, _, value = setting.lstrip("+~").partition("=")
            if key.partition(".")[0] in TAKEN or key in (one.kind, other.kind, "train.lr", "match"):
                raise ConfigError(f"{setting}: a duel sets {key} itself; leave it out")
            if re.search(r"^(range|choice|glob)\(|,(?![^\[{(]*[\]})])", value):
                raise ConfigError(f"{setting}: both sides of a duel have one value; give one")
        self.one, self.other, self.settings, self.command = one, other, [*settings], command
        named = digest([one.arm, other.arm, sorted(settings), command])
        self.study = f"duel-{one.name}-{other.name}-{named[:6]}"
        self.first_seed = FIRST_SEED + int(named[:6], 16)

    def plan(self, budget_s: float) -> Plan:
        """What a budget buys on this machine, settled when the duel begins. Raises ConfigError if that is
        nothing."""
        kept = Store().study_directory(self.study) / PLAN
        if kept.is_file():
            return Plan(**json.loads(kept.read_text(encoding="utf-8")))
        estimate = run(self._asked(FEWEST), dry_run=True).estimate
        assert estimate is not None
        each_s = (
            estimate.times.total / max(1, estimate.runs - estimate.finished) / side_by_side(estimate.threads)
        )
        develop_s = len(ARMS) * len(DEVELOP) * (len(RATES) + EXTENSIONS) * each_s
        a_seed_s = len(ARMS) * each_s
        seeds = min(math.floor((budget_s - develop_s) / a_seed_s), MOST) if a_seed_s else MOST
        if seeds < FEWEST:
            takes = "; ".join(
                f"{duration(develop_s + n * a_seed_s)} sees {_sees(n):.3f} nats" for n in (FEWEST, 12, 24)
            )
            raise ConfigError(f"--budget {duration(budget_s)}: too short to see anything; {takes}")
        plan = Plan(seeds, develop_s + seeds * a_seed_s, _sees(seeds))
        write_atomically(kept, json.dumps(asdict(plan)) + "\n")
        return plan

    def fight(self, plan: Plan) -> tuple["Outcome", Result]:
        """Train what is missing, and say which is better. Raises ConfigError."""
        outcome = run(self._asked(plan.seeds))
        results = load([self.study])
        (record,) = results.records
        for side, arm in ((self.one, ONE), (self.other, OTHER)):
            if (choice := record.chosen.get(arm)) and choice.value is None:
                raise ConfigError(f"{side.name}: {choice.doubt}, so there is nothing to compare")
        result = compare(results.rows, records=[record])
        return outcome, Result(result, self._line(result), self.study)

    def time_ratio(self, result: Result) -> str:
        """How long a training step of `one` takes relative to `other`, taking turns here, with its range."""
        from ablate.execution.timing import with_cost  # loads torch

        primary = result.comparison.family("primary").reset_index(drop=True)
        timed, _ = with_cost(primary, result.comparison.runs, [Store()])
        (row,) = timed.query("baseline == baseline").to_dict("records")
        return f"{row['step_ratio']:.2f} [{row['step_ratio_low']:.2f}, {row['step_ratio_high']:.2f}]"

    def _asked(self, seeds: int) -> Sweep:
        asked = declared_here({}, [f"name={self.study}", *self.settings], command=self.command)
        matched = {**self.other.arm, "match": "params"}
        baseline = asked.configs(tuple(f"{key}={value}" for key, value in matched.items()))
        # The yardstick has the MLP of the baseline; matched itself, it would get a wider one.
        width = Prepared(baseline, elsewhere=True).with_seeds(baseline).spec.mlp_hidden
        arms = {
            OTHER: matched,
            ONE: {**self.one.arm, "match": "params"},
            YARDSTICK: {**self.other.arm, "scores": UNIFORM, "model.mlp_hidden": width},
        }
        block: dict[str, Any] = {
            **{"kind": "tuned", "question": f"Is {self.one.name} better than {self.other.name}?"},
            **{"tune": "train.lr", "factors": {"train.lr": RATES}, "arms": arms},
            **{"develop": DEVELOP, "extend": 3, "report_at": ["tuned"]},
            "seeds": [*range(self.first_seed, self.first_seed + seeds)],
            "primary": [{"baseline": self.other.arm, "variants": [self.one.arm]}],
            **{"metric": METRIC, "margin": MARGIN},
        }
        return replace(asked, study=block)

    def _line(self, result: Comparison) -> str:
        """The result in a sentence, from the side of `one`."""
        (row,) = result.family("primary").query("baseline == baseline").to_dict("records")
        names, diff, low, high = (self.one.name, self.other.name), row["diff"], row["low"], row["high"]
        if row["p"] != row["p"]:
            return f"{names[0]} against {names[1]} is undecided: {row['why']}"
        if row["verdict"] == stats.UNDECIDED:
            told = f"{names[0]} against {names[1]} is undecided: {diff:+.3f}"
        elif row["verdict"] == stats.EQUIVALENT:
            told = f"{names[0]} and {names[1]} are equivalent within {MARGIN:g}: {diff:+.3f}"
        else:
            side = "better" if diff < 0 else "worse"
            diff, low, high = (diff, low, high) if diff > 0 else (-diff, -high, -low)
            told = f"{names[0]} is {side} than {names[1]} by {diff:.3f}"
        interval = f"{told} [{low:.3f}, {high:.3f}] nats{share_of_attention(row['share'])}"
        if row["verdict"] in (stats.BETTER_WITHIN, stats.WORSE_WITHIN):
            interval += ", less than the margin"
        return f"{interval}, n = {row['pairs']}"


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
