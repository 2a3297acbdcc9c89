"""A contrast: which variants are compared with which baseline, as a study chooses in advance."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from ablate.config.conditions import spelled
from ablate.config.rules import ConfigError, Rule

# The largest difference that does not matter, in nats a token, by default (docs/statistics.md).
MARGIN = 0.02
FEWEST = 6  # the fewest runs of each arm for a verdict: the earliest first look of the shipped studies
EXAMPLE = "{vary: fusion, baseline: concat}"
BY_NAMES = "sum - concat"  # the same by the names of two arms
_SIGN = re.compile(r"\s+([+-])\s+")
_TERM = re.compile(r"(?:(\d*\.?\d+)\s*\*\s*)?(\S.*)")


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Variants against the one that has the values of `baseline` and is otherwise equal.

    baseline: the keys that vary, each with its one value, which may be a list. where: what both have, a list
    for any of its values, as in every condition that is a mapping. arms: a sum of arms by their names in
    place of all that, as `sum - concat` or `0.5*sum + 0.5*mean - concat`. within: a factor, between each two
    of whose levels such differences are compared, in place of the differences themselves.
    """

    baseline: Mapping[str, Any] = field(default_factory=dict)
    where: Mapping[str, Any] = field(default_factory=dict)
    arms: str = ""
    within: str = ""

    def __str__(self) -> str:
        where = f" where {spelled(self.where)}" if self.where else ""
        named = self.arms or spelled(self.is_baseline) + where
        return f"{named} within {self.within}" if self.within else named

    @property
    def is_baseline(self) -> dict[str, list[Any]]:
        """The condition on a baseline."""
        return {key: [value] for key, value in self.baseline.items()}

    @property
    def terms(self) -> list[tuple[float, str]]:
        """The arms with their weights."""
        return _terms(self.arms)


def _terms(text: str) -> list[tuple[float, str]]:
    """The weights and names of a sum of arms; empty for what is none, or whose weights do not add up to 0."""
    first, *rest = _SIGN.split(text.strip())
    terms = []
    for sign, term in (("+", first), *zip(rest[::2], rest[1::2], strict=True)):
        if not (found := _TERM.fullmatch(term)):
            return []
        terms.append(((-1 if sign == "-" else 1) * float(found[1] or 1), found[2]))
    is_sum = len(terms) > 1 and abs(sum(weight for weight, _ in terms)) < 1e-9
    return terms if is_sum and len({name for _, name in terms}) == len(terms) else []


def as_a_contrast(value: Any, path: str) -> dict[str, Any]:
    """A contrast as a YAML has it: `vary` names the key that `baseline` is a value of; a record has both in
    `baseline`. Or the names of two arms, as `sum - concat`."""
    own: dict[str, Any] = {**value} if isinstance(value, Mapping) else {"arms": value}
    if isinstance(arms := own.get("arms"), str) and _terms(arms) and own.keys() <= {"arms", "within"}:
        return own | {"arms": " ".join(arms.split())}
    vary, baseline = own.pop("vary", None), own.get("baseline", {})
    if baseline == {} or not (isinstance(vary, str) or isinstance(baseline, Mapping)):
        how = f"{EXAMPLE}, if need be with where: {{KEY: VALUE}}, or by the names of two arms, as {BY_NAMES}"
        raise ConfigError(f"{path}: {value}: write an entry as {how}")
    return own | {"baseline": baseline if isinstance(baseline, Mapping) else {vary: baseline}}


Contrasts = Annotated[
    list[Annotated[Contrast, Rule(read=as_a_contrast)]],
    Rule(text=f"write a list, as [{EXAMPLE}]; [] for none"),
]
