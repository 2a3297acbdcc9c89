"""The projection of rows: by the roles of its columns each row has a place, a variant and a unit.

A column is a setting, which defines a variant; a seed, which says what was trained; a measurement; or a
remark. Of rows of ablate's own `store.columns` says which. Of those of another program it is what the user
said (`--by`, `--pair-by`, `--metric`), and what is left over is a doubt if it varies with the variant.

The unit is what was trained. If runs have several rows each, as of documents or tasks (items), a value is
their mean within the run. If each variant is one run, the items are what was sampled.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ablate.analysis.no_runs import checked, measures_of, once, without_summaries
from ablate.analysis.numbers import as_floats, can_be_numbers
from ablate.analysis.question import NOTHING_ASKED, Question
from ablate.analysis.refusals import (
    no_result,
    refuse_duplicates,
    refuse_mixed_parts,
    refuse_pooling,
    refuse_unplaced,
    with_results,
)
from ablate.analysis.stats import Array
from ablate.analysis.variants import (
    CARRIED,
    PROGRAM,
    USABLE,
    Variants,
    distinguishing,
    diverged,
    options_of,
    setting_columns,
)
from ablate.config.conditions import key_in
from ablate.config.rules import ConfigError
from ablate.phrases import Note, counted, counted_between, lines_if
from ablate.store.columns import SEED_COLUMNS, Status, of_role, on_validation
from ablate.store.frames import (
    FILE,
    LARGEST,
    REPLICATE,
    SEEDS,
    as_texts,
    column_of,
    is_exempt,
    is_foreign,
    is_simulated,
    row_in_words,
    spellings,
)

MOST_CELLS = 10_000_000  # of variants times units: about half a gigabyte


def project(
    rows: pd.DataFrame, metric: str, question: Question = NOTHING_ASKED, *, better: bool | None = None
) -> Variants:
    """The variants of these rows, except those of which no run finished or diverged. better: whether more of
    the metric is. Raises ConfigError."""
    foreign, exempt = is_foreign(rows), is_exempt(rows)
    is_simulated(rows := with_results(rows, metric))  # all or none
    by, pair_by, shown, settings = _columns(rows, metric, question)
    seeds = [column for column in SEED_COLUMNS if rows[column].notna().any()]
    named = [*dict.fromkeys(["fusion", "heads", *by, *pair_by, "seed"])]
    keyed, said = _as_keys(rows, settings, seeds, pair_by), list[Note]()
    keyed = keyed.assign(value=_numbers(rows, metric, named))
    if not exempt:
        keyed, said = without_summaries(_with_blanks(keyed, by), [*dict.fromkeys([*seeds, *pair_by])], rows)
    differing = [column for column in settings if keyed[column].nunique() > 1] or settings[:1]
    variant = keyed.groupby(differing, sort=False).ngroup()
    trained, items, sampled = _units(keyed, seeds, pair_by, variant)
    if foreign and not trained:
        refuse_unplaced(keyed, variant, settings, metric)
    unit = keyed.groupby(trained).ngroup() if trained else variant.groupby(variant).cumcount()
    keyed = keyed.assign(variant_=variant, unit_=unit)
    place = ["variant_", "unit_", *items]
    if not exempt:
        keyed, lines = once(keyed, place)
        said += lines
    refuse_duplicates(keyed, place, metric, question, named)
    if (C := int(variant.max()) + 1) * (S := int(unit.max()) + 1) > MOST_CELLS:
        cells = f"{C:,} variants times {S:,} seeds are more cells than the {MOST_CELLS:,}"
        raise ConfigError(f"{cells} that fit; choose rows with --where, or other columns with --pair-by")
    usable = keyed["status"].isin(USABLE) & np.isfinite(keyed["value"])
    keyed = keyed.assign(usable=usable, lost=diverged(keyed, keyed["value"]))
    if not keyed["usable"].any():
        ended = np.where(keyed["lost"], str(Status.DIVERGED), keyed["status"].astype(str))
        raise ConfigError(no_result(rows.loc[keyed.index].assign(status=ended), metric))
    if not question.mixed:
        refuse_mixed_parts(keyed[keyed["usable"] | keyed["lost"]], settings)
    keyed, over = _means(keyed, items) if items else (keyed, "")

    def array(values: Iterable[Any], missing: Any) -> Array:
        values_N = np.asarray(values)
        placed = np.full((C, S), missing, np.result_type(values_N.dtype, np.asarray(missing).dtype))
        placed[keyed["variant_"], keyed["unit_"]] = values_N
        return placed

    values, lost = array(keyed["value"].where(keyed["usable"]), np.nan), array(keyed["lost"], False)
    kept = np.flatnonzero((~np.isnan(values) | lost).any(1))
    table = _table(keyed, settings).take(kept).reset_index(drop=True)
    refuse_pooling(table, by, differing)
    marks = _left_over(rows, {*settings, *pair_by, metric}) if foreign else PROGRAM
    twin = on_validation(metric)
    has_twin = not foreign and not items and twin != metric and rows[twin].notna().any()
    variants = Variants(
        metric=metric,
        higher_is_better=better,
        columns=settings,
        shown=[*dict.fromkeys([*by, *shown])]
        if by
        else distinguishing(table, settings, shown) or settings[:1],
        options=options_of(rows),
        table=table,
        is_foreign=foreign,
        free=[]
        if foreign
        else sorted({column_of(key, settings, "tune") for key in {*table["tuned"]} - {""}}),
        values=values[kept],
        diverged=lost[kept],
        run_ids=array(_as_they_are(keyed["run_id"]), "")[kept],
        seeds=keyed[trained or ["seed"]].groupby(keyed["unit_"]).first(),
        paired=bool(trained),
        items=over,
        sampled=sampled,
        twin=array(as_floats(keyed[twin]), np.nan)[kept] if has_twin else None,
        marks={column: array(_as_they_are(keyed[column]), "")[kept] for column in marks},
        fixed=np.full(len(table), np.nan),
        constant=np.zeros(len(table), bool),
        copied=np.zeros((len(table), S), bool),
        notes=said,
    )
    if exempt:
        return variants
    measures = [] if items else measures_of(keyed, {*settings, *pair_by, *seeds, metric})
    return checked(variants, [array(of, np.nan)[kept] for of in measures], question.fixed)


# --- where a row belongs -----------------------------------------------------------------------------------


def _columns(
    rows: pd.DataFrame, metric: str, question: Question
) -> tuple[list[str], list[str], list[str], list[str]]:
    """The columns of --by and of --pair-by, those that names have in any case, and those that define a
    variant. Raises ConfigError."""
    foreign, there = is_foreign(rows), rows.columns[rows.notna().any()]
    if foreign and rows["status"].nunique() == 1:  # which a table of another program has from us
        there = there.drop("status")
    by, pair_by = (
        [column_of(key, rows.columns, f"{name} {key}", there) for key in dict.fromkeys(keys)]
        for name, keys in (("--by", question.by), ("--pair-by", question.pair_by))
    )
    shown, own = (  # what is asked for by name, as a preset of the model, has columns like any setting
        [key for name in names if (key := key_in(name, [*map(str, rows.columns)]))]
        for names in ([*filter(None, [question.within]), *question.shown], [*(question.baseline or {})])
    )
    shown += lines_if(not (foreign or by or shown) and rows["model"].nunique() > 1, "model")
    settings = [*(by if foreign and by else [*setting_columns(rows), *by]), *shown, *own]
    return by, pair_by, shown, [key for key in dict.fromkeys(settings) if key != metric]


def _as_keys(
    rows: pd.DataFrame, settings: Sequence[str], seeds: Sequence[str], pair_by: Sequence[str]
) -> pd.DataFrame:
    """The rows with these columns as text: of another program as it is spelt, but for seeds. Raises
    ConfigError for a row without a seed, or without what pairs it, if others have one."""
    read = spellings if is_foreign(rows) else as_texts
    keyed = rows.assign(**{key: read(rows[key]) for key in {*settings, *pair_by} - {*seeds}})
    keyed = keyed.assign(**{key: as_texts(rows[key]) for key in seeds})
    for column in (*pair_by, *(seeds if is_foreign(rows) else ())):
        if lacking := int((keyed[column] == "").sum()):
            option = "--pair-by " if column in pair_by else ""
            raise ConfigError(f"{option}{column}: {counted(lacking, 'row')} without it; complete or drop")
    return keyed


def _with_blanks(keyed: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """The rows with None for a level that is missing, as pandas has it. Raises ConfigError if others say so
    by that word."""
    for column in by:
        if (blank := keyed[column] == "").any() and (keyed[column] == "None").any():
            count = counted(int(blank.sum()), "row")
            raise ConfigError(
                f"--by {column}: it is None in some rows, and blank in {count}; name what is blank"
            )
        keyed = keyed.assign(**{column: keyed[column].where(~blank, "None")})
    return keyed


def _units(
    keyed: pd.DataFrame, seeds: Sequence[str], pair_by: Sequence[str], variant: pd.Series
) -> tuple[list[str], list[str], str]:
    """The columns by which a unit is known, those of its items, and what was sampled in place of
    trainings."""
    of_one = {c for c in pair_by if variant.nunique() > 1 and variant.groupby(keyed[c]).nunique().max() == 1}
    named = [column for column in pair_by if REPLICATE.fullmatch(column) or column in of_one]
    others = [column for column in pair_by if column not in named]
    trained = named or [*seeds]
    if not others:
        return trained, [], ""
    runs = keyed[trained].assign(variant_=variant).drop_duplicates() if trained else keyed[[]]
    if trained and runs["variant_"].duplicated().any():
        return trained, others, ""
    # Each variant is one run, so its rows are what was sampled: the column of fewest levels, as others may
    # lie within it.
    first, *rest = sorted(others, key=lambda column: keyed[column].nunique())
    return [first], rest, first


def _means(keyed: pd.DataFrame, items: Sequence[str]) -> tuple[pd.DataFrame, str]:
    """A row a unit: the mean over the items that all variants have of it or, where no two share a unit, over
    those that all have; and what it is a mean over."""
    usable = keyed[keyed["usable"]]
    counts = usable.groupby(["variant_", "unit_"]).size()
    over = counted_between(int(counts.min()), int(counts.max()), items[0] if len(items) == 1 else "row")
    shared = usable.groupby("unit_")["variant_"].nunique().max() > 1
    of_unit = ["unit_"] if shared else []
    of_item = usable.groupby([*of_unit, *items])["variant_"].transform("size" if shared else "nunique")
    most = of_item.groupby(keyed["unit_"]).transform("max") if shared else of_item.max()
    keyed = keyed.assign(value=keyed["value"].where(of_item.reindex(keyed.index) == most))
    places = keyed.groupby(["variant_", "unit_"], sort=False)
    first, lost = places.head(1).set_index(["variant_", "unit_"]), places["lost"].any()
    value = places["value"].mean()
    return first.assign(value=value, lost=lost, usable=value.notna() & ~lost).reset_index(), over


def _numbers(rows: pd.DataFrame, metric: str, named: Sequence[str]) -> Array:
    """(N,) the metric of each row; NaN where there is none. Raises ConfigError for a word in its place, or a
    number that is too large."""
    value = as_floats(rows[metric])
    huge = np.isfinite(value) & (np.abs(value) > LARGEST)
    for row in rows[huge | (np.isnan(value) & rows[metric].notna().to_numpy())].head(1).to_dict("records"):
        why = f"{str(row[metric])!r} is no usable number ({row_in_words(row, named)})"
        raise ConfigError(f"{metric}: {why}; correct the row or leave it out")
    return value


def _table(keyed: pd.DataFrame, settings: Sequence[str]) -> pd.DataFrame:
    """A row for each variant, with the first value that its rows have in each column, finished runs first."""
    finished_first = np.argsort(~keyed["usable"], kind="stable")
    if is_foreign(keyed):  # whose words for these mean something else
        keyed = keyed.assign(**dict.fromkeys({*CARRIED} - {*settings, "run_id"}, np.nan))
    table = keyed.reindex(columns=[*dict.fromkeys([*settings, *CARRIED])]).take(finished_first)
    table = table.groupby(keyed["variant_"].take(finished_first).to_numpy()).first()
    for column in ("form", "function_class", "tuned"):
        if column not in settings:  # by which others may name variants
            table[column] = as_texts(table[column])
    return table


def _as_they_are(cells: pd.Series) -> Array:
    """The cells as text, digit by digit, as an id or a version is; empty where there is none."""
    return cells.astype(object).where(cells.notna(), "").astype(str).to_numpy(object)


def _left_over(rows: pd.DataFrame, placed: set[str]) -> list[str]:
    """The columns of another program that vary and that nobody has placed: of words that are no name of a
    single row, and of numbers that are no measurement, which has another value in most rows."""
    known = {*placed, *of_role("identity", "metric", "seed", "resource"), FILE}
    there = map(str, rows.columns[rows.notna().any()])
    free = [column for column in there if column not in known and not SEEDS.fullmatch(column)]
    kinds = {column: rows[column].astype(str).nunique() for column in free}
    many = [column for column in free if kinds[column] > len(rows) // 2 and can_be_numbers(rows[column])]
    return [column for column in free if 1 < kinds[column] < len(rows) and column not in many]
