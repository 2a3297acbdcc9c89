"""What the YAML of a study declares in advance: its question, its grid, and what it will be judged by."""

import dataclasses
import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from ablate.config.overrides import as_value
from ablate.config.read import hints, unlike_defaults
from ablate.config.rules import Above, ConfigError, Meaning, Rule, did_you_mean, typed
from ablate.config.schema import RunConfig
from ablate.store.columns import CONFIG_COLUMNS, DERIVED_COLUMNS, MEASURED_COLUMNS, METRIC_COLUMNS
from ablate.study.design import Design, Overrides

# The columns that hold one number per run.
METRICS = {*METRIC_COLUMNS, *DERIVED_COLUMNS, *MEASURED_COLUMNS} - {
    "fusion_weights",
    "model",
    "form",
    "function_class",
    "corpus",
}
CONTRAST = "{vary: fusion, baseline: concat}"  # an example


class InTurn(Rule):
    """A list of values to sweep over, or a single one; kept in the syntax of overrides."""

    def read(self, value: Any, path: str) -> list[str]:
        values = value if isinstance(value, list) else [value]
        if not values:
            raise ConfigError(f"{path}: the sweep is empty; list values")
        if groups := [one for one in values if isinstance(one, Mapping)]:
            raise ConfigError(f"{path}: {groups[0]}: a level is one value; sweep each key by itself")
        return [as_value(one) for one in values]


class InAList(InTurn):
    """As InTurn, but always a list: `seeds: 3` would mean one seed, but look like three."""

    def read(self, value: Any, path: str) -> list[str]:
        if not isinstance(value, list):
            raise ConfigError(f"{path}={typed(value)}: write a list, as [0, 1, 2]")
        return super().read(value, path)


class KeysOfARun(Rule):
    """A mapping whose keys are keys of a run."""

    def check(self, value: Any, path: str) -> None:
        known = hints(RunConfig)
        for key in value:
            if key.partition(".")[0] not in known:
                raise ConfigError(f"{path}.{key}: no key of a run{did_you_mean(key, known)}")


class AnArm(KeysOfARun):
    """What one arm sets: keys of a run, each with one value; kept in the syntax of overrides."""

    def read(self, value: Any, path: str) -> dict[str, str]:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{path}={typed(value)}: write what the arm sets, as {{fusion: sum}}")
        return {str(key): as_value(one) for key, one in value.items()}


class OneNumberARun(Rule):
    """A column of results with one number per run, by which a study can be judged."""

    def check(self, value: Any, path: str) -> None:
        if value not in METRICS:
            raise ConfigError(f"{path}={value}: no column of results{did_you_mean(value, METRICS)}")


Levels = Annotated[list[str], InTurn()]
Arm = Annotated[Mapping[str, str], AnArm()]
Seeds = Annotated[list[str], InAList()]


