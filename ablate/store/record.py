"""The record of a study, stored as study.json: what was asked for, and the roles of its runs."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ablate.config.read import read, unlike_defaults

ONE_BY_ONE = "single"  # the kind of a list of single runs
OF_KINDS = ("tune", "develop", "extend")  # top-level keys of the oldest study.json; `parts` were its roles


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


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Settings that affect the exact results of a study, chosen once for all its runs. attention: for its
    bfloat16 runs. linear and attention are `auto` if there was nothing to choose."""

    threads: int
    linear: str
    attention: str = "fused"
    compile: bool = False


@dataclass(frozen=True, kw_only=True)
class StudyRecord:
    """The content of study.json. factors: override key -> levels, in the syntax of overrides. fixed: all
    other keys, with their value in all runs. runs: run ids.

    For a study declared in advance, question to where, arms and answer are those of its YAML
    (study.declared), and `declared` has the keys that only its kind has. answer: names of the levels for use
    in a sentence. typed: the arguments of the last `ablate run` that asked for the study, with -m; command:
    the command, if it was another. claim: the digest of the entry of the ledger that it tests. study: NAME of
    study=NAME. config_dir: the value of -cd. left_out: by variant, why it can't be built. roles: by run id;
    chosen: by arm.
    """

    name: str
    kind: str
    factors: Mapping[str, list[str]]
    fixed: Mapping[str, Any]
    seeds: list[int]
    runs: list[str]
    question: str = ""
    primary: list[Mapping[str, Any]] = field(default_factory=list)
    metric: str | None = None
    margin: float | None = None
    where: list[str] = field(default_factory=list)
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
    left_out: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, Role] = field(default_factory=dict)
    chosen: Mapping[str, Choice] = field(default_factory=dict)

    @property
    def is_declared(self) -> bool:
        """Whether it is a study, which declares in advance what to compare, rather than a plain grid."""
        return self.metric is not None

    @property
    def is_one_by_one(self) -> bool:
        """Whether it lists single runs."""
        return self.kind == ONE_BY_ONE

    @property
    def declaration(self) -> dict[str, Any]:
        """What the study declared in advance, which may not change as it grows."""
        if not self.is_declared:
            return {}
        said = {"primary": self.primary, "metric": self.metric, "margin": self.margin, "where": self.where}
        later = {"arms": self.arms, "placebo": self.placebo}  # which older records lack
        return said | {key: value for key, value in later.items() if value} | dict(self.declared)

    @property
    def set_by_arms(self) -> set[str]:
        """The keys that named arms set."""
        return {key for arm in self.arms.values() for key in arm}

    @property
    def tuned_key(self) -> str:
        """The key for which each arm has its own value; empty if none is tuned."""
        return str(self.declared.get("tune", ""))

    @property
    def reports_at_baseline(self) -> bool:
        """Whether the arms of a tuned study report at their baselines' values too."""
        return "baseline_rate" in self.declared.get("report_at", ["baseline_rate"])

    @property
    def development_seeds(self) -> list[str]:
        """The seeds used to choose values, which are not reported."""
        return self.declared.get("develop", [])


def read_record(plain: Mapping[str, Any]) -> StudyRecord:
    """The record from the content of study.json. Raises ConfigError."""
    if "roles" not in plain and "declared" not in plain:
        of_kind = {key: plain[key] for key in OF_KINDS if key in plain}
        rest = {key: value for key, value in plain.items() if key not in (*OF_KINDS, "parts")}
        plain = rest | {"declared": of_kind, "roles": plain.get("parts", {})}
    return read(StudyRecord, plain, missing="ablate writes it")


def as_plain(record: StudyRecord) -> dict[str, Any]:
    """The record as the content of study.json, without values that equal their defaults."""
    plain = dataclasses.asdict(record)
    return {key: plain[key] for key in unlike_defaults(record)}
