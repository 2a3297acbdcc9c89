"""The projection of rows: by the roles of its columns each row has a place, a variant and a unit.

A column is a setting, which defines a variant; a seed, which says what was trained; a measurement; or a
remark. Of rows of ablate's own `store.columns` says which. Of those of another program it is what the user
said (`--by`, `--pair-by`, `--metric`), and what is left over is a doubt if it varies with the variant.

The unit is what was trained. If runs have several rows each, as of documents or tasks (items), a value is
their mean within the run. If each variant is one run, the items are what was sampled.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from ablate.analysis.copies import checked
from ablate.analysis.measures import as_floats, left_over, others, with_results
from ablate.analysis.places import alone, placed, refuse_pooling
from ablate.analysis.question import NOTHING_ASKED, Question
from ablate.analysis.stats import Array
from ablate.analysis.variants import CARRIED, MARKS, Variants, distinguishing, options_of, setting_columns
from ablate.config.conditions import key_in
from ablate.config.rules import ConfigError
from ablate.phrases import Note, counted, lines_if
from ablate.store.columns import SEED_COLUMNS, on_validation
from ablate.store.frames import as_texts, column_of, is_exempt, is_foreign, is_simulated, spellings


def project(
    rows: pd.DataFrame, metric: str, question: Question = NOTHING_ASKED, *, better: bool | None = None
) -> Variants:
    """The variants of these rows, which are with_options, except those of which no run finished or diverged.
    better: whether more of the metric is. Raises ConfigError."""
    foreign, exempt = is_foreign(rows), is_exempt(rows)
    is_simulated(rows)  # all or none
    by, pair_by, shown, settings = _columns(rows, metric, question)
    seeds = [column for column in SEED_COLUMNS if rows[column].notna().any()]
    rows = with_results(rows, metric)
    keyed, said = _as_keys(rows, settings, seeds, pair_by), list[Note]()
    if not exempt:
        keyed, said = alone(keyed, by, [*dict.fromkeys([*seeds, *pair_by])], settings)
    differing = [column for column in settings if keyed[column].nunique() > 1] or settings[:1]
    keyed = keyed.assign(variant_=keyed.groupby(differing, sort=False).ngroup())
    question = replace(question, by=by, pair_by=pair_by)
    keyed, trained, items, sampled = placed(keyed, seeds, settings, metric, question)
    C, S = (int(keyed[place].max()) + 1 for place in ("variant_", "unit_"))

    def array(values: Iterable[Any], missing: Any) -> Array:
        values_N = np.asarray(values)
        cells = np.full((C, S), missing, np.result_type(values_N.dtype, np.asarray(missing).dtype))
        cells[keyed["variant_"], keyed["unit_"]] = values_N
        return cells

    values, lost = array(keyed["value_"].where(keyed["usable_"]), np.nan), array(keyed["lost_"], False)
    kept = np.flatnonzero((~np.isnan(values) | lost).any(1))
    table = _table(keyed, settings).take(kept).reset_index(drop=True)
    refuse_pooling(table, by, differing)
    marks = left_over(rows, {*settings, *pair_by, metric}) if foreign else MARKS
    measures = [] if exempt or items else others(keyed, {*settings, *pair_by, *seeds, metric})
    twin = on_validation(metric)
    has_twin = not foreign and not items and twin != metric and rows[twin].notna().any()
    tuned = [] if foreign else sorted({column_of(key, settings, "tune") for key in {*table["tuned"]} - {""}})
    telling = [*by, *shown] if by else distinguishing(table, settings, shown) or settings[:1]
    variants = Variants(
        metric=metric,
        higher_is_better=better,
        columns=settings,
        shown=[*dict.fromkeys(telling)],
        options=options_of(rows),
        table=table,
        is_foreign=foreign,
        free=tuned,
        values=values[kept],
        diverged=lost[kept],
        run_ids=array(_as_they_are(keyed["run_id"]), "")[kept],
        seeds=keyed[trained or ["seed"]].groupby(keyed["unit_"]).first(),
        paired=bool(trained),
        items=items,
        sampled=sampled,
        twin=array(as_floats(keyed[twin]), np.nan)[kept] if has_twin else None,
        measures=[array(of, np.nan)[kept] for of in measures],
        marks={column: array(_as_they_are(keyed[column]), "")[kept] for column in marks},
        fixed=np.full(len(table), np.nan),
        constant=np.zeros(len(table), bool),
        copied=np.zeros((len(table), S), bool),
        notes=said,
    )
    return variants if exempt else checked(variants, question.fixed)


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


def _table(keyed: pd.DataFrame, settings: Sequence[str]) -> pd.DataFrame:
    """A row for each variant, with the first value that its rows have in each column, finished runs first."""
    finished_first = np.argsort(~keyed["usable_"], kind="stable")
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
