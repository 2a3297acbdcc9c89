"""What a study declares in advance, in its YAML: its question, its grid, and what it will be judged by; and
its design, a pure function from the rows so far to the runs to train next, so that it resumes from any
state."""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from ablate.analysis import stats
from ablate.analysis.looks import SEEDS
from ablate.analysis.stats import Judged
from ablate.compose.composer import Overrides
from ablate.config.conditions import Where
from ablate.config.contrast import FEWEST, MARGIN, Contrasts
from ablate.config.read import hints
from ablate.config.rules import Above, ConfigError, Rule, as_override, as_value, did_you_mean, line_on
from ablate.config.schema import RunConfig
from ablate.store.columns import METRICS, RESULTS, Row, Status, column_named
from ablate.store.record import Choice, Decided, PlannedLooks, Role
from ablate.study.plan import Plan

Rows = Mapping[Overrides, Row]
SEED = "seed="


def values_of(value: Any, path: str) -> list[str]:
    """A list of values to sweep over, or a single one; each once, in the syntax of overrides."""
    values = value if isinstance(value, list) else [value]
    if not values:
        raise ConfigError(f"{path}: the sweep is empty; list values")
    if groups := [one for one in values if isinstance(one, Mapping)]:
        raise ConfigError(f"{path}: {groups[0]}: a level is one value; sweep each key by itself")
    return [*dict.fromkeys(map(as_value, values))]


def seeds_of(value: Any, path: str) -> list[str]:
    """As `values_of`, but always a list: `seeds: 3` would mean one seed, but look like three."""
    if not isinstance(value, list):
        raise ConfigError(f"{path}={as_override(value)}: write a list, as [0, 1, 2]")
    return values_of(value, path)


