"""The record of a study, as study.json holds it: what was asked for, and what its runs are to it."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ablate.config.read import read

ONE_BY_ONE = "single"  # the kind of a list of runs
OF_KINDS = ("tune", "develop", "extend")  # stood at the top of the first study.json's; roles were `parts`


@dataclass(frozen=True, kw_only=True)
class Role:
    """What one run is to a study that gives its runs different roles. phase: develop or report. role: its
    roles by spaces. tuned: the key whose value is chosen. values: by role, the arms whose value it comes
    from."""

    phase: str
    role: str
    tuned: str
    values: Mapping[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """The value of an arm, as an override writes it; None if it has none. doubt: what speaks against it."""

    value: str | None
    doubt: str = ""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the bytes of a study depend on, chosen once. attention: of its bfloat16 runs. Both `auto` where
    there is no choice."""

    threads: int
    linear: str
    attention: str = "fused"
    compile: bool = False


@dataclass(frozen=True, kw_only=True)
class StudyRecord:
    """factors: override key -> levels, as an override writes them. fixed: the other keys, with the value that
    they have in all runs. runs: ids.

    Of a study that was declared beforehand, question to where are as its YAML says (study.declared), and
    `declared` is what only its kind has there. answer: what the levels are called in a sentence. typed: the
    words of the last command that asked for it, -m among them. study: as chosen by study=NAME. config_dir: as
    given by -cd. left_out: why a variant can't be built. roles: by run id; chosen: by arm.
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
    answer: Mapping[str, str] = field(default_factory=dict)
    typed: list[str] = field(default_factory=list, compare=False)
    study: str | None = None
    demonstration: bool = False
    config_dir: str | None = None
    machine: Machine | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, Role] = field(default_factory=dict)
    chosen: Mapping[str, Choice] = field(default_factory=dict)

    @property
    def is_declared(self) -> bool:
        """Whether it is of a study, which says beforehand what it will be judged by."""
        return self.metric is not None

    @property
    def is_one_by_one(self) -> bool:
        """Whether its runs were asked for one by one."""
        return self.kind == ONE_BY_ONE

    @property
    def declaration(self) -> dict[str, Any]:
        """What was decided beforehand, and may not change as the study grows."""
        if not self.is_declared:
            return {}
        said = {"primary": self.primary, "metric": self.metric, "margin": self.margin, "where": self.where}
        return said | dict(self.declared)

    @property
    def tuned_key(self) -> str:
        """The key of which each arm has its own value; empty where there is none."""
        return str(self.declared.get("tune", ""))

    @property
    def development_seeds(self) -> list[str]:
        """Those that chose something, and report nothing."""
        return self.declared.get("develop", [])


def read_record(plain: Mapping[str, Any]) -> StudyRecord:
    """The record from what its JSON holds. Raises ConfigError."""
    if "roles" not in plain and "declared" not in plain:
        of_kind = {key: plain[key] for key in OF_KINDS if key in plain}
        rest = {key: value for key, value in plain.items() if key not in (*OF_KINDS, "parts")}
        plain = rest | {"declared": of_kind, "roles": plain.get("parts", {})}
    return read(StudyRecord, plain, missing="ablate writes it")


def as_plain(record: StudyRecord) -> dict[str, Any]:
    """The record as its JSON holds it: without what is as by default."""
    blank = StudyRecord(name="", kind="", factors={}, fixed={}, seeds=[], runs=[])
    always = {f.name for f in dataclasses.fields(record) if f.default is f.default_factory}
    plain, defaults = dataclasses.asdict(record), dataclasses.asdict(blank)
    return {key: value for key, value in plain.items() if key in always or value != defaults[key]}