@dataclass(frozen=True, kw_only=True)
class Declared(ABC):
    """The keys that every kind of study declares. factors: override key -> levels.

    arms: what is compared, if it is no product of levels: by name, what each sets; every arm meets every
    combination of the factors. where: conditions that every run has to fulfil. placebo: overrides that
    give a variant the start and the steps of its baseline. primary: the contrasts chosen in advance, each
    a mapping with `vary`, `baseline` and, for factors that are held fixed, `where`. metric, margin: what
    they are judged by. answer: names of the levels for use in a sentence. demo: the overrides of its
    demonstration.
    """

    kind: ClassVar[str]
    example: ClassVar[str]  # a study that shows all keys of the kind

    question: str
    factors: Annotated[
        Mapping[str, Levels], KeysOfARun(), Meaning("write each key with its levels, as {heads: [1, 4]}")
    ]
    seeds: Seeds
    arms: Mapping[str, Arm] = field(default_factory=dict)
    where: Annotated[list[str], Meaning("write a list, as [heads <= 4]; [] for none")] = field(
        default_factory=list
    )
    placebo: Annotated[Arm, Meaning("write overrides, as {value_scale: matched}")] = field(
        default_factory=dict
    )
    primary: Annotated[list[Any], Meaning(f"write a list, as [{CONTRAST}]; [] for none")]
    metric: Annotated[str, OneNumberARun()]
    margin: Annotated[
        float,
        Above(0),
        Meaning("what makes no difference, in the metric's unit; use a number above 0"),
    ] = 0.01
    answer: Annotated[
        Mapping[str, str], Meaning("write levels with what they are called, as {sum: summing the heads}")
    ] = field(default_factory=dict)
    demo: Annotated[
        Mapping[str, Levels],
        KeysOfARun(),
        Meaning("write overrides, as {train.steps: 60}; {} changes nothing"),
    ] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if "seed" in self.factors:
            raise ConfigError("study.factors.seed: seeds are no factor; list them as study.seeds")
        for key in {"name", "force", "study", "size"} & {*self.factors}:
            raise ConfigError(f"study.factors.{key}: it makes no variants; leave it out")
        in_arms = {key: name for name, arm in self.arms.items() for key in arm}
        for key in in_arms.keys() & {*self.factors, "seed", "name", "force"}:
            why = "the factors set it already" if key in self.factors else "it makes no arm"
            raise ConfigError(f"study.arms.{in_arms[key]}.{key}: {why}; leave it out")
        for one, other in itertools.combinations(self.arms, 2):
            if self.arms[one] == self.arms[other]:
                raise ConfigError(f"study.arms: {one} and {other} set the same; leave one of them out")
        known = {*CONFIG_COLUMNS, *(key.rpartition(".")[2] for key in (*self.factors, *in_arms))}
        for entry in self.primary:
            _check_contrast(entry, known)

    @property
    def levels(self) -> dict[str, list[str]]:
        """The levels of the factors and of the seed."""
        return {**self.factors, "seed": self.seeds}

    @property
    def named_arms(self) -> dict[Overrides, str]:
        """The names of the arms, by what they set; one without a name if there is only the product."""
        arms = {
            tuple(f"{key}={value}" for key, value in arm.items()): name for name, arm in self.arms.items()
        }
        return arms or {(): ""}

    @property
    def set_by_arms(self) -> set[str]:
        """The keys that named arms set."""
        return {key for arm in self.arms.values() for key in arm}

    @property
    def own(self) -> dict[str, Any]:
        """The keys that only this kind of study declares, without values that equal their defaults."""
        of_all = {key.name for key in dataclasses.fields(Declared)}
        return {key: value for key, value in unlike_defaults(self).items() if key not in of_all}

    @abstractmethod
    def design(self, levels: Mapping[str, Sequence[str]]) -> Design:
        """The design, which says what to run. levels: by key, those of the study unless the command line
        gives others, and those of all other keys given. Raises ConfigError."""


def _check_contrast(entry: Any, known: set[str]) -> None:
    """Raises ConfigError unless compare can understand the contrast. known: the keys that define variants."""
    if not _is_contrast(entry):
        raise ConfigError(
            f"study.primary: {entry}: write an entry as {CONTRAST}, if need be with where: {{KEY: VALUE}}"
        )
    if "vary" not in entry and not isinstance(entry["baseline"], Mapping):
        raise ConfigError(f"study.primary: {entry}: add vary, the key that the baseline is a value of")
    for key in _keys(entry):
        if key.rpartition(".")[2] not in known and not key.startswith("fusion."):
            near = did_you_mean(key, known)
            raise ConfigError(f"study.primary: {key}: no key that makes variants{near}")


def _is_contrast(entry: Any) -> bool:
    return (
        isinstance(entry, Mapping)
        and "baseline" in entry
        and entry.keys() <= {"vary", "baseline", "variants", "where"}
        and isinstance(entry.get("where", {}), Mapping)
        and isinstance(entry.get("variants", []), list)
    )


def _keys(entry: Mapping[str, Any]) -> list[str]:
    """Every key that a contrast names."""
    values = [entry["baseline"], entry.get("where", {}), *entry.get("variants", [])]
    named = [key for value in values if isinstance(value, Mapping) for key in value]
    return [str(key) for key in ([entry["vary"], *named] if "vary" in entry else named)]
