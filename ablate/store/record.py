"""The record of a study, stored as study.json: what was asked for, the roles of its runs, how it may grow."""

import dataclasses
import datetime
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ablate.config.conditions import Where, column_for
from ablate.config.contrast import Contrasts
from ablate.config.identity import digest
from ablate.config.read import read, unlike_defaults
from ablate.config.rules import ConfigError
from ablate.files.atomic import StoreError
from ablate.phrases import some

ONE_BY_ONE = "single"  # the kind of a list of single runs
SURE = 16  # the first look where a run of development learned late, as one seed in eight may
LEVEL = 0.9  # of the interval of a prediction
LAST_DIGIT = 1.5e-4  # predictions have four decimals, the weights of their forms three


@dataclass(frozen=True, kw_only=True)
class Role:
    """The role of a run in a study that has runs of different roles. phase: develop or report. role: its
    roles, separated by spaces. tuned: the key whose value is chosen. values: for each role, the arms whose
    chosen value the run has."""

    phase: str
    role: str
    tuned: str
    values: Mapping[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """The chosen value of an arm, in the syntax of overrides; None if there is none. doubt: what speaks
    against it. how: tuned; or predicted from smaller models, and perhaps checked."""

    value: str | None
    doubt: str = ""
    how: str = "tuned"


@dataclass(frozen=True, kw_only=True)
class Rung:
    """A size of a ladder. name: its preset. size: parameters without embeddings. tokens: that each run trains
    on. overrides: its model with its heads and steps. seeds: those that report."""

    name: str
    size: int
    tokens: int
    overrides: list[str]
    seeds: list[int]


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """A predicted difference from the baseline. low, high: the interval of the observed one. as_below: the
    interval if it were as at the rung below. weights: of the forms that it may have."""

    difference: float
    low: float
    high: float
    as_below: list[float]
    weights: Mapping[str, float]

    def is_near(self, other: "Predicted") -> bool:
        """Whether they are the same but for the last digit, which another numpy may round the other way."""
        pairs = [
            *zip(
                (self.difference, self.low, self.high), (other.difference, other.low, other.high), strict=True
            ),
            *zip(self.as_below, other.as_below, strict=True),
            *((share / 10, other.weights.get(form, math.inf) / 10) for form, share in self.weights.items()),
        ]
        return all(math.isclose(one, two, abs_tol=LAST_DIGIT) for one, two in pairs)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a ladder predicts of its top rung before a run of it begins. date: on which. of: by arm. rows: the
    digest of the rows that it follows from. digest: of all of this."""

    date: str
    rung: str
    of: Mapping[str, Predicted]
    rows: str
    digest: str = ""

    @property
    def is_intact(self) -> bool:
        """Whether it is what it was when it was frozen."""
        return self.digest == _digest(self)

    def agrees(self, other: "Prediction") -> bool:
        """Whether they are the same but for the date and the last digits."""
        one, two = ((p.rung, p.rows, p.of.keys()) for p in (self, other))
        return one == two and all(of.is_near(other.of[arm]) for arm, of in self.of.items())


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Settings that affect the exact results of a study, chosen once for all its runs. attention: for its
    bfloat16 runs. linear and attention are `auto` if there was nothing to choose."""

    threads: int
    linear: str
    attention: str
    compile: bool


@dataclass(frozen=True)
class Decided:
    """A contrast that was decided: at how many seeds, and how."""

    seeds: int
    verdict: str


@dataclass(frozen=True, kw_only=True)
class PlannedLooks:
    """The looks of a study. at: the numbers of seeds, the last one that of `seeds`, which are in the order in
    which they are trained. contrasts: how many are tested. late: arms in which a run of development learned
    late. decided: the contrasts that are, by name. may_follow: how many runs there may be at most that are
    not listed yet."""

    at: list[int]
    seeds: list[int]
    contrasts: int
    late: list[str] = field(default_factory=list)
    decided: Mapping[str, Decided] = field(default_factory=dict)
    may_follow: int = 0

    @property
    def taken(self) -> list[int]:
        """The looks, without those before SURE seeds if a run of development learned late."""
        return [n for n in self.at if not self.late or n >= SURE or n == self.at[-1]]


@dataclass(frozen=True, kw_only=True)
class StudyRecord:
    """The content of study.json. factors: override key -> levels, in the syntax of overrides. fixed: all
    other keys, with their value in all runs. runs: run ids.

    The fields from `question` to `where`, `arms` and `answer` come from the YAML of a study declared in
    advance (StudyConfig); `declared` has the keys that only its kind has. answer: names of the levels for use
    in a sentence. typed: the arguments of the last `ablate run` that asked for the study, with -m; command:
    the command, if it was another. claim: the digest of the entry of the ledger that it tests. study: NAME of
    study=NAME. config_dir: the value of -cd. grew: the numbers of seeds of a study without looks, if there
    were results each time before it got more. left_out: by variant, why it can't be built. roles: by run id;
    chosen: by arm. rungs: the sizes of a ladder; prediction: of the last one.
    """

    name: str
    kind: str
    factors: Mapping[str, list[str]]
    fixed: Mapping[str, Any]
    seeds: list[int]
    runs: list[str]
    question: str = ""
    primary: Contrasts = field(default_factory=list)
    metric: str | None = None
    margin: float | None = None
    where: list[Where] = field(default_factory=list)
    declared: Mapping[str, Any] = field(default_factory=dict)
    arms: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    placebo: Mapping[str, str] = field(default_factory=dict)
    answer: Mapping[str, str] = field(default_factory=dict)
    typed: list[str] = field(default_factory=list, compare=False)
    study: str | None = None
    claim: str = ""
    command: str = field(default="", compare=False)
    demonstration: bool = False
    config_dir: str | None = None
    machine: Machine | None = None
    looks: PlannedLooks | None = None
    grew: list[int] = field(default_factory=list)
    left_out: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, Role] = field(default_factory=dict)
    chosen: Mapping[str, Choice] = field(default_factory=dict)
    rungs: list[Rung] = field(default_factory=list)
    prediction: Prediction | None = None

    @property
    def is_one_by_one(self) -> bool:
        """Whether it lists single runs."""
        return self.kind == ONE_BY_ONE

    @property
    def declaration(self) -> dict[str, Any]:
        """What the study declared in advance, which may not change as it grows."""
        if self.metric is None:  # a plain grid
            return {}
        keys = ("metric", "margin", "where", "arms", "placebo")
        primary = [unlike_defaults(contrast) for contrast in self.primary]
        looks = {"looks": self.looks.at if self.looks else []}
        return {"primary": primary, **{key: getattr(self, key) for key in keys}, **looks, **self.declared}

    @property
    def tuned_key(self) -> str:
        """The key for which each arm has its own value; empty if none is tuned."""
        return str(self.declared.get("tune", ""))

    @property
    def tuned_column(self) -> str:
        """The column of results with the values of `tuned_key`."""
        return column_for(self.tuned_key)

    @property
    def reports_at_baseline(self) -> bool:
        """Whether the arms of a tuned study report at their baselines' values too."""
        return "baseline_rate" in self.declared.get("report_at", [])

    @property
    def reporting_seeds(self) -> list[int]:
        """The seeds that were not used to choose values."""
        return [seed for seed in self.seeds if str(seed) not in self.development_seeds]

    @property
    def development_seeds(self) -> list[str]:
        """The seeds used to choose values, which are not reported."""
        return self.declared.get("develop", [])


