"""Group rows into variants with a value per seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from ablate.analysis.frames import (
    LARGEST,
    as_texts,
    is_foreign,
    is_simulated,
    option_names,
    with_options,
)
from ablate.analysis.incomparable import (
    OF_EVALUATION,
    TEXT_COLUMNS,
    Incomparable,
    metrics_of,
    refuse_duplicates,
    refuse_mixed,
    refuse_mixed_parts,
    refuse_no_metric,
    refuse_pooling,
    row_in_words,
)
from ablate.analysis.stats import Array, moments
from ablate.analysis.variant import Variant, distinguishing, variants_of
from ablate.config.conditions import column_of
from ablate.config.schema import PARTS
from ablate.phrases import counted, joined
from ablate.store.columns import (
    CONFIG_COLUMNS,
    RESULTS,
    SEED_COLUMNS,
    Status,
    column_named,
    of_role,
)

BUDGET = ("steps", "batch", "context")  # their product is the number of tokens that a run is trained on
USABLE = (Status.DONE, Status.STALE)
MOST_CELLS = 10_000_000  # of variants times seeds: about half a gigabyte
CARRIED = (
    *("form", "function_class", "params", "match_error", "tuned", "run_id", "processor"),
    *("epochs", "overlap", "ngram_order", "ngram_val_loss", "ngram_loss"),
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """C variants by what they set. table: C rows of text, with the `columns` that define a variant, and with
    others. options: the option columns of each kind of part."""

    columns: list[str]
    options: dict[str, list[str]]
    table: pd.DataFrame

    @property
    def is_foreign(self) -> bool:
        """Whether another program made them."""
        return not self.table["fusion"].any()

    def known(self, column: str) -> pd.Series:
        """(C,) a carried column; empty if another program made them, whose words for it mean something
        else."""
        return pd.Series("", self.table.index) if self.is_foreign else self.table[column]


@dataclass(frozen=True, kw_only=True)
class Variants(Settings):
    """C variants with S seeds.

    table: also with the CARRIED columns, each from the first run that has a value, finished runs first.
    shown: the columns that suffice to tell the variants apart. values: (C, S), the metric; NaN without a
    finished run. learned: (C, S), a digest of every metric of a run. diverged: (C, S), also true for infinite
    results. run_ids, processors: (C, S), text. seeds: S rows, the seed of each stream as text. paired:
    whether equal places in S are equal seeds; else they mean nothing. higher_is_better: None if not known.
    """

    metric: str
    higher_is_better: bool | None
    paired: bool
    shown: list[str]
    values: Array
    learned: Array
    diverged: Array
    run_ids: Array
    processors: Array
    seeds: pd.DataFrame

    @property
    def ran(self) -> Array:
        """(C, S) which runs have ended with a number, or diverged."""
        return np.isfinite(self.values) | self.diverged

    @cached_property
    def crossed(self) -> bool:
        """Whether seeds of two streams are crossed, as seeds.backbone=0,1 seeds.data=0,1 are: four runs, but
        two draws of each, so they are not independent."""
        streams = [column for column in ("seed_backbone", "seed_data") if column in self.seeds]
        if len(streams) < 2:
            return False
        partners = [self.seeds.groupby(a)[b].nunique().max() for a, b in (streams, streams[::-1])]
        return min(partners) > 1

    @cached_property
    def each(self) -> list[Variant]:
        return variants_of(self.table, self.shown)

    @cached_property
    def names(self) -> list[str]:
        return [one.name for one in self.each]

    @cached_property
    def budgets(self) -> pd.Series:
        """(C,) the number of tokens that each variant is trained on; NaN if unknown."""
        factors = self.table.reindex(columns=[*BUDGET]).apply(pd.to_numeric, errors="coerce")
        return factors.prod(axis=1, skipna=False)

    def summary(self) -> pd.DataFrame:
        """One row per variant, in order: variant, the shown columns, params, match_error if anything is
        matched, n, diverged, mean, sd, best (the best of several variants trained on equally many tokens;
        none with one seed, and of a metric of which that is not known)."""
        n, mean, sd = moments(self.values)
        rivals = pd.Series(mean).groupby(self.budgets, dropna=False)
        first = rivals.transform("max" if self.higher_is_better else "min")
        best = (mean == first) & (rivals.transform("count") > 1) & (n.max() > 1)
        best &= self.higher_is_better is not None
        extra = ["params", "match_error"] if self.table["match_error"].notna().any() else ["params"]
        table = self.table[[*dict.fromkeys([*self.shown, *extra])]].drop(columns="variant", errors="ignore")
        table.insert(0, "variant", self.names)
        return table.assign(n=n, diverged=self.diverged.sum(1), mean=mean, sd=sd, best=best)


def mean_interval(table: pd.DataFrame, level: float = 0.95) -> pd.DataFrame:
    """`table`, which has n, mean and sd, with low and high, the t-interval of each mean; NaN for one seed."""
    from scipy.stats import t

    n = table["n"].astype(float).where(table["n"] > 1)
    half = t.ppf((1 + level) / 2, n - 1) * table["sd"] / np.sqrt(n)
    return table.assign(low=table["mean"] - half, high=table["mean"] + half)


def collect(
    rows: pd.DataFrame,
    metric: str,
    by: Sequence[str] = (),
    pair_by: Sequence[str] = (),
    mixed: bool = False,
    texts: bool = False,
) -> Variants:
    """The variants of these rows, which have all columns of results, except those of which no run finished or
    diverged.

    by: further columns that define variants, shown instead of those that differ. pair_by: the columns by
    which runs pair, in place of their seeds. mixed: allow rows of several corpora, versions of the code or of
    torch. texts: whether a study varies the text, which then tells variants apart by its name. Raises
    Incomparable, and ConfigError for a missing column.
    """
    is_simulated(rows := _usable_rows(rows, metric))  # all or none
    if not mixed:
        refuse_mixed(rows.drop(columns=metric), texts)
    placed = _place(rows, metric, by, pair_by, texts)
    keyed, value = placed.rows, _numbers(placed, metric)
    usable = keyed["status"].isin(USABLE).to_numpy() & np.isfinite(value)
    if not usable.any():
        raise Incomparable(_no_result(rows, metric))
    lost = diverged(keyed, value)
    if not mixed:
        refuse_mixed_parts(keyed[usable | lost], placed.differing, placed.columns)
    values = placed.array(np.where(usable, value, np.nan), np.nan)
    lost_CS = placed.array(lost, False)
    table = _table(placed, usable)
    kept = np.flatnonzero((~np.isnan(values) | lost_CS).any(1))
    table = table.take(kept).reset_index(drop=True)
    if placed.by:
        refuse_pooling(table, placed.by, placed.differing)
    numbers = keyed.filter([*of_role("metric")]).select_dtypes("number")
    learned = pd.util.hash_pandas_object(numbers, index=False).to_numpy()
    ids = keyed["run_id"].astype(str).to_numpy(object)
    kinds = keyed["processor"].astype(object).where(keyed["processor"].notna(), "unknown").to_numpy(object)
    return Variants(
        metric=metric,
        higher_is_better=column_named(metric).higher_is_better,
        paired=bool(placed.seeds),
        columns=placed.columns,
        shown=placed.by or distinguishing(table, placed.columns) or placed.columns[:1],
        options=_options(rows),
        table=table,
        values=values[kept],
        learned=placed.array(learned, np.uint64(0))[kept],
        diverged=lost_CS[kept],
        run_ids=placed.array(ids, "")[kept],
        processors=placed.array(kinds, "")[kept],
        seeds=keyed[placed.seeds or ["seed"]].groupby([placed.seed]).first(),
    )


@dataclass(frozen=True, kw_only=True)
class _Placed:
    """Rows with their places among C variants and S seeds. rows: with the text of the columns by which they
    are placed: columns, which define a variant, of which `differing` suffice; by, those that --by names; and
    seeds. named: those that name a row in a message. variant, seed: (N,) the places."""

    rows: pd.DataFrame
    columns: list[str]
    differing: list[str]
    by: list[str]
    seeds: list[str]
    named: list[str]
    variant: Array
    seed: Array

    def array(self, values_N: Array, missing: Any) -> Array:
        """(C, S), `missing` where there is no row."""
        shape = (int(self.variant.max()) + 1, int(self.seed.max()) + 1)
        array = np.full(shape, missing, np.result_type(values_N.dtype, np.asarray(missing).dtype))
        array[self.variant, self.seed] = values_N
        return array


def _usable_rows(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The rows that may have a result in this metric. Raises Incomparable if there is none."""
    foreign = is_foreign(rows)
    rows = with_options(identified(rows))
    # Another program may list an attempt that crashed beside its finished repetition.
    kept = rows[rows["status"].isin(RESULTS)] if foreign else rows
    if kept.empty:
        raise Incomparable(_no_result(rows, metric))
    refuse_no_metric(kept, metric)
    if foreign and kept[metric].isna().all():
        raise Incomparable(_no_result(kept, metric))
    return kept


