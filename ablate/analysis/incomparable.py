"""What must not stand in one table: rows of several texts or programs, two rows of one variant and seed,
single runs with different settings, variants on other processors than their baselines. Each is refused in one
line, with the way out."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ablate.analysis.frames import is_empty, is_foreign, select
from ablate.analysis.stats import Array
from ablate.analysis.variant import distinguishing, variants_of
from ablate.config.conditions import as_text, column_for
from ablate.config.rules import ConfigError, did_you_mean
from ablate.phrases import Note, advised, counted, first_few, lines_if, option
from ablate.store.columns import (
    COLUMNS,
    CONFIG_COLUMNS,
    METRICS,
    SEED_COLUMNS,
    WIDTHS,
    column_named,
    config_about,
)
from ablate.store.record import StudyRecord

if TYPE_CHECKING:
    from ablate.analysis.contrasts import Pair
    from ablate.analysis.variants import Variants

# Losses per token are not comparable across these columns, nor are results of different programs.
TEXT_COLUMNS = config_about("text")
CODE_COLUMNS = ("numerics", "torch")
# How often a run is evaluated does not change what it learns, so these columns define no variants, except for
# metrics that depend on them.
OF_EVALUATION = config_about("evaluation")
# Settings of a run besides its attention, which is what variants differ in; widths follow from others.
SETTINGS = tuple(name for name in config_about("model", "training") if name not in WIDTHS)
SHOWN = 3  # the most commands to name


class Incomparable(ConfigError):
    """These rows can't be compared in one table."""


def metrics_of(rows: pd.DataFrame, asked: str = "") -> list[str]:
    """The columns that can be compared: those with one number a run, some of them not empty. asked: a metric
    of another program, which may be called like a key of ablate."""
    taken = {*CONFIG_COLUMNS} - {asked} | {*SEED_COLUMNS} if is_foreign(rows) else {*COLUMNS} - {*METRICS}
    possible = rows[rows.columns.difference([*taken], sort=False)]
    numeric = possible.select_dtypes(["number", "bool", "boolean"]).dropna(axis=1, how="all")
    return [*map(str, numeric.columns)]


def refuse_no_metric(rows: pd.DataFrame, metric: str) -> None:
    """Raises Incomparable if no column of numbers is called so."""
    numeric = metrics_of(rows, metric)
    choices = f"choices: {', '.join(sorted(numeric))}"
    if metric not in numeric and metric not in ("val_loss", "test_loss"):
        if metric in METRICS and metric in rows and rows[metric].isna().all():
            why = f"empty in every row; these runs have none, or were made before the column was; {choices}"
        else:
            why = f"no column of results{did_you_mean(metric, numeric)}"
        raise Incomparable(f"--metric {metric}: {why}")
    if metric not in rows:
        raise Incomparable(f"--metric {metric}: no such column; {choices}")


def refuse_mixed(rows: pd.DataFrame, texts: bool = False) -> None:
    """Raises Incomparable if the rows are of several programs, or of several texts, unless a study varies
    these (texts)."""
    text = TEXT_COLUMNS if rows["corpus_sha256"].notna().any() else ("corpus", *TEXT_COLUMNS)
    for columns, what in ((() if texts else text, "texts"), (CODE_COLUMNS, "programs")):
        kinds = rows[rows.columns.intersection([*columns], sort=False)].drop_duplicates()
        kinds = kinds.astype(object).where(kinds.notna(), "unknown").astype(str).drop_duplicates()
        differing = [column for column in columns if column in kinds and kinds[column].nunique() > 1]
        if differing:
            values = ", ".join(f"{column} {_short(kinds[column].unique())}" for column in differing)
            raise Incomparable(
                f"these rows come from {len(kinds)} {what}, so their numbers don't compare: {values}; compare"
                " them apart, or allow it with --mixed of compare, report or plan"
            )


def refuse_mixed_parts(keyed: pd.DataFrame, differing: Sequence[str], columns: Sequence[str]) -> None:
    """Raises Incomparable if one variant has rows from several versions of its methods' code. differing: the
    columns that make variants, among all that define one."""
    parts = keyed["parts"].astype(object).where(keyed["parts"].notna(), "unknown")
    versions = parts.groupby([keyed[column] for column in differing], sort=False).unique()
    first = keyed.drop_duplicates(differing)
    for row, values in enumerate(versions):
        if len(values) > 1:
            name = variants_of(first, distinguishing(first, columns))[row].name
            raise Incomparable(
                f"{name}: its rows come from {len(values)} versions of its code, so they make no mean: parts"
                f" {_short(values)}; force=stale runs the older ones again, or allow it with"
                " --mixed of compare, report or plan"
            )


def _short(values: Iterable[str]) -> str:
    return " / ".join(value[:12] for value in values)


def row_in_words(row: Mapping[Hashable, Any], columns: Iterable[str]) -> str:
    """The values of a row in these columns, as far as there are any: fusion=sum heads=4."""
    texts = {column: as_text(row.get(column)) for column in columns}
    return " ".join(f"{column}={text}" for column, text in texts.items() if text)


