"""Rows that make no comparison: what is wrong with them in one line, with the way out."""

from collections.abc import Sequence

import pandas as pd

from ablate.analysis.question import Question, measured_columns, metrics_of
from ablate.analysis.variants import distinguishing, variants_of
from ablate.config.rules import ConfigError, did_you_mean
from ablate.phrases import joined, option
from ablate.store.columns import COLUMNS, RESULTS
from ablate.store.frames import (
    REPLICATE,
    STEPS,
    is_foreign,
    is_numeric,
    row_in_words,
    spellings,
    with_options,
)


def with_results(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The rows that may have a result in this metric. Raises ConfigError if there is none."""
    named = rows["seed"].notna() | rows["status"].isin(RESULTS)  # a damaged run may have only its id
    rows, foreign = with_options(rows[named]), is_foreign(rows)
    # Another program may list an attempt that crashed beside its finished repetition.
    kept = rows[rows["status"].isin(RESULTS)] if foreign else rows
    if kept.empty:
        raise ConfigError(no_result(rows, metric))
    if foreign and metric in kept and is_numeric(kept[metric]) and kept[metric].notna().any():
        return kept
    numeric = metrics_of(kept, metric)
    if metric in numeric or (metric in ("val_loss", "test_loss") and not foreign):
        return kept
    if metric not in kept or (foreign and metric in COLUMNS and kept[metric].isna().all()):
        wide = measured_columns(kept, metric) if foreign else []
        melts = f"; if each column is a variant: {option('--by', *wide)}" if len(wide) > 1 else ""
        raise ConfigError(f"--metric {metric}: no column of results{did_you_mean(metric, numeric)}{melts}")
    if not kept[metric].isna().all() and not is_numeric(kept[metric]):
        raise ConfigError(f"--metric {metric}: {kept[metric].dropna().iloc[0]!r} is no number{_others(kept)}")
    raise ConfigError(no_result(kept, metric))


def no_result(rows: pd.DataFrame, metric: str) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in rows["status"].value_counts().items())
    return f"{metric}: no finished run has it ({counts or 'no rows'}){_others(rows, metric)}"


def _others(rows: pd.DataFrame, metric: str = "") -> str:
    others = sorted({*metrics_of(rows)} - {metric})
    return f"; --metric takes another column: {joined(others, 'or')}" if others else ""


def refuse_unplaced(keyed: pd.DataFrame, variant: pd.Series, settings: Sequence[str], metric: str) -> None:
    """Raises ConfigError if rows without a seed are parts of runs: a column, as of tasks or steps, has the
    same values in all variants, each once."""
    placed = [*settings, metric, "value", *COLUMNS]
    for column in keyed.columns[keyed.notna().any()].difference(placed, sort=False):
        of = spellings(keyed[column]).groupby(variant).agg(["nunique", "size", frozenset])
        same = (of["nunique"] == of["size"]).all() and of["frozenset"].nunique() == 1
        if REPLICATE.fullmatch(column) or not same or len(of) == 1 or of["size"].max() == 1:
            continue
        if STEPS.fullmatch(column):
            raise ConfigError(_history(keyed, column, settings))
        raise ConfigError(
            f"no seed says what a run is, and {column} has the same {of['size'].max():,} values in each"
            f" variant: {option('--pair-by', column)}, if each is one run; else a column seed"
        )


def refuse_duplicates(
    keyed: pd.DataFrame, place: Sequence[str], metric: str, question: Question, named: Sequence[str]
) -> None:
    """Raises ConfigError if two rows have one variant and unit."""
    if (again := keyed[keyed.duplicated([*place], keep=False)]).empty:
        return
    row, by, pair_by = again.iloc[0], question.by, question.pair_by or ["seed"]
    same = again[(again[[*place]] == row[[*place]]).all(axis=1)]
    known = [metric, *by, *place, *pair_by, "value", *([] if is_foreign(keyed) else COLUMNS)]
    differing = [
        str(column)
        for column in keyed.columns.difference(known, sort=False)
        if same[column].astype(str).nunique() > 1 and keyed[column].astype(str).nunique() < len(keyed)
    ]
    if steps := [column for column in differing if STEPS.fullmatch(column)]:
        raise ConfigError(_history(keyed, steps[0], [*by, *pair_by]))
    way = f" differ in {differing[0]}; use --by, --pair-by or --where of it" if differing else ""
    ids = " and ".join(map(str, same["run_id"].dropna()[:2]))
    values = " and ".join(f"{value:.10g}" for value in same["value"][:2])
    count, which = "two" if len(same) == 2 else len(same), row_in_words(row.to_dict(), named)
    raise ConfigError(
        f"{count} rows of one variant and seed{f': runs {ids}' if ids else ''} ({which}: {metric} {values})"
        f"{way or '; leave one out, or give them a column that differs'}"
    )


def _history(keyed: pd.DataFrame, step: str, keys: Sequence[str]) -> str:
    """The line on rows that are steps of one run, with how to take the last."""
    numbers = pd.to_numeric(keyed[step], errors="coerce")
    ends = numbers.groupby([keyed[key] for key in keys]).max()
    of = ", ".join(f'"{key}"' for key in keys)
    last = f'frame.sort_values("{step}").groupby([{of}]).tail(1)'
    way = option("--where", f"{step}={ends.max():.15g}") if ends.nunique() == 1 else last
    return f"rows of one run differ in {step}, as a history does; take the last of each: {way}"


def refuse_pooling(table: pd.DataFrame, by: Sequence[str], differing: Sequence[str]) -> None:
    """Raises ConfigError if --by would average rows of different variants."""
    pooled = table[table.duplicated(list(by), keep=False)] if by else table.iloc[:0]
    if len(pooled):
        row = pooled.iloc[0]
        same = pooled[(pooled[list(by)] == row[list(by)]).all(axis=1)]
        column = next(column for column in differing if same[column].nunique() > 1)
        what = " ".join(f"{key}={row[key]}" for key in by)
        raise ConfigError(
            f"--by {','.join(by)}: rows of {what} differ in {column} ({' / '.join(same[column].unique())}),"
            f" and variants are never averaged; add {column} to --by, or choose with --where {column}=…"
        )


def refuse_mixed_parts(keyed: pd.DataFrame, settings: Sequence[str]) -> None:
    """Raises ConfigError if one variant has rows from several versions of its methods' code."""
    parts = keyed["parts"].astype(object).where(keyed["parts"].notna(), "").astype(str)
    if is_foreign(keyed) or parts.nunique() < 2:
        return
    of_variants = parts.groupby(keyed["variant_"], sort=False).unique()
    for at, values in of_variants[of_variants.map(len) > 1].head(1).items():
        first = keyed.drop_duplicates("variant_")
        shown = variants_of(first, distinguishing(first, settings))
        name = dict(zip(first["variant_"], shown, strict=True))[at].name
        short = " / ".join(value[:12] or "unknown" for value in values)
        raise ConfigError(
            f"{name}: its rows come from {len(values)} versions of its code, so they make no mean: parts"
            f" {short}; force=stale runs the older ones again, or allow it with --mixed"
        )