def _no_result(rows: pd.DataFrame, metric: str) -> str:
    none = f"{metric}: no finished run has it"
    if rows.empty or rows["fusion"].notna().any():
        return f"{none}; ablate runs lists the runs"
    counts = ", ".join(f"{count} {status}" for status, count in rows["status"].value_counts().items())
    choices = sorted({*metrics_of(rows)} - {metric})
    others = f": {joined(choices, 'or')}" if choices else ""
    return f"{none} ({counts}); --metric takes another column{others}"


def _place(
    rows: pd.DataFrame, metric: str, by: Sequence[str], pair_by: Sequence[str], texts: bool
) -> _Placed:
    """Raises Incomparable if two rows have one place, or if there are more places than fit."""
    there = rows.columns[
        rows.notna().any()
    ]  # a table of another program lacks most, and has a status from us
    there = there.drop("status") if is_foreign(rows) and rows["status"].nunique() == 1 else there
    by = [column_of(key, rows.columns, f"--by {key}", there) for key in dict.fromkeys(by)]
    pair_by = [column_of(key, rows.columns, f"--pair-by {key}", there) for key in dict.fromkeys(pair_by)]
    apart = OF_EVALUATION if column_named(metric).by_evaluation else ()
    config = variant_columns(rows)
    if texts:
        config = [*(column for column in config if column not in TEXT_COLUMNS), "corpus"]
    columns = [key for key in dict.fromkeys([*config, *apart, *by]) if key != metric]
    seeds = pair_by or [column for column in SEED_COLUMNS if rows[column].notna().any()]
    keyed = rows.assign(**{column: as_texts(rows[column]) for column in [*columns, *seeds, *OF_EVALUATION]})
    if is_foreign(rows) and by:  # a level is missing where a CSV file, or pandas, has None
        keyed[by] = keyed[by].replace("", "None")
    for column in pair_by:
        if lacking := int((keyed[column] == "").sum()):
            raise Incomparable(f"--pair-by {column}: {counted(lacking, 'row')} without it; complete or drop")
    differing = [column for column in columns if keyed[column].nunique() > 1] or columns[:1]
    variant = keyed.groupby(differing, sort=False).ngroup().to_numpy()
    of_seed = keyed.groupby(seeds).ngroup() if seeds else pd.Series(variant).groupby(variant).cumcount()
    seed = of_seed.to_numpy()
    once = ~_evaluated_again(keyed, [variant, seed], metric)
    keyed, variant, seed = keyed[once], variant[once], seed[once]
    named = [*dict.fromkeys(["fusion", "heads", *by, *pair_by, "seed"])]
    refuse_duplicates(keyed, variant, seed, metric, named, by, pair_by)
    if (C := int(variant.max()) + 1) * (S := int(seed.max()) + 1) > MOST_CELLS:
        cells = f"{C:,} variants times {S:,} seeds are more cells than the {MOST_CELLS:,}"
        raise Incomparable(f"{cells} that fit; choose rows with --where, or other columns with --pair-by")
    return _Placed(
        rows=keyed,
        columns=columns,
        differing=differing,
        by=by,
        seeds=seeds,
        named=named,
        variant=variant,
        seed=seed,
    )


