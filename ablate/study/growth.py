"""Make the record of a study, and merge it with the record that exists: how a study may grow."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ablate.config.identity import digest, identity_keys
from ablate.config.overrides import flatten
from ablate.config.schema import RunConfig
from ablate.store.record import ONE_BY_ONE, Role, StudyRecord
from ablate.store.store import StoreError
from ablate.study.declared import Declared
from ablate.study.kinds.grid import Grid


def record_of_run(config: RunConfig, run_id: str, config_dir: str | None = None) -> StudyRecord:
    """The record of a single run, which joins a list of such runs. config_dir: the value of -cd."""
    return StudyRecord(
        name=config.name or ONE_BY_ONE,
        kind=ONE_BY_ONE,
        factors={},
        fixed={},
        seeds=[config.seed],
        runs=[run_id],
        config_dir=config_dir,
    )


def record_of_sweep(
    factors: Mapping[str, Sequence[str]],
    given: Iterable[str],
    configs: Sequence[RunConfig],
    runs: Sequence[str],
    declared: Declared | None = None,
    **asked: Any,
) -> StudyRecord:
    """The record of a sweep or study: its factors with their levels, and all keys that are fixed.

    factors: override key -> levels as typed. given: keys that have one value for all runs. runs: their ids.
    asked: study, demonstration, config_dir and typed of the record.
    """
    factors = {key: list(dict.fromkeys(levels)) for key, levels in factors.items() if key != "seed"}
    free = {key for key in factors if key not in given} | (declared.set_by_arms if declared else set())
    fixed = {
        key: value
        for key, value in _plain(identity_keys(configs[0])).items()
        if key in given or not any(key == f or key.startswith(f"{f}.") for f in free)
    }
    fixed.pop("seed")
    record = StudyRecord(
        name=configs[0].name or f"sweep-{digest(sorted(runs))[:8]}",
        kind=declared.kind if declared else Grid.kind,
        factors=factors,
        fixed=fixed,
        seeds=sorted({config.seed for config in configs}),
        runs=sorted({*runs}),
        **asked,
    )
    if declared is None:
        return record
    return replace(
        record,
        question=declared.question,
        primary=declared.primary,
        metric=declared.metric,
        margin=declared.margin,
        answer=declared.answer,
        arms=declared.arms,
        placebo=declared.placebo,
        where=declared.where,
        declared=declared.own,
    )


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
    for key in sorted({*old.factors} ^ {*new.factors}):
        found = (
            "is a factor in the study of that name, not here"
            if key in old.factors
            else "is a factor here, not in the study of that name"
        )
        raise StoreError(f"name={name}: {key} {found}; {way_out}")
    for key in sorted({*old.fixed, *new.fixed}):
        before, after = old.fixed.get(key), new.fixed.get(key)
        if before != after:
            raise StoreError(
                f"name={name}: {key} is {after} here and {before} in the study of that name; {way_out}"
            )
    for key in dict.fromkeys([*old.declaration, *new.declaration]):
        before = old.declaration.get(key)
        if before != new.declaration.get(key) and has_results(name):
            raise StoreError(
                f"name={name}: {key} was {before} when the study began, and there are results since; give"
                " another name, as name=NAME: what is finished is not run again"
            )
    return replace(
        new,
        factors={
            key: list(dict.fromkeys([*old.factors[key], *levels])) for key, levels in new.factors.items()
        },
        seeds=sorted({*old.seeds, *new.seeds}),
        runs=sorted({*old.runs, *new.runs}),
        config_dir=new.config_dir or old.config_dir,
        machine=new.machine or old.machine,
        left_out={**old.left_out, **new.left_out},
        roles=_grown_roles(old, new),
        chosen={**old.chosen, **new.chosen},
    )


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


def values_of(config: RunConfig) -> dict[str, Any]:
    """Every key of a config by its dotted name, with groups as the name chosen."""
    return _plain(dataclasses.asdict(config))


def _plain(nested: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys, with values as they are after a round trip through JSON."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in flatten(nested).items()}
