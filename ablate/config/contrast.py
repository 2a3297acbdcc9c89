"""A contrast: which variants are compared with which baseline, as a study chooses in advance."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from ablate.config.conditions import same, spelled
from ablate.config.rules import ConfigError, ErrorText, Rule

# The largest difference that does not matter, in nats a token, by default (docs/statistics.md).
MARGIN = 0.02
# The fewest seeds for a verdict that no study named beforehand: the earliest first look of the shipped ones.
FEWEST = 6
EXAMPLE = "{vary: fusion, baseline: concat}"
BY_NAMES = "sum - concat"  # the same by the names of two arms


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Variants against the one that has the values of `baseline` and is otherwise equal.

    baseline: the keys that vary, each with its one value, which may be a list. variants: what the variants
    have, any of these; empty for all others. where: what both have. A list in these two means any of its
    values, as in every condition that is a mapping. arms: the names of a variant and its baseline, if the
    contrast was written so, as `sum - concat`; the rest is empty until the study is made
    (study/contrasts.py).
    """

    baseline: Mapping[str, Any]
    variants: list[Mapping[str, Any]] = field(default_factory=list)
    where: Mapping[str, Any] = field(default_factory=dict)
    arms: str = ""

    def __str__(self) -> str:
        return self.arms or spelled(self.is_baseline) + (
            f" where {spelled(self.where)}" if self.where else ""
        )

    @property
    def is_baseline(self) -> dict[str, list[Any]]:
        """The condition on a baseline."""
        return {key: [value] for key, value in self.baseline.items()}

    def has_baseline(self, baseline: Mapping[str, Any]) -> bool:
        """Whether its baseline has these values, plain or as text."""
        return self.baseline.keys() == baseline.keys() and all(
            same(value, baseline[key]) for key, value in self.baseline.items()
        )

    @property
    def values(self) -> Iterator[tuple[str, Any]]:
        """Every key with each of its values."""
        for condition in (self.is_baseline, *self.variants, self.where):
            for key, value in condition.items():
                yield from ((key, one) for one in (value if isinstance(value, list) else [value]))


class AContrast(Rule):
    """A contrast as a YAML has it: `vary` names the key that `baseline` and `variants` are values of, unless
    these are mappings themselves; or the names of two arms, as `sum - concat`."""

    def read(self, value: Any, path: str) -> dict[str, Any]:
        names = [name.strip() for name in value.split(" - ")] if isinstance(value, str) else []
        if len(names) == 2 and all(names):
            return {"baseline": {}, "arms": " - ".join(names)}
        if (
            not (isinstance(value, Mapping) and value.get("baseline", {}) != {})
            or not value.keys() <= {"vary", "baseline", "variants", "where", "arms"}
            or not isinstance(value.get("where", {}), Mapping)
            or not isinstance(value.get("variants", []), list)
        ):
            raise ConfigError(
                f"{path}: {value}: write an entry as {EXAMPLE}, if need be with where: {{KEY: VALUE}}, or by"
                f" the names of two arms, as {BY_NAMES}"
            )
        baseline, variants = value["baseline"], value.get("variants", [])
        if "vary" not in value and not all(isinstance(one, Mapping) for one in (baseline, *variants)):
            raise ConfigError(f"{path}: {value}: add vary, the key that the baseline is a value of")
        vary = value.get("vary")
        return {
            "baseline": baseline if isinstance(baseline, Mapping) else {vary: baseline},
            "variants": [one if isinstance(one, Mapping) else {vary: [one]} for one in variants],
            "where": value.get("where", {}),
            "arms": value.get("arms", ""),
        }


Contrasts = Annotated[
    list[Annotated[Contrast, AContrast()]], ErrorText(f"write a list, as [{EXAMPLE}]; [] for none")
]
