"""What a study asked for, as study.json holds it, and how it may grow."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ablate.config.identity import digest, identity_keys
from ablate.config.overrides import flatten
from ablate.config.schema import RunConfig
from ablate.store.store import StoreError
from ablate.study.declared import Declared

Plan = dict[str, Any]
SINGLE = "single"


def single_plan(config: RunConfig, run_id: str, config_dir: str | None = None) -> Plan:
    """A list of runs that were asked for one by one. config_dir: as given by -cd."""
    return _plan(config.name or SINGLE, "single", {}, {}, [config.seed], [run_id], config_dir)


def grid_plan(
    factors: Mapping[str, Sequence[str]],
    given: Iterable[str],
    configs: Sequence[RunConfig],
    runs: Sequence[str],
    declared: Declared | None = None,
    chosen: str | None = None,
    demonstration: bool = False,
    config_dir: str | None = None,
) -> Plan:
    """A sweep, or what a study declares: its factors with their levels, and everything that they leave alone.

    factors: override key -> levels as typed. given: keys that have one value for all runs. runs: their ids.
    chosen: as study=CHOSEN. config_dir: as given by -cd.
    """
    factors = {key: list(dict.fromkeys(levels)) for key, levels in factors.items() if key != "seed"}
    free = [key for key in factors if key not in given]
    fixed = {
        key: value
        for key, value in _plain(identity_keys(configs[0])).items()
        if key in given or not any(key == f or key.startswith(f"{f}.") for f in free)
    }
    fixed.pop("seed")
    name = configs[0].name or f"sweep-{digest(sorted(runs))[:8]}"
    kind = declared.kind if declared else "grid"
    plan = _plan(name, kind, factors, fixed, [config.seed for config in configs], runs, config_dir)
    if declared:
        keys = ["question", "primary", "metric", "margin", "where"]
        keys += ["tune", "develop", "extend"] if kind == "tuned" else []
        plan |= {key: getattr(declared, key) for key in keys}
        plan |= {"study": chosen, "demonstration": demonstration}
    return plan


def merge_plans(old: Plan | None, new: Plan) -> Plan:
    """The study after `new` joins what is there: a grid may grow by levels and seeds, a list of single
    runs by runs. Raises StoreError for any other change."""
    if old is None:
        return new
    name, way_out = new["name"], "a study may only grow by levels and seeds; give another name, as name=NAME"
    if old["kind"] != new["kind"]:
        raise StoreError(
            f"name={name}: a study of that name holds a {old['kind']}, this is a {new['kind']}; {way_out}"
        )
    for key in sorted({*old["factors"]} ^ {*new["factors"]}):
        where = (
            "is a factor in the study of that name, not here"
            if key in old["factors"]
            else "is a factor here, not in the study of that name"
        )
        raise StoreError(f"name={name}: {key} {where}; {way_out}")
    for key in sorted({*old["fixed"], *new["fixed"]}):
        before, after = old["fixed"].get(key), new["fixed"].get(key)
        if before != after:
            raise StoreError(
                f"name={name}: {key} is {after} here and {before} in the study of that name; {way_out}"
            )
    for key in ("primary", "metric", "margin", "where", "tune", "develop", "extend"):
        if key in old and old[key] != new.get(key):
            raise StoreError(f"name={name}: {key} was {old[key]} when the study began; {way_out}")
    factors = {
        key: list(dict.fromkeys([*old["factors"][key], *new["factors"][key]])) for key in new["factors"]
    }
    seeds, runs = [*old["seeds"], *new["seeds"]], [*old["runs"], *new["runs"]]
    plan = old | new | _plan(name, new["kind"], factors, new["fixed"], seeds, runs)
    if "parts" in new:
        plan |= {"parts": _merge_parts(old, new), "chosen": old["chosen"] | new["chosen"]}
    if left_out := old.get("left_out", {}) | new.get("left_out", {}):
        plan["left_out"] = left_out
    return plan


def _merge_parts(old: Plan, new: Plan) -> dict[str, Any]:
    """What each run is to a tuned study. Where a grown study chooses another value for an arm, the runs at
    the old one stay, without the roles that they had by it."""
    chosen = new["chosen"]
    moved = {arm for arm, was in old["chosen"].items() if chosen.get(arm, was)["value"] != was["value"]}
    parts = {run_id: _without(moved, part) if moved else part for run_id, part in old["parts"].items()}
    return parts | new["parts"]


def _without(moved: set[str], part: Mapping[str, Any]) -> dict[str, Any]:
    """A part without the roles that it has by the values of these arms alone."""
    values = {
        role: [arm for arm in arms if arm not in moved] for role, arms in part.get("values", {}).items()
    }
    values = {role: arms for role, arms in values.items() if arms}
    return {**part, "role": " ".join(values), "values": values}


def values_of(config: RunConfig) -> dict[str, Any]:
    """Every key of a config by its dotted name; a group by the choice that was made of it."""
    return _plain(dataclasses.asdict(config))


def _plain(nested: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys, with values as JSON gives them back."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in flatten(nested).items()}


def _plan(
    name: str,
    kind: str,
    factors: Mapping[str, list[str]],
    fixed: Mapping[str, Any],
    seeds: Iterable[int],
    runs: Iterable[str],
    config_dir: str | None = None,
) -> Plan:
    plan = {
        "name": name,
        "kind": kind,
        "factors": dict(factors),
        "fixed": dict(fixed),
        "seeds": sorted(set(seeds)),
        "runs": sorted(set(runs)),
    }
    return plan | {"config_dir": config_dir} if config_dir else plan
