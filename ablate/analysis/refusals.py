"""Rows that make no comparison: what is wrong with them in one line, with the way out."""

from collections.abc import Sequence

import pandas as pd

from ablate.analysis.question import Question, measured_columns, metrics_of
from ablate.analysis.variant import as_pairs, distinguishing, variants_of
from ablate.analysis.variants import identified
from ablate.config.rules import ConfigError, did_you_mean
from ablate.phrases import joined, option
from ablate.store.columns import COLUMNS, METRICS, RESULTS
from ablate.store.frames import (
    REPLICATE,
    STEPS,
    is_foreign,
    is_numeric,
    row_in_words,
    spellings,
    with_options,
)

FEW = 6  # the most levels of a column that may be varied, rather than sampled


def with_results(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The rows that may have a result in this metric. Raises ConfigError if there is none."""
    rows = with_options(identified(rows))
    # Another program may list an attempt that crashed beside its finished repetition.
    kept = rows[rows["status"].isin(RESULTS)] if is_foreign(rows) else rows
    if kept.empty:
        raise ConfigError(no_result(rows, metric))
    if is_foreign(kept) and metric in kept and is_numeric(kept[metric]) and kept[metric].notna().any():
        return kept
    numeric = metrics_of(kept, metric)
    if metric in numeric or (metric in ("val_loss", "test_loss") and not is_foreign(kept)):
        return kept
    if metric not in kept or (is_foreign(kept) and metric in COLUMNS and kept[metric].isna().all()):
        wide = measured_columns(kept, metric)
        pandas = f'frame.melt("seed", var_name="method", value_name="{metric}") makes a row of each'
        melts = (
            f"; if each column is a variant: {option('--by', *wide)}, or {pandas}"
            if len(wide) > 1 and is_foreign(kept)
            else ""
        )
        raise ConfigError(f"--metric {metric}: no column of results{did_you_mean(metric, numeric)}{melts}")
    cells = kept[metric].dropna()
    if len(cells) and not is_numeric(cells):
        raise ConfigError(f"--metric {metric}: {str(cells.iloc[0])!r} is no number; {_choices(kept)}")
    if is_foreign(kept) or metric not in METRICS:
        raise ConfigError(no_result(kept, metric))
    why = "empty in every row; these runs have none, or were made before the column was"
    raise ConfigError(f"--metric {metric}: {why}; {_choices(kept)}")


def _choices(rows: pd.DataFrame) -> str:
    return f"choices: {', '.join(sorted(metrics_of(rows))) or 'no column of numbers'}"


def no_result(rows: pd.DataFrame, metric: str) -> str:
    none = f"{metric}: no finished run has it"
    if rows.empty or not is_foreign(rows):
        return f"{none}; ablate runs lists the runs"
    counts = ", ".join(f"{count} {status}" for status, count in rows["status"].value_counts().items())
    choices = sorted({*metrics_of(rows)} - {metric})
    others = f": {joined(choices, 'or')}" if choices else ""
    return f"{none} ({counts}); --metric takes another column{others}"


def refuse_unplaced(keyed: pd.DataFrame, variant: pd.Series, placed: set[str]) -> None:
    """Raises ConfigError if rows without a seed are parts of runs: a column, as of tasks or steps, has the
    same values in all variants, each once."""
    for column in keyed.columns[keyed.notna().any()].difference([*placed, *COLUMNS, "value"], sort=False):
        of = spellings(keyed[column]).groupby(variant).agg(["nunique", "size", frozenset])
        same = (of["nunique"] == of["size"]).all() and of["frozenset"].nunique() == 1
        if REPLICATE.fullmatch(column) or not same or len(of) == 1 or of["size"].max() == 1:
            continue
        if STEPS.fullmatch(column):
            raise ConfigError(_history(keyed.assign(variant_=variant), [column], ["variant_"], []))
        raise ConfigError(
            f"no seed says what a run is, and {column} has the same {of['size'].max():,} values in each"
            f" variant: {option('--pair-by', column)}, if each is one run; else a column seed"
        )


def refuse_duplicates(
    keyed: pd.DataFrame, place: Sequence[str], metric: str, question: Question, named: Sequence[str]
) -> None:
    """Raises ConfigError if two rows have one variant and unit."""
    place = [*place]
    if not keyed.duplicated(place).any():
        return
    row = keyed[keyed.duplicated(place, keep=False)].iloc[0]
    same = keyed[(keyed[place] == row[place]).all(axis=1)]
    by, pair_by = question.by, question.pair_by
    known = {metric, *by, *place, *pair_by, "value", "seed", *(COLUMNS if not is_foreign(keyed) else ())}
    varying = [
        str(column)
        for column in keyed.columns.difference([*known], sort=False)
        if same[column].astype(str).nunique() > 1 and keyed[column].astype(str).nunique() < len(keyed)
    ]
    if steps := [column for column in varying if STEPS.fullmatch(column)]:
        raise ConfigError(_history(keyed, steps, place, [*by, *(pair_by or ["seed"])]))
    ways = []
    for column in varying[:1]:
        ways = [option("--pair-by", *(pair_by or ["seed"]), column)]
        if not REPLICATE.fullmatch(column):
            ways.append(option("--where", as_pairs({column: spellings(same[column]).iloc[0]})))
        if keyed[column].astype(str).nunique() <= FEW and not pair_by:
            ways.insert(0, option("--by", *by, column))
    if not ways and pair_by and same["seed"].nunique() > 1:
        ways.append(option("--pair-by", *pair_by, "seed"))
    ids = " and ".join(map(str, same["run_id"].dropna()[:2]))
    values = " and ".join(f"{value:.10g}" for value in same["value"][:2])
    way_out = "leave one out, or give them a column that differs, for --pair-by or --where"
    way_out = f"tell them apart with {joined(ways, 'or')}" if ways else way_out
    count, which = "two" if len(same) == 2 else len(same), row_in_words(row.to_dict(), named)
    raise ConfigError(
        f"{count} rows of one variant and seed{f': runs {ids}' if ids else ''} ({which}: {metric} {values});"
        f" {way_out}"
    )


def _history(keyed: pd.DataFrame, steps: Sequence[str], place: Sequence[str], keys: Sequence[str]) -> str:
    """The line on rows that are steps of one run, with how to take the last."""
    step = steps[0]
    numbers = pd.to_numeric(keyed[step], errors="coerce")
    last = numbers.groupby([keyed[column] for column in place]).transform("max")
    (most, *others), text = sorted({*last.dropna()}, reverse=True) or [0], spellings(keyed[step])
    one = text[numbers == most].iloc[0] if len(last) else ""
    names = ", ".join(f'"{key}"' for key in keys)
    line = f'frame.sort_values("{step}"){f".groupby([{names}]).tail(1)" if keys else ""}'
    way = line if others else option("--where", f"{step}={one}")
    return f"rows of one run differ in {step} (to {one}), as a history does; take the last of each: {way}"


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