# The record for rows that belong to no known study.
NO_STUDY = StudyRecord(name="", kind="", factors={}, fixed={}, seeds=[], runs=[])


def frozen(rung: str, of: Mapping[str, Predicted], rows: str) -> Prediction:
    """The prediction of a rung, as of today."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    prediction = Prediction(date=today, rung=rung, of=of, rows=rows)
    return replace(prediction, digest=_digest(prediction))


def _digest(prediction: Prediction) -> str:
    return digest(dataclasses.asdict(replace(prediction, digest="")))


def keys_of_arms(arms: Mapping[str, Mapping[str, str]]) -> set[str]:
    """The keys that named arms set."""
    return {key for arm in arms.values() for key in arm}


def read_record(plain: Mapping[str, Any]) -> StudyRecord:
    """The record from the content of study.json. Raises ConfigError."""
    record = read(StudyRecord, plain, missing="ablate writes it")
    if record.looks and not record.looks.at:
        raise ConfigError("looks.at=[]: no look")
    return record


def as_plain(record: StudyRecord) -> dict[str, Any]:
    """The record as the content of study.json, without values that equal their defaults."""
    plain = {**dataclasses.asdict(record), "primary": [unlike_defaults(one) for one in record.primary]}
    for choice in plain["chosen"].values():
        if choice["how"] == Choice.how:
            del choice["how"]
    return {key: plain[key] for key in unlike_defaults(record)}


# --- how a study may grow ---------------------------------------------------------------------------


def grown(
    old: StudyRecord | None, new: StudyRecord, has_results: Callable[[str], bool] = lambda study: True
) -> StudyRecord:
    """The record after `new` is merged into `old`: a grid may grow by levels and seeds, a list of single runs
    by runs. Raises StoreError for any other change.

    has_results: whether the study of a name has results. Until then, what it declares may still change.
    """
    if old is None:
        return new
    name, way_out = new.name, "a study may only grow by levels and seeds; give another name, as name=NAME"
    if old.kind != new.kind:
        raise StoreError(
            f"name={name}: a study of that name holds a {old.kind}, this is a {new.kind}; {way_out}"
        )
    was, now = ({**one.fixed, **dict.fromkeys(one.factors, "a factor")} for one in (old, new))
    for key in sorted({*was, *now}):
        before, after = was.get(key), now.get(key)
        if before != after:
            raise StoreError(
                f"name={name}: {key} is {after} here and {before} in the study of that name; {way_out}"
            )
    if old.rungs != new.rungs and has_results(name):
        raise StoreError(
            f"name={name}: its rungs, their seeds or their steps were others when the study began, and there"
            " are results since; a ladder does not grow: give another name, as name=NAME"
        )
    # Looks judge a family of contrasts at a level that its size sets, so they keep its levels.
    of_old, of_new = (
        {key: sorted(of) for key, of in one.factors.items()} if old.looks else {} for one in (old, new)
    )
    seeds = new.looks.seeds if new.looks else new.reporting_seeds
    if old.looks and of_old == of_new and seeds != old.looks.seeds and has_results(name):
        raise StoreError(
            f"name={name}: its looks take the seeds {some(old.looks.seeds)}, the last one at"
            f" {old.looks.at[-1]} of them; a study goes on beyond its last look, or with other seeds, only"
            " under another name, as name=NAME"
        )
    was, now = of_old | old.declaration, of_new | new.declaration
    for key in dict.fromkeys([*was, *now]):
        if was.get(key) != now.get(key) and has_results(name):
            raise StoreError(
                f"name={name}: {key} was {was.get(key)} when the study began, and there are results since;"
                " give another name, as name=NAME: what is finished is not run again"
            )
    levels = {} if new.looks else old.factors
    return replace(
        new,
        prediction=_kept(old, new),
        looks=with_looks(old, new.looks).looks,
        grew=_grew(old, new, has_results),
        factors={key: list(dict.fromkeys([*levels.get(key, ()), *of])) for key, of in new.factors.items()},
        seeds=sorted({*old.seeds, *new.seeds}),
        runs=sorted({*old.runs, *new.runs}),
        config_dir=new.config_dir or old.config_dir,
        machine=new.machine or old.machine,
        left_out={**old.left_out, **new.left_out},
        roles=_grown_roles(old, new),
        chosen={**old.chosen, **new.chosen},
    )


def with_looks(record: StudyRecord | None, looks: PlannedLooks | None) -> StudyRecord:
    """The record with these looks of the same study."""
    assert record is not None, "it was written before"
    if record.looks and looks:
        late = looks.late or record.looks.late  # it may not have been read again yet
        looks = replace(looks, late=late, decided={**record.looks.decided, **looks.decided})
    return replace(record, looks=looks)


def _kept(old: StudyRecord, new: StudyRecord) -> Prediction | None:
    """The prediction, which never changes once it is made."""
    before, now = old.prediction, new.prediction
    if before and not (before.is_intact and (now is None or now.agrees(before))):
        raise StoreError(
            f"name={new.name}: the prediction of {before.rung}, frozen on {before.date}, does not follow from"
            " the rows below it: one of them was changed since, or study.json was; restore it, or give"
            " another name=NAME"
        )
    return before or now


def _grew(old: StudyRecord, new: StudyRecord, has_results: Callable[[str], bool]) -> list[int]:
    before, after = {*old.reporting_seeds}, {*old.reporting_seeds, *new.reporting_seeds}
    may_not_grow = new.looks or new.rungs or new.claim or new.metric is None
    if may_not_grow or after == before or not has_results(new.name):
        return old.grew
    return [*(old.grew or [len(before)]), len(after)]


def _grown_roles(old: StudyRecord, new: StudyRecord) -> dict[str, Role]:
    """The role of each run of a tuned study. If the grown study chooses another value for an arm, the runs at
    the old value stay, but lose the roles that they had because of it."""
    moved = {arm for arm, was in old.chosen.items() if new.chosen.get(arm, was).value != was.value}
    kept = {run_id: _without(moved, role) if moved else role for run_id, role in old.roles.items()}
    return {**kept, **new.roles}


def _without(moved: set[str], role: Role) -> Role:
    """The role of a run without the parts that it has only because of the values of these arms."""
    values = {name: [arm for arm in arms if arm not in moved] for name, arms in role.values.items()}
    values = {name: arms for name, arms in values.items() if arms}
    return replace(role, role=" ".join(values), values=values)
