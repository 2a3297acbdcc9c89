"""The record of a study, stored as study.json: what was asked for, the roles of its runs, how it may grow."""

import contextlib
import dataclasses
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ablate.config.conditions import Where, column_for
from ablate.config.contrast import Contrasts
from ablate.config.read import read, unlike_defaults

FORMER = ("version",)  # what a study.json of before has besides
ONE_BY_ONE = "single"  # the kind of a list of single runs


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
    against it."""

    value: str | None
    doubt: str = ""


@dataclass(frozen=True)
class Decided:
    """A contrast that was decided: at how many seeds, and how."""

    seeds: int
    verdict: str


@dataclass(frozen=True)
class Side:
    """A side of a contrast. arm: what the study calls it. runs: the ids of its runs that report, as far as
    they are known."""

    weight: float
    arm: str
    runs: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class PlannedContrast:
    """A contrast that a study declared, as a weighted sum of arms. equal: whether the arms are one function
    by construction, which nothing tests. beforehand: whether it was written down before two of its arms had
    results, whichever study made them."""

    name: str
    sides: list[Side]
    equal: bool = False
    beforehand: bool = True

    @property
    def runs(self) -> set[str]:
        return {run_id for side in self.sides for run_id in side.runs}


@dataclass(frozen=True, kw_only=True)
class PlannedLooks:
    """The looks of a study. at: the numbers of seeds, the last one that of `seeds`, which are in the order in
    which they are trained. decided: the contrasts that are, by name. may_follow: how many runs there may be
    at most that are not listed yet."""

    at: list[int]
    seeds: list[int]
    decided: Mapping[str, Decided] = field(default_factory=dict)
    may_follow: int = 0


@dataclass(frozen=True, kw_only=True)
class StudyRecord:
    """The content of study.json. factors: override key -> levels, in the syntax of overrides. fixed: all
    other keys, with their value in all runs. runs: run ids.

    The fields from `question` to `where`, `arms` and `answer` come from the YAML of a study declared in
    advance (StudyConfig); `declared` has the keys that only its kind has. answer: names of arms or levels for
    use in a sentence. typed: the arguments of the last `ablate run` that asked for the study, with -m;
    command: the command, if it was another. study: NAME of study=NAME. digest: the SHA-256 of the file that
    declared it before its first result. config_dir: the value of -cd. is_copy: whether it was read outside
    its store. contrasts: those of `primary`, each with the runs of its arms. grew: the numbers of seeds of a
    sweep without looks, if it could have had a verdict each time before it got more. left_out: by variant,
    why it can't be built. roles: by run id; chosen: by arm.
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
    answer: Mapping[str, str] = field(default_factory=dict)
    typed: list[str] = field(default_factory=list, compare=False)
    study: str | None = None
    digest: str = ""
    command: str = field(default="", compare=False)
    config_dir: str | None = None
    is_copy: bool = field(default=False, compare=False)
    threads: int | None = None
    looks: PlannedLooks | None = None
    contrasts: list[PlannedContrast] = field(default_factory=list)
    grew: list[int] = field(default_factory=list)
    left_out: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, Role] = field(default_factory=dict)
    chosen: Mapping[str, Choice] = field(default_factory=dict)

    @property
    def arm_of(self) -> dict[str, str]:
        """The name of the arm at whose own value a run is, by run id."""
        named = ((run_id, role.values.get("tuned")) for run_id, role in self.roles.items())
        of_roles = {run_id: names[0] for run_id, names in named if names}
        sides = [side for one in self.contrasts for side in one.sides] if self.arms else []
        return {run_id: side.arm for side in sides for run_id in side.runs} | of_roles

    @property
    def words(self) -> list[str]:
        """The words of the command that goes on with it; none if that is not known, or is no duel, as in a
        study.json that was edited."""
        if self.typed:
            return ["ablate", "run", *self.typed]
        with contextlib.suppress(ValueError):  # a quotation that does not end
            if (words := shlex.split(self.command))[:2] == ["ablate", "duel"]:
                return words
        return []

    @property
    def family(self) -> int:
        """How many contrasts are tested as one family: those of the declaration, whatever rows there are."""
        return sum(not one.equal for one in self.contrasts)

    @property
    def reporting_runs(self) -> set[str]:
        """The runs that are not of development, nor at a value that the study has replaced since."""
        of_no_use = {run for run, one in self.roles.items() if one.phase != "report" or not one.role}
        return {*self.runs} - of_no_use

    @property
    def is_one_by_one(self) -> bool:
        """Whether it lists single runs."""
        return self.kind == ONE_BY_ONE

    @property
    def declaration(self) -> dict[str, Any]:
        """What the study declared in advance, which may not change as it grows."""
        if self.metric is None:  # a plain grid
            return {}
        keys = ("metric", "margin", "where", "arms")
        primary = [unlike_defaults(contrast) for contrast in self.primary]
        looks = {"looks": self.looks.at if self.looks else []}
        own = {key: of for key, of in self.declared.items() if of or key != "tune_at"}  # as there once was
        return {"primary": primary, **{key: getattr(self, key) for key in keys}, **looks, **own}

    @property
    def tuned_key(self) -> str:
        """The key for which each arm has its own value; empty if none is tuned."""
        return str(self.declared.get("tune", ""))

    @property
    def tuned_column(self) -> str:
        """The column of results with the values of `tuned_key`."""
        return column_for(self.tuned_key)

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


def read_record(plain: Mapping[str, Any]) -> StudyRecord:
    """The record from the content of study.json. Raises ConfigError."""
    plain = {key: value for key, value in plain.items() if key not in FORMER}
    return read(StudyRecord, plain, missing="ablate writes it")


def as_plain(record: StudyRecord) -> dict[str, Any]:
    """The record as the content of study.json, without values that equal their defaults."""
    plain = {**dataclasses.asdict(record), "primary": [unlike_defaults(one) for one in record.primary]}
    return {key: plain[key] for key in unlike_defaults(record)}