def _numbers(placed: _Placed, metric: str) -> Array:
    """(N,) the metric of each row; NaN where there is none. Raises Incomparable for a word in its place, or a
    number that is too large."""
    cells = placed.rows[metric]
    value = pd.to_numeric(cells, errors="coerce").to_numpy(float)
    huge = np.isfinite(value) & (np.abs(value) > LARGEST)
    if len(wrong := placed.rows[huge | (np.isnan(value) & cells.notna().to_numpy())]):
        row = wrong.iloc[0]
        which = row_in_words(row.to_dict(), placed.named)
        why = f"{str(row[metric])!r} is no usable number ({which})"
        raise Incomparable(f"{metric}: {why}; correct the row or leave it out")
    return value


def _table(placed: _Placed, usable: Array) -> pd.DataFrame:
    """A row for each variant, with the first value that its rows have in each column, finished runs first."""
    columns = [*dict.fromkeys([*placed.columns, *CARRIED])]
    finished_first = np.argsort(~usable, kind="stable")
    table = placed.rows.reindex(columns=columns).take(finished_first)
    table = table.groupby([placed.variant[finished_first]]).first()
    for column in ("form", "function_class", "tuned"):
        if column not in placed.columns:  # by which others may name variants
            table[column] = as_texts(table[column])
    return table


