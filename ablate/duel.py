"""A duel: two methods on one text, at equal parameters, each at its own learning rate, in limited time."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.analysis.compare import Comparison, compare
from ablate.analysis.contrasts import NO_ATTENTION
from ablate.analysis.controls import equal_forms
from ablate.analysis.load import load
from ablate.analysis.looks import USUAL_SD, least_difference
from ablate.analysis.speed import with_step_times
from ablate.compose.sweep import Sweep
from ablate.compute.limits import side_by_side
from ablate.config.contrast import MARGIN
from ablate.config.identity import digest
from ablate.config.rules import ConfigError, did_you_mean
from ablate.config.schema import STANDARD_FUSION, STANDARD_SCORES
from ablate.execution.plugins import KINDS, Method, methods, read
from ablate.execution.run import Run, resolve
from ablate.files.atomic import write_atomically
from ablate.phrases import counted, duration
from ablate.reporting.words import PAPER, finding, parametrization, share_of_attention, step_ratio
from ablate.store.store import Store
from ablate.study.run import Outcome, declared_here, run
from ablate.study.study import settings

if TYPE_CHECKING:
    from ablate.study.estimate import Estimate

METRIC = "test_loss"
BUDGET = {"corpus": "stdlib", "train": "study"}  # text and training, where nothing else is given
DEVELOP, RATES = [0, 1, 2, 3, 4], [0.006, 0.012, 0.024]
EXTENSIONS = 1  # octaves by which grids grow in most studies, for the forecast
FIRST_SEED, FEWEST, MOST = 1000, 4, 400  # reporting seeds
ARMS = 3  # the two sides, and the reference for shares
UNIFORM = "uniform attention"  # the name of its arm, which no method has
TAKEN = ("name", "seed", "seeds", "study", "size", "force", "hydra/sweeper")  # keys that a duel sets
MATCHED = {"match": "params"}
PLAN = "plan.json"


@dataclass(frozen=True)
class Plan:
    """seeds: reporting seeds that the budget pays for. seconds: of all runs, one grid extension included.
    detectable: the smallest difference in nats that is detected with 80 % power."""

    seeds: int
    seconds: float
    detectable: float


class Duel:
    """The duel of `one` against `other`, the baseline. settings: overrides of every run. command: what was
    typed; another command, as with another budget, is another duel with fresh seeds. study: its name in the
    store. Raises ConfigError."""

    def __init__(self, one: Method, other: Method, settings: Sequence[str], command: str) -> None:
        if arm_of(one) == arm_of(other):
            raise ConfigError(f"{one.name}: a method can't be in a duel with itself; name another one")
        keys = [setting.lstrip("+~").partition("=")[0] for setting in settings]
        for setting, key in zip(settings, keys, strict=True):
            if key.partition(".")[0] in TAKEN or key in (one.kind, other.kind, "train.lr", "match"):
                raise ConfigError(f"{setting}: a duel sets {key} itself; leave it out")
        self.one, self.other = one, other
        named = digest([arm_of(one), arm_of(other), sorted(settings), command])
        self.study = f"duel-{one.name}-{other.name}-{named[:6]}"
        self.first_seed = FIRST_SEED + int(named[:6], 16)
        budget = [f"{key}={value}" for key, value in BUDGET.items() if key not in keys]
        self._sweep = declared_here({}, [f"name={self.study}", *budget, *settings], command=command)
        for key, setting in self._sweep.configs.settings(settings).items():
            if setting.swept:
                raise ConfigError(
                    f"{key}={','.join(setting.values)}: both sides of a duel have one value; give one"
                )

    def plan(self, budget_s: float) -> Plan:
        """What a budget buys on this machine, settled when the duel begins. Raises ConfigError if that is
        nothing, or if the two are one function."""
        kept = Store().study_directory(self.study) / PLAN
        if kept.is_file():
            try:
                return Plan(**json.loads(kept.read_text(encoding="utf-8")))
            except (OSError, ValueError, TypeError) as error:
                raise ConfigError(f"{kept}: can't be read ({error}); remove it to plan anew") from error
        if len({*equal_forms(settings(self._sides))}) == 1:
            raise ConfigError(
                f"{self.one.name} and {self.other.name} are the same function here, so there is nothing to"
                " compare; name another method, or change a setting such as heads"
            )
        first = self._estimate(DEVELOP)
        # Another duel may have trained them all: then the same runs with a seed that no run has.
        timed = first if first.finished < first.runs else self._estimate([self.first_seed - 1])
        if timed.untimed:
            raise ConfigError(f"a budget needs a machine that can time a run: {timed.untimed}")
        workers = self._sweep.launcher.workers
        at_once = timed.workers if timed.cluster else workers or side_by_side(timed.threads)
        each_s = timed.times.total / (timed.runs - timed.finished) / at_once
        develop = ARMS * len(DEVELOP) * (len(RATES) + EXTENSIONS) - first.finished
        a_seed_s = ARMS * each_s
        seeds = int(min((budget_s - develop * each_s) / a_seed_s, MOST))
        if seeds < FEWEST:
            takes = "; ".join(
                f"{duration(develop * each_s + n * a_seed_s)} detects {_detectable(n):.3f} nats"
                for n in (FEWEST, 12, 24)
            )
            raise ConfigError(f"--budget {duration(budget_s)}: too short to detect anything; {takes}")
        plan = Plan(seeds, develop * each_s + seeds * a_seed_s, _detectable(seeds))
        write_atomically(kept, json.dumps(asdict(plan)) + "\n")
        return plan

    def train(self, plan: Plan) -> Outcome:
        """Train what is missing. Raises ConfigError."""
        return run(self._sweep_with(plan.seeds, DEVELOP))

    def result(self) -> tuple[Comparison, str]:
        """The comparison of the two once all runs are finished, and its sentence. Raises ConfigError."""
        results = load([self.study])
        (record,) = results.records
        for side in (self.one, self.other):
            if (choice := record.chosen.get(side.name)) and choice.value is None:
                raise ConfigError(f"{side.name}: {choice.doubt}, so there is nothing to compare")
        comparison = compare(results.rows, records=[record])
        (row,) = comparison.family("primary").query("baseline == baseline").to_dict("records")
        sentence = finding(row, comparison, PAPER, one=self.one.name, other=self.other.name, at="")
        end = parametrization(row, comparison)
        return comparison, f"{sentence}{share_of_attention(row['share'])}{end}."

    def step_ratio(self, comparison: Comparison) -> str:
        """How long a training step of `one` takes relative to `other`, taking turns here, with its range."""
        from ablate.execution.timing import StepTimer  # loads torch

        primary = comparison.family("primary").reset_index(drop=True)
        runs = {variant: comparison.runs[variant] for variant in primary["variant"]}
        timed = with_step_times(primary, StepTimer(runs, [Store()]))
        (row,) = timed.query("baseline == baseline").to_dict("records")
        return step_ratio(row)

    @cached_property
    def _sides(self) -> tuple[Run, Run]:
        """A run of `one` and one of `other`. Raises ConfigError if a side can't be built or matched."""
        one, other = (
            resolve(self._sweep.configs((*self._sweep.arguments, *(f"{k}={v}" for k, v in keys.items()))))
            for keys in self._arms
        )
        return one, other

    @property
    def _arms(self) -> tuple[dict[str, str], dict[str, str]]:
        return {**arm_of(self.one), **MATCHED}, {**arm_of(self.other), **MATCHED}

    def _sweep_with(self, seeds: int, develop: Sequence[int]) -> Sweep:
        # The reference for shares has the MLP of the baseline; matched itself, it would get a wider one.
        width = self._sides[1].spec.mlp_hidden
        one, other = self._arms
        arms = {
            self.other.name: other,
            self.one.name: one,
            UNIFORM: {**arm_of(self.other), "scores": NO_ATTENTION, "model.mlp_hidden": width},
        }
        block: dict[str, Any] = {
            **{"kind": "tuned", "question": f"Is {self.one.name} better than {self.other.name}?"},
            **{"tune": "train.lr", "factors": {"train.lr": RATES}, "arms": arms},
            **{"develop": [*develop], "extend": 3, "report_at": ["tuned"]},
            "seeds": [*range(self.first_seed, self.first_seed + seeds)],
            "primary": [{"baseline": other, "variants": [one]}],
            **{"metric": METRIC, "margin": MARGIN},
        }
        return replace(self._sweep, study=block)

    def _estimate(self, develop: Sequence[int]) -> "Estimate":
        estimate = run(self._sweep_with(FEWEST, develop), dry_run=True).estimate
        assert estimate is not None
        return estimate


def side(given: str) -> Method:
    """The method of this name, or of this plugin file, which has to be in use. Raises ConfigError."""
    if given.endswith(".py"):
        own = methods([read(Path(given))])
        if len(own) != 1:
            raise ConfigError(f"{given}: {counted(len(own), 'method')} in it; a duel takes a file with one")
        return own[0]
    known = [Method(kind, name) for kind, folder in KINDS.items() for name in folder.methods()]
    for method in known:
        if method.name == given:
            return method
    raise ConfigError(f"{given}: no such method{did_you_mean(given, [one.name for one in known])}")


def arm_of(side: Method) -> dict[str, str]:
    """What a side sets, with the standard part of the other kind."""
    return {"fusion": STANDARD_FUSION, "scores": STANDARD_SCORES, side.kind: side.name}


def _detectable(seeds: int) -> float:
    return least_difference(seeds, USUAL_SD[METRIC])
