"""How a study may grow: the record of what is asked for, merged into that of what was asked for before."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import NoReturn

from ablate.config.contrast import FEWEST
from ablate.files.atomic import StoreError
from ablate.phrases import first_few
from ablate.store.record import PlannedContrast, PlannedLooks, Role, StudyRecord

GROWTH = "a study may grow by seeds, a grid by levels, too; give another name, as name=NAME"


def grown(
    old: StudyRecord | None,
    new: StudyRecord,
    has_results: Callable[[str], bool] = lambda study: True,
    ended: Callable[[], Collection[str]] = set,
) -> StudyRecord:
    """The record after `new` is merged into `old`: a declared study may grow by seeds, any other grid by
    levels, too, a list of single runs by runs. Raises StoreError for any other change.

    has_results: whether the study of a name has results. Until then, what it declares may still change.
    ended: the ids of all runs with results, by which a contrast is known that was not named beforehand.
    """
    if old is None:
        return replace(new, contrasts=_contrasts([], new.contrasts, ended))
    name = new.name

    def refuse(why: str, way_out: str = GROWTH) -> NoReturn:
        raise StoreError(f"name={name}: {why}; {way_out}")

    if old.kind != new.kind:
        refuse(f"a study of that name holds a {old.kind}, this is a {new.kind}")
    was, now = ({**one.fixed, **dict.fromkeys(one.factors, "a factor")} for one in (old, new))
    for key in sorted({*was, *now}):
        if was.get(key) != now.get(key):
            refuse(f"{key} is {now.get(key)} here and {was.get(key)} in the study of that name")
    seeds = new.looks.seeds if new.looks else new.reporting_seeds
    if old.looks and old.factors == new.factors and seeds != old.looks.seeds and has_results(name):
        last = f"the last one at {old.looks.at[-1]} of them"
        beyond = "a study goes on beyond its last look, or with other seeds, only under another name"
        refuse(f"its looks take the seeds {first_few(old.looks.seeds)}, {last}", f"{beyond}, as name=NAME")
    was, now = old.declaration, new.declaration
    if old.metric:  # a command may ask for fewer levels, but for no others
        was |= {key: sorted(of) for key, of in old.factors.items()}
        now |= {key: sorted({*old.factors.get(key, ()), *of}) for key, of in new.factors.items()}
    for key in dict.fromkeys([*was, *now]):
        if was.get(key) != now.get(key) and has_results(name):
            again = "give another name, as name=NAME: what is finished is not run again"
            refuse(f"{key} was {was.get(key)} when the study began, and there are results since", again)
    is_kept = old.declaration == new.declaration
    levels = {} if new.metric and not has_results(name) else old.factors
    return replace(
        new,
        digest=old.digest if old.digest != new.digest and has_results(name) else new.digest,
        contrasts=_contrasts(old.contrasts if is_kept else [], new.contrasts, ended),
        looks=with_looks(old, new.looks).looks,
        grew=_grew(old, new, has_results),
        factors={key: list(dict.fromkeys([*levels.get(key, ()), *of])) for key, of in new.factors.items()},
        seeds=sorted({*old.seeds, *new.seeds}),
        runs=sorted({*old.runs, *new.runs}),
        config_dir=new.config_dir or old.config_dir,
        threads=new.threads or old.threads,
        left_out={**old.left_out, **new.left_out},
        roles=_grown_roles(old, new),
        chosen={**old.chosen, **new.chosen},
    )


def _contrasts(
    old: Sequence[PlannedContrast], new: Sequence[PlannedContrast], ended: Callable[[], Collection[str]]
) -> list[PlannedContrast]:
    """The contrasts with all their runs. One was named beforehand unless two of its arms have results when
    its runs are first written down."""
    known, results = {one.name: one for one in old}, None
    merged = [one for one in old if one.name not in {other.name for other in new}]
    for one in new:
        if (was := known.get(one.name)) and was.runs:
            ids = {side.arm: side.runs for side in was.sides}
            sides = [replace(side, runs=sorted({*ids.get(side.arm, ()), *side.runs})) for side in one.sides]
            merged.append(replace(one, sides=sides, beforehand=was.beforehand))
        elif one.runs:
            results = {*ended()} if results is None else results
            with_results = sum(not results.isdisjoint(side.runs) for side in one.sides)
            merged.append(replace(one, beforehand=with_results < 2))
        else:
            merged.append(one)
    return merged


def with_looks(record: StudyRecord, looks: PlannedLooks | None) -> StudyRecord:
    """The record with these looks of the same study."""
    if record.looks and looks:
        looks = replace(looks, decided={**record.looks.decided, **looks.decided})
    return replace(record, looks=looks)


def _grew(old: StudyRecord, new: StudyRecord, has_results: Callable[[str], bool]) -> list[int]:
    """Fewer seeds than a verdict takes tell nobody whether more are wanted."""
    before, after = {*old.reporting_seeds}, {*old.reporting_seeds, *new.reporting_seeds}
    if new.looks or new.is_one_by_one or len(before) < FEWEST or after == before or not has_results(new.name):
        return old.grew
    return [*(old.grew or [len(before)]), len(after)]


def _grown_roles(old: StudyRecord, new: StudyRecord) -> dict[str, Role]:
    """The role of each run of a tuned study. If the grown study chooses another value for an arm, the runs at
    the old value stay, but lose the roles that they had because of it."""
    moved = {arm for arm, was in old.chosen.items() if new.chosen.get(arm, was).value != was.value}
    kept = dict(old.roles)
    for run_id, role in old.roles.items() if moved else ():
        values = {name: [arm for arm in arms if arm not in moved] for name, arms in role.values.items()}
        values = {name: arms for name, arms in values.items() if arms}
        kept[run_id] = replace(role, role=" ".join(values), values=values)
    return {**kept, **new.roles}