def settings_of(rows: pd.DataFrame) -> Settings:
    """The variants of these rows by what they set, whether or not there are results."""
    rows = with_options(rows)
    columns = variant_columns(rows)
    table = rows.assign(**{column: as_texts(rows[column]) for column in columns}).drop_duplicates(columns)
    return Settings(columns=columns, options=_options(rows), table=table.reset_index(drop=True))


def best_first(variants: Variants) -> pd.DataFrame:
    """One row a variant: variant, its factors, params, n, diverged, mean, sd (over seeds, n − 1), best."""
    summary, ascending = variants.summary(), not variants.higher_is_better
    return summary.sort_values(["mean", "variant"], ascending=[ascending, True]).reset_index(drop=True)


def for_reading(summary: pd.DataFrame) -> pd.DataFrame:
    """The summary without the variant's name, which repeats the factors, and without empty columns."""
    empty = {"diverged": not summary["diverged"].any(), "sd": summary["sd"].isna().all()}
    empty["best"] = not summary["best"].any()
    return summary.drop(columns=["variant", *(column for column, is_so in empty.items() if is_so)])


def variant_columns(rows: pd.DataFrame) -> list[str]:
    """The columns that define a variant: those of the config, with a column for each option of its parts, but
    neither seeds nor OF_EVALUATION."""
    config = [column for column in CONFIG_COLUMNS if column not in OF_EVALUATION]
    options = {f"{kind}_options": names for kind, names in _options(rows).items()}
    return list(dict.fromkeys(name for column in config for name in options.get(column, [column])))


def _options(rows: pd.DataFrame) -> dict[str, list[str]]:
    return {kind: option_names(rows, kind) for kind in PARTS}


def identified(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that say what was run; the row of a damaged run may have only its id."""
    return rows[rows["seed"].notna() | rows["status"].isin(RESULTS)]


def diverged(rows: pd.DataFrame, value: Array) -> Array:
    """Which runs diverged: by status; stale ones without a result but with a reason; and those with an
    infinite result, which another program may call done."""
    gone = rows["status"].eq(Status.STALE) & np.isnan(value) & rows["error"].notna()
    return (rows["status"].eq(Status.DIVERGED) | gone).to_numpy() | np.isinf(value)


def _evaluated_again(keyed: pd.DataFrame, run: list[Array], metric: str) -> Array:
    """Which rows repeat a run that another row, evaluated differently, reports as well or better."""
    empty = keyed[metric].isna().to_numpy()
    agree = pd.Series(keyed[metric].to_numpy()).groupby(run).transform("nunique").to_numpy() < 2
    rows = keyed[[*OF_EVALUATION]].reset_index(drop=True).assign(variant=run[0], seed=run[1])
    rows = rows.iloc[np.argsort(empty, kind="stable")]
    again = rows.duplicated(["variant", "seed"]) & ~rows.duplicated()
    return agree & again.sort_index().to_numpy()
