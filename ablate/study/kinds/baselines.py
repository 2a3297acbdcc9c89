"""Which arm of a tuned study is the baseline of another."""

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from ablate.config.overrides import as_value
from ablate.study.design import Overrides


@dataclass(frozen=True)
class Baseline:
    """The baseline of a primary contrast. values: the overrides that turn an arm into it. where: the values
    that a named arm may set, if it sets the key at all, to be in the contrast. variants: the arms in it, by
    what they set; empty for all."""

    values: Mapping[str, str]
    where: Mapping[str, list[str]] = field(default_factory=dict)
    variants: Sequence[Mapping[str, list[str]]] = ()


def read_baseline(entry: Mapping[str, Any], of_arms: Set[str]) -> Baseline:
    """The baseline of a primary contrast, in the syntax of overrides. of_arms: the keys that arms set."""
    given = entry.get("baseline")
    mapping = given if isinstance(given, Mapping) else {entry.get("vary", "fusion"): given}
    vary = entry.get("vary", "fusion")
    variants = [one if isinstance(one, Mapping) else {vary: one} for one in entry.get("variants", ())]
    return Baseline(
        {str(key): as_value(value) for key, value in mapping.items()},
        _of_arms(entry.get("where", {}), of_arms),
        [of_variant for one in variants if (of_variant := _of_arms(one, of_arms))],
    )


def _of_arms(values: Mapping[str, Any], of_arms: Set[str]) -> dict[str, list[str]]:
    """These values in the syntax of overrides, as lists, of the keys that arms set."""
    return {
        key: [as_value(one) for one in (value if isinstance(value, list) else [value])]
        for key, value in values.items()
        if key in of_arms
    }


def parted(named: Collection[Overrides], arm: Overrides) -> tuple[Overrides, Overrides]:
    """What an arm sets by its name, and its levels of the factors. named: what each named arm sets."""
    own = max((one for one in named if arm[: len(one)] == one), key=len)
    return own, arm[len(own) :]


def baseline_of(named: Collection[Overrides], arm: Overrides, baseline: Baseline) -> Overrides | None:
    """The baseline of this arm, which may be the arm itself; None if it is in no contrast with it.

    Of named arms it is the one that sets most of the baseline's values, and none to another value; of
    several, the one that sets least else.
    """
    own, levels = parted(named, arm)
    sets = [one for one in baseline.variants if _agrees(own, one) and one.keys() & _keys(own)]
    if not _agrees(own, baseline.where) or (baseline.variants and not sets):
        return None
    held = {key: values[0] for key, values in baseline.where.items() if len(values) == 1}
    changes = {**held, **baseline.values}
    keys = [override.partition("=")[0] for override in levels]
    changed = tuple(
        f"{key}={changes[key]}" if key in changes else override
        for key, override in zip(keys, levels, strict=True)
    )
    wanted = {f"{key}={value}" for key, value in changes.items()}
    values = {**baseline.where, **{key: [value] for key, value in changes.items()}}
    fitting = [one for one in named if _agrees(one, values)]
    nearest = min(fitting, key=lambda one: (-len(wanted & {*one}), len(one)), default=None)
    return None if nearest is None else (*nearest, *changed)


def _agrees(named: Overrides, values: Mapping[str, Sequence[str]]) -> bool:
    """Whether an arm sets none of these keys to a value that is not listed."""
    return all(value in values.get(key, [value]) for key, _, value in (o.partition("=") for o in named))


def _keys(named: Overrides) -> set[str]:
    return {override.partition("=")[0] for override in named}