def arm_of(value: Any, path: str) -> dict[str, str]:
    """What one arm sets: keys of a run, each with one value; kept in the syntax of overrides."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{path}={as_override(value)}: write what the arm sets, as {{fusion: sum}}")
    return {str(key): as_value(one) for key, one in value.items()}


def require_keys_of_a_run(value: Mapping[str, Any], path: str) -> None:
    keys = hints(RunConfig)
    for key in value:
        if key.partition(".")[0] not in keys:
            raise ConfigError(line_on(key) or f"{path}.{key}: no key of a run{did_you_mean(key, keys)}")


def require_looks(value: Sequence[int], path: str) -> None:
    """Numbers of seeds, each above the one before."""
    if value and (min(value) < FEWEST or sorted({*value}) != value):
        raise ConfigError(
            f"{path}={as_override(value)}: looks are numbers of seeds, each above the one before and"
            f" none below {FEWEST}, which a verdict takes; write [8, 12, 16], or [] for a fixed design"
        )


Levels = Annotated[list[str], Rule(read=values_of)]
Arm = Annotated[Mapping[str, str], Rule(read=arm_of, check=require_keys_of_a_run)]
Seeds = Annotated[list[str], Rule(read=seeds_of)]


class Absent(StrEnum):
    """The status of a run that has no row in the store."""

    EXCLUDED = "left out"  # impossible, or excluded by a condition
    MISSING = auto()  # it could not begin


def seed_of(run: Overrides) -> str:
    """The seed of a run, in the syntax of overrides."""
    return next(override for override in run if override.startswith(SEED)).removeprefix(SEED)


def combinations(levels: Mapping[str, Sequence[str]], arms: Iterable[Overrides] = ((),)) -> list[Overrides]:
    """Each arm with every combination of the levels, the last key changing fastest."""
    return [
        (*arm, *(f"{key}={value}" for key, value in zip(levels, values, strict=True)))
        for arm in arms
        for values in itertools.product(*levels.values())
    ]


@dataclass(frozen=True)
class Design:
    """Which runs come next. This is the design of a grid, and of any sweep: every combination.

    levels: override key -> values, in the syntax of overrides, for all keys that were given. arms: what is
    compared, and names: what the first overrides of each are called. plan: what is judged, and at which looks
    arms may stop before the last seed. needs_test_split: whether it reports on the test split. unnamed: keys
    that are in no name.
    """

    levels: Mapping[str, Sequence[str]]
    arms: Sequence[Overrides] = ((),)
    names: Mapping[Overrides, str] = field(default_factory=dict)
    plan: Plan | None = None
    needs_test_split: ClassVar[bool] = False
    unnamed: Collection[str] = ()

    @property
    def looks(self) -> Plan | None:
        """The plan, if it has looks."""
        return self.plan if self.plan and self.plan.at else None

    def propose(self, rows: Rows) -> list[Overrides]:
        """The runs to train next; none when the study is complete, or waits for runs that are under way."""
        return self._up_to("now", rows)

    def planned(self, rows: Rows) -> PlannedLooks | None:
        """The looks as study.json keeps them, with what is decided so far."""
        if not (looks := self.looks) or (now := self.standing(rows)) is None:
            return None
        each = zip(looks.contrasts, now.seeds.tolist(), now.verdict.tolist(), strict=True)
        return PlannedLooks(
            at=[*looks.at],
            seeds=[*map(int, looks.seeds)],
            decided={one.name: Decided(at, of) for one, at, of in each if of != stats.UNDECIDED},
            may_follow=len(self._up_to("most", rows)) - len(self.propose(rows)),
        )

    def _up_to(self, when: Literal["now", "most"], rows: Rows) -> list[Overrides]:
        new = [overrides for overrides in self.members(rows) if overrides not in rows]
        if not (looks := self.looks) or (now := self.standing(rows)) is None:
            return new
        wanted, order = looks.seeds_wanted(now, when), {seed: at for at, seed in enumerate(looks.seeds)}
        place = {run: order.get(seed_of(run), -1) for run in new}  # of its seed; -1 if it does not report
        among = (run for run in new if place[run] < wanted.get(self.arm_of(run), 0))
        return sorted(among, key=lambda run: place[run])

    def standing(self, rows: Rows) -> Judged | None:
        """What the looks have decided by these rows; None without looks."""
        if (looks := self.looks) is None:
            return None
        results = {(self.arm_of(run), seed_of(run)): rows[run] for run in self.reporting(rows, rows)}
        values = np.full((len(looks.arms), len(looks.seeds)), np.nan)
        lost = np.zeros(values.shape, bool)
        for a, arm in enumerate(looks.arms):
            for s, seed in enumerate(looks.seeds):
                if (row := results.get((arm, seed))) and row["status"] in RESULTS:
                    value = row.get(looks.metric)
                    values[a, s] = np.nan if value is None else value
                    lost[a, s] = row["status"] == Status.DIVERGED or np.isinf(values[a, s])
        values[lost] = np.nan
        return looks.stand(values, lost)

    def reporting(self, runs: Iterable[Overrides], rows: Rows) -> list[Overrides]:
        """Of these runs, those by which arms are judged."""
        return [*runs]

    def members(self, rows: Rows) -> Collection[Overrides]:
        """Every run of the study that follows from these rows, if no look ends it earlier."""
        return combinations(self.levels, self.arms)

    @property
    def compared(self) -> list[Overrides]:
        """The arms with their levels of all factors but the seed."""
        return combinations({key: values for key, values in self.levels.items() if key != "seed"}, self.arms)

    def name(self, arm: Overrides) -> str:
        """What one of `compared` is called: its name, and the overrides that distinguish it from others."""
        own = max((one for one in self.names if arm[: len(one)] == one), key=len, default=())
        shared = set(self.compared[0]).intersection(*self.compared)
        shared |= {one for one in arm if one.partition("=")[0] in self.unnamed}
        others = (one for one in arm[len(own) :] if one not in shared)
        return " ".join(filter(None, [self.names.get(own), *others])) or " ".join(arm)

    def first_runs(self, arm: Overrides) -> list[Overrides]:
        """Runs of one of `compared`, all at one seed: at each value at which it may be trained."""
        return [(*arm, f"{SEED}{self.levels['seed'][0]}")]

    def arm_of(self, run: Overrides) -> Overrides:
        """The one of `compared` that a run is of."""
        return tuple(override for override in run if not override.startswith(SEED))

    def roles(self, rows: Rows, ids: Mapping[Overrides, str]) -> tuple[dict[str, Role], dict[str, Choice]]:
        """The roles of the runs, by run id, and the choice for each arm. ids: the run ids, by overrides."""
        return {}, {}

    def phase(self, rows: Rows) -> tuple[str, str, int]:
        """Where the study is: what its next runs are for, empty if it is all one phase, and how many runs it
        has in all, with a word on how far that is known; none if it is fixed."""
        known = sum(row["status"] != Absent.EXCLUDED for row in rows.values())
        return "", "at most " if self.looks else "", known + len(self._up_to("most", rows))

    def closing(self, rows: Rows) -> list[str]:
        """Lines to print at the end."""
        return []


@dataclass(frozen=True, kw_only=True)
class StudyConfig:
    """The keys of a grid, which every kind of study declares. factors: override key -> levels.

    seeds: by default as many as the last look takes, or SEEDS. looks: the numbers of seeds at which a
    contrast may be decided, the last one all seeds; [] for a fixed design, by default those of `looks.usual`.
    arms: what is compared, if it is no product of levels: by name, what each sets; every
    arm meets every combination of the factors. where: conditions that every run has to fulfil. primary: the
    contrasts chosen in advance. metric, margin: what they are judged by. answer: names of arms or levels for
    use in a sentence.
    """

    kind: ClassVar[str] = "grid"
    example: ClassVar[str] = "fusion"  # a study that shows all keys of the kind

    question: str
    factors: Annotated[
        Mapping[str, Levels],
        Rule(check=require_keys_of_a_run, text="write each key with its levels, as {heads: [1, 4]}"),
    ]
    seeds: Seeds = field(default_factory=list)
    looks: Annotated[list[int] | None, Rule(check=require_looks)] = None
    arms: Mapping[str, Arm] = field(default_factory=dict)
    where: Annotated[list[Where], Rule(text="write a list, as [heads <= 4]; [] for none")] = field(
        default_factory=list
    )
    primary: Contrasts
    metric: str
    margin: Annotated[
        float | None,
        Above(0),
        Rule(text="what makes no difference, in the metric's unit; use a number above 0"),
    ] = None
    answer: Annotated[
        Mapping[str, str], Rule(text="write levels with what they are called, as {sum: summing the heads}")
    ] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.metric not in METRICS:  # columns with one number a run
            near = did_you_mean(self.metric, METRICS)
            raise ConfigError(f"study.metric={self.metric}: no column of results{near}")
        if self.margin is None and column_named(self.metric).unit == "nats":
            object.__setattr__(self, "margin", MARGIN)
        arms = {f"arms.{name}": arm for name, arm in self.arms.items()}
        for where, keys in {"factors": self.factors, **arms}.items():
            for key in {"seed", "name", "force", "study"} & {*keys}:
                raise ConfigError(f"study.{where}.{key}: it makes no arm, as seeds make none; leave it out")
        for where, key in ((where, key) for where, arm in arms.items() for key in arm if key in self.factors):
            levels = ",".join(dict.fromkeys([*self.factors[key], arms[where][key]]))
            way_out = f"leave it out, and add the level to the factor: {key}={levels}"
            raise ConfigError(f"study.{where}.{key}: every arm meets all levels of this factor; {way_out}")
        for one, other in itertools.combinations(self.arms, 2):
            if self.arms[one] == self.arms[other]:
                raise ConfigError(f"study.arms: {one} and {other} set the same; leave one of them out")

    @property
    def levels(self) -> dict[str, list[str]]:
        """The levels of the factors and of the seed."""
        count = self.looks[-1] if self.looks else SEEDS
        usual = [str(self.first_seed + at) for at in range(count)]
        return {**self.factors, "seed": self.seeds or usual}

    @property
    def first_seed(self) -> int:
        """The first seed of a study that lists none."""
        return 0

    @property
    def named_arms(self) -> dict[Overrides, str]:
        """The names of the arms, by what they set; one without a name if there is only the product."""
        arms = self.arms or {"": {}}
        return {tuple(f"{key}={value}" for key, value in arm.items()): name for name, arm in arms.items()}

    @property
    def own_keys(self) -> set[str]:
        """The keys besides the factors that its runs differ in."""
        return {key for arm in self.arms.values() for key in arm}

    def arms_at(self, levels: Mapping[str, Sequence[str]]) -> list[Overrides]:
        """The arms, each with every combination of these levels."""
        return combinations(levels, self.named_arms)

    def places(self, levels: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Overrides]]:
        """The arms by name at each combination of the levels of its factors, with what that is called, as the
        end of a clause."""
        levels, at = {key: of for key, of in levels.items() if key not in self.of_no_arm}, {}
        for values in itertools.product(*levels.values()):
            place = dict(zip(levels, values, strict=True))
            called = [f"{key}={value}" for key, value in place.items() if len(levels[key]) > 1]
            arms = self.arms_at({key: [value] for key, value in place.items()})
            named = dict(zip(self.named_arms.values(), arms, strict=True))
            at[f" at {', '.join(called)}" if called else ""] = named
        return at

    @property
    def of_no_arm(self) -> list[str]:
        """The keys that tell runs of one arm apart, in which it may also differ from its baseline."""
        return ["seed"]

    def design(self, levels: Mapping[str, Sequence[str]]) -> Design:
        """What says which runs come next. levels: by key, those of the study unless the command line gives
        others, and those of all other keys given. Raises ConfigError."""
        return Design(levels, [*self.named_arms], self.named_arms)