def refuse_duplicates(
    keyed: pd.DataFrame,
    variant: Array,
    seed: Array,
    metric: str,
    named: Sequence[str],
    by: Sequence[str],
    pair_by: Sequence[str],
) -> None:
    """Raises Incomparable if two rows have one variant and seed. named: the columns that name a row."""
    key = pd.Series(variant * (seed.max() + 1) + seed)
    twice = key[key.duplicated(keep=False)]
    if len(twice):
        same = keyed[(key == twice.iloc[0]).to_numpy()]
        row = same.iloc[0]
        free = same.select_dtypes(exclude="float").columns.difference([*COLUMNS, metric, *by], sort=False)
        others = [str(column) for column in free if same[column].astype(str).nunique() > 1]
        way_out = "drop one"
        if pair_by and "seed" not in pair_by and same["seed"].nunique() > 1:
            way_out = f"{option('--pair-by', *pair_by, 'seed')} pairs by the seed, too"
        elif others:
            way_out = f"drop one, or {option('--by', *by, others[0])} if {others[0]} makes a variant"
        if looked := [column for column in OF_EVALUATION if same[column].nunique() > 1]:
            way_out = f"choose with {option('--where', f'{looked[0]}={row[looked[0]]}')}"
        ids = " and ".join(map(str, same["run_id"].dropna()))
        raise Incomparable(
            f"two rows of one variant and seed{f': runs {ids}' if ids else ''}"
            f" ({row_in_words(row.to_dict(), named)}, {metric}"
            f" {' and '.join(map(str, same[metric]))}); {way_out}"
        )


def refuse_pooling(table: pd.DataFrame, by: Sequence[str], differing: Sequence[str]) -> None:
    """Raises Incomparable if --by would average rows of different variants."""
    pooled = table[table.duplicated(list(by), keep=False)]
    if len(pooled):
        row = pooled.iloc[0]
        same = pooled[(pooled[list(by)] == row[list(by)]).all(axis=1)]
        column = next(column for column in differing if same[column].nunique() > 1)
        values = " / ".join(same[column].unique())
        what = " ".join(f"{key}={row[key]}" for key in by)
        raise Incomparable(
            f"--by {','.join(by)}: rows of {what} differ in {column} ({values}), and variants are never"
            f" averaged; add {column} to --by, or choose with --where {column}=…"
        )


def require_equal_settings(
    rows: pd.DataFrame, records: Sequence[StudyRecord], compared: Iterable[str] = ()
) -> None:
    """Raises Incomparable, with a command for each group, if all rows are from lists of single runs and
    differ in their text or their settings. compared: keys that variants may differ in all the same."""
    if not records or not all(record.is_one_by_one for record in records):
        return
    free = {*map(column_for, compared)}
    columns = [name for name in (*TEXT_COLUMNS, *SETTINGS) if name not in free]
    known = rows.dropna(subset=columns, how="all")  # a damaged run has its id alone
    texts = [known[name].map(lambda value: "null" if is_empty(value) else as_text(value)) for name in columns]
    groups = [group for _, group in known.groupby(texts, sort=False)] if len(known) else []
    if len(groups) < 2:
        return
    groups.sort(key=len, reverse=True)
    names = [record.name for record in records]
    compared = advised(["ablate", "compare", *names])
    asked = [
        f"{compared} {' '.join(_conditions(rows, group, columns))} ({counted(len(group), 'run')})"
        for group in groups[:SHOWN]
    ]
    more = lines_if(len(groups) > SHOWN, f"and {len(groups) - SHOWN} more")
    raise Incomparable(
        f"{' '.join(names)}: single runs of {len(groups)} texts or settings, which say nothing about each"
        f" other; compare one group: {', '.join([*asked, *more])}; --mixed compares all"
    )


def _conditions(rows: pd.DataFrame, group: pd.DataFrame, columns: Sequence[str]) -> Iterator[str]:
    """The options that choose this group among the rows."""
    settings = [name for name in columns if name not in TEXT_COLUMNS]
    for name in ("corpus", *settings, *(name for name in columns if name in TEXT_COLUMNS)):
        value = group[name].iloc[0]
        condition = f"{name}={'null' if is_empty(value) else as_text(value)}"
        if column_named(name).kind == "json":  # its commas would be read as those between values
            continue
        chosen = select(rows, [condition])
        if len(group) <= len(chosen) < len(rows):
            rows = chosen
            yield option("--where", condition)


def kinds_of_pairs(variants: "Variants", pairs: "Iterable[Pair]", *, mixed: bool) -> list[Note]:
    """A line if runs on several kinds of processors are compared, with the number of pairs over two kinds:
    one run has other losses on each, by as much as on other seeds (docs/precision.md). Raises Incomparable,
    unless mixed, if a variant and its baseline have no kind in common."""
    kinds_CS, ran_CS = variants.processors, variants.ran
    apart, paired = 0, 0
    for variant, base in pairs:
        one, other = ({*kinds_CS[side][ran_CS[side]]} for side in (variant, base))
        if one and other and not one & other and not mixed:
            raise Incomparable(
                f"{variants.names[variant]} was trained on {first_few(sorted(one))}, its baseline"
                f" {variants.names[base]} on {first_few(sorted(other))}, so their difference is also one of"
                " processors; train one of them again where the other was (force=true), or allow it with"
                " --mixed"
            )
        both_S = ran_CS[variant] & ran_CS[base]
        paired += int(both_S.sum())
        apart += int((both_S & (kinds_CS[variant] != kinds_CS[base])).sum())
    kinds, counts = np.unique(kinds_CS[ran_CS].astype(str), return_counts=True)
    if len(kinds) < 2:
        return []
    runs = "; ".join(f"{kind}: {counted(count, 'run')}" for kind, count in zip(kinds, counts, strict=True))
    line = f"processors of {len(kinds)} kinds ({runs})"
    if not apart:
        return [Note(f"{line}; each pair is of one kind")]
    pairs_apart = f"{apart} of {counted(paired, 'pair')}"
    return [
        Note(
            f"{line}; {pairs_apart} are over two kinds, which adds to their noise",
            "doubt",
            f"{pairs_apart} over two kinds of processors",
        )
    ]
