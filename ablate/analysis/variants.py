"""The projection of rows: by the roles of its columns each row has a place, a variant and a unit.

A column is a setting, which defines a variant; a seed, which says what was trained; a measurement; or a
remark. Of rows of ablate's own `store.columns` says which. Of those of another program it is what the user
said (`--by`, `--pair-by`, `--metric`), and what is left over is a doubt if it varies with the variant.

The unit is what was trained. If runs have several rows each, as of documents or tasks (items), a value is
their mean within the run. Without any seed the rows are what was sampled, as tasks are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from ablate.analysis.question import NOTHING_ASKED, Question, metrics_of
from ablate.analysis.stats import Array, moments
from ablate.analysis.variant import Variant, distinguishing, variants_of
from ablate.config.conditions import key_in
from ablate.config.rules import ConfigError, as_text, did_you_mean
from ablate.config.schema import PARTS
from ablate.phrases import counted, joined, lines_if, option
from ablate.store.columns import (
    COLUMNS,
    CONFIG_COLUMNS,
    METRICS,
    RESULTS,
    SEED_COLUMNS,
    Status,
    column_named,
    config_about,
    of_role,
    on_validation,
)
from ablate.store.frames import (
    LARGEST,
    as_texts,
    column_of,
    is_foreign,
    is_numeric,
    is_simulated,
    option_names,
    row_in_words,
    with_options,
)

USABLE = (Status.DONE, Status.STALE)
TEXT_COLUMNS = config_about("text")
# How often a run is evaluated does not change what it learns, so these columns define no variants, except for
# metrics that depend on them.
OF_EVALUATION = config_about("evaluation")
PROGRAM = ("numerics", "torch", "processor")  # a run has other losses under each
PARTS_OF_DATA = ("fold", "split", "cv")  # items that share training data, so they sample nothing
MOST_CELLS = 10_000_000  # of variants times units: about half a gigabyte
CARRIED = (
    *("fusion", "heads"),
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
    """C variants with S units.

    table: also with the CARRIED columns, each from the first run that has a value, finished runs first.
    shown: the columns that suffice to tell the variants apart. values: (C, S), the metric; NaN without a
    finished run. learned: (C, S), a digest of every metric of a run. diverged: (C, S), also true for infinite
    results. run_ids: (C, S), text. seeds: S rows, what a unit is called, as text in each of its columns.
    paired: whether equal places in S are equal units; else they mean nothing. items: what a value is a mean
    over, as in `100 documents`; empty for single rows. sampled: the columns whose values were sampled, if no
    seed says what was trained. twin: (C, S), the same metric of the validation split, if it has one. marks:
    (C, S) each, columns that say how a row came about: PROGRAM and what is
    left over.
    """

    metric: str
    higher_is_better: bool | None
    shown: list[str]
    values: Array
    learned: Array
    diverged: Array
    run_ids: Array
    seeds: pd.DataFrame
    paired: bool
    items: str
    sampled: str
    twin: Array | None
    marks: Mapping[str, Array]

    @property
    def ran(self) -> Array:
        """(C, S) which runs have ended with a number, or diverged."""
        return np.isfinite(self.values) | self.diverged

    @property
    def unit(self) -> str:
        """What is counted: a seed, or what was sampled."""
        return self.sampled or "seed"

    @property
    def folds(self) -> str:
        """What shares training data, where that is all that tells runs apart; else empty."""
        return next((column for column in self.seeds if column in PARTS_OF_DATA), "") if self.paired else ""

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
    def mean(self) -> Array:
        """(C,) of the values."""
        return moments(self.values)[1]

    @cached_property
    def each(self) -> list[Variant]:
        return variants_of(self.table, self.shown)

    @cached_property
    def names(self) -> list[str]:
        return [one.name for one in self.each]

    def summary(self) -> pd.DataFrame:
        """One row per variant, in order: variant, the shown columns, params, match_error if anything is
        matched, n, diverged, mean, sd."""
        n, mean, sd = moments(self.values)
        extra = ["params", "match_error"] if self.table["match_error"].notna().any() else ["params"]
        table = self.table[[*dict.fromkeys([*self.shown, *extra])]].drop(columns="variant", errors="ignore")
        table.insert(0, "variant", self.names)
        return table.assign(n=n, diverged=self.diverged.sum(1), mean=mean, sd=sd)

    def best_first(self) -> pd.DataFrame:
        """The summary, sorted by the mean."""
        ascending = [not self.higher_is_better, True]
        return self.summary().sort_values(["mean", "variant"], ascending=ascending, ignore_index=True)


def project(
    rows: pd.DataFrame, metric: str, question: Question = NOTHING_ASKED, *, better: bool | None = None
) -> Variants:
    """The variants of these rows, except those of which no run finished or diverged. better: whether more of
    the metric is. Raises ConfigError."""
    is_simulated(rows := _with_results(rows, metric))  # all or none
    foreign = is_foreign(rows)
    there = rows.columns[rows.notna().any()]  # a table of another program lacks most
    if foreign and rows["status"].nunique() == 1:  # which it has from us
        there = there.drop("status")
    by, pair_by = (
        [column_of(key, rows.columns, f"{name} {key}", there) for key in dict.fromkeys(keys)]
        for name, keys in (("--by", question.by), ("--pair-by", question.pair_by))
    )
    apart = OF_EVALUATION if column_named(metric).by_evaluation else ()
    shown, own = (  # what is asked for by name, as a preset of the model, has columns like any setting
        [key for name in names if (key := key_in(name, [*map(str, rows.columns)]))]
        for names in ([*filter(None, [question.within]), *question.shown], [*(question.baseline or {})])
    )
    shown += lines_if(not (foreign or by or shown) and rows["model"].nunique() > 1, "model")
    settings = [*(by if foreign and by else [*setting_columns(rows), *apart, *by]), *shown, *own]
    settings = [key for key in dict.fromkeys(settings) if key != metric]
    trained, items, sampled = _units(rows, pair_by)
    keyed = rows.assign(
        **{column: as_texts(rows[column]) for column in [*settings, *trained, *items, *OF_EVALUATION]}
    )
    if foreign and by:  # a level is missing where a CSV file, or pandas, has None
        keyed[by] = keyed[by].replace("", "None")
    for column in pair_by:
        if lacking := int((keyed[column] == "").sum()):
            raise ConfigError(f"--pair-by {column}: {counted(lacking, 'row')} without it; complete or drop")
    differing = [column for column in settings if keyed[column].nunique() > 1] or settings[:1]
    variant = keyed.groupby(differing, sort=False).ngroup()
    unit = keyed.groupby(trained).ngroup() if trained else variant.groupby(variant).cumcount()
    named = [*dict.fromkeys(["fusion", "heads", *by, *pair_by, "seed"])]
    keyed = keyed.assign(value=_numbers(keyed, metric, named), variant_=variant, unit_=unit)
    keyed = keyed[~_evaluated_again(keyed, metric)]
    _refuse_duplicates(keyed, ["variant_", "unit_", *items], metric, question, named)
    if (C := int(variant.max()) + 1) * (S := int(unit.max()) + 1) > MOST_CELLS:
        cells = f"{C:,} variants times {S:,} seeds are more cells than the {MOST_CELLS:,}"
        raise ConfigError(f"{cells} that fit; choose rows with --where, or other columns with --pair-by")
    keyed = keyed.assign(
        usable=keyed["status"].isin(USABLE) & np.isfinite(keyed["value"]),
        lost=diverged(keyed, keyed["value"]),
    )
    if not keyed["usable"].any():
        ended = np.where(keyed["lost"], str(Status.DIVERGED), keyed["status"].astype(str))
        raise ConfigError(_no_result(rows.loc[keyed.index].assign(status=ended), metric))
    if not question.mixed:
        _refuse_mixed_parts(keyed[keyed["usable"] | keyed["lost"]], settings)
    over = _over_items(keyed, items)
    if items:
        keyed = _means(keyed, items)

    def array(values: Iterable[Any], missing: Any) -> Array:
        values_N = np.asarray(values)
        placed = np.full((C, S), missing, np.result_type(values_N.dtype, np.asarray(missing).dtype))
        placed[keyed["variant_"], keyed["unit_"]] = values_N
        return placed

    values = array(keyed["value"].where(keyed["usable"]), np.nan)
    lost = array(keyed["lost"], False)
    kept = np.flatnonzero((~np.isnan(values) | lost).any(1))
    table = _table(keyed, settings).take(kept).reset_index(drop=True)
    _refuse_pooling(table, by, differing)
    numbers = keyed.filter([*of_role("metric")]).select_dtypes("number")
    marks = _left_over(rows, {*settings, *pair_by, metric}) if foreign else PROGRAM
    has_twin = (
        not foreign and not items and (of := on_validation(metric)) != metric and rows[of].notna().any()
    )
    return Variants(
        metric=metric,
        higher_is_better=better,
        columns=settings,
        shown=[*dict.fromkeys([*by, *shown])]
        if by
        else distinguishing(table, settings, shown) or settings[:1],
        options=_options(rows),
        table=table,
        values=values[kept],
        learned=array(pd.util.hash_pandas_object(numbers, index=False), np.uint64(0))[kept],
        diverged=lost[kept],
        run_ids=array(_as_they_are(keyed["run_id"]), "")[kept],
        seeds=keyed[trained or ["seed"]].groupby(keyed["unit_"]).first(),
        paired=bool(trained),
        items=over,
        sampled=sampled,
        twin=array(pd.to_numeric(keyed[of], errors="coerce").astype(float), np.nan)[kept]
        if has_twin
        else None,
        marks={column: array(_as_they_are(keyed[column]), "")[kept] for column in marks},
    )


def settings_of(rows: pd.DataFrame) -> Settings:
    """The variants of these rows by what they set, whether or not there are results."""
    rows = with_options(rows)
    columns = setting_columns(rows)
    table = rows.assign(**{column: as_texts(rows[column]) for column in columns}).drop_duplicates(columns)
    return Settings(columns=columns, options=_options(rows), table=table.reset_index(drop=True))


def setting_columns(rows: pd.DataFrame) -> list[str]:
    """The columns that define a variant: those of the config, with a column for each option of its parts. A
    text is known by its name, where this says as much as its fingerprint."""
    config = [column for column in CONFIG_COLUMNS if column not in OF_EVALUATION]
    options = {f"{kind}_options": names for kind, names in _options(rows).items()}
    columns = [*dict.fromkeys(name for column in config for name in options.get(column, [column]))]
    texts = rows[["corpus", *TEXT_COLUMNS]].drop_duplicates().astype(str).drop_duplicates()
    if len(texts) > 1 and texts["corpus"].is_unique:
        columns = [*(column for column in columns if column not in TEXT_COLUMNS), "corpus"]
    return columns


def diverged(rows: pd.DataFrame, value: pd.Series) -> pd.Series:
    """Which runs diverged: by status; stale ones without a result but with a reason; and those with an
    infinite result, which another program may call done."""
    gone = rows["status"].eq(Status.STALE) & np.isnan(value) & rows["error"].notna()
    return rows["status"].eq(Status.DIVERGED) | gone | np.isinf(value)


def identified(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that say what was run; the row of a damaged run may have only its id."""
    return rows[rows["seed"].notna() | rows["status"].isin(RESULTS)]


# --- what a row is ------------------------------------------------------------------------------------


def _with_results(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The rows that may have a result in this metric. Raises ConfigError if there is none."""
    rows = with_options(identified(rows))
    # Another program may list an attempt that crashed beside its finished repetition.
    kept = rows[rows["status"].isin(RESULTS)] if is_foreign(rows) else rows
    if kept.empty:
        raise ConfigError(_no_result(rows, metric))
    numeric = metrics_of(kept, metric)
    if metric in numeric or (metric in ("val_loss", "test_loss") and not is_foreign(kept)):
        return kept
    if metric not in kept:
        raise ConfigError(f"--metric {metric}: no column of results{did_you_mean(metric, numeric)}")
    cells = kept[metric].dropna()
    choices = f"choices: {', '.join(sorted(numeric)) or 'no column of numbers'}"
    if len(cells):
        raise ConfigError(f"--metric {metric}: {str(cells.iloc[0])!r} is no number; {choices}")
    if is_foreign(kept) or metric not in METRICS:
        raise ConfigError(_no_result(kept, metric))
    why = "empty in every row; these runs have none, or were made before the column was"
    raise ConfigError(f"--metric {metric}: {why}; {choices}")


def _no_result(rows: pd.DataFrame, metric: str) -> str:
    none = f"{metric}: no finished run has it"
    if rows.empty or rows["fusion"].notna().any():
        return f"{none}; ablate runs lists the runs"
    counts = ", ".join(f"{count} {status}" for status, count in rows["status"].value_counts().items())
    choices = sorted({*metrics_of(rows)} - {metric})
    others = f": {joined(choices, 'or')}" if choices else ""
    return f"{none} ({counts}); --metric takes another column{others}"


def _units(rows: pd.DataFrame, pair_by: Sequence[str]) -> tuple[list[str], list[str], str]:
    """The columns by which a unit is known, those of its items, and what was sampled in place of
    trainings."""
    seeds = [column for column in SEED_COLUMNS if rows[column].notna().any() and column not in pair_by]
    given = [column for column in pair_by if column in SEED_COLUMNS]
    others = [column for column in pair_by if column not in given]
    trained = given or (seeds if pair_by and rows[seeds].drop_duplicates().shape[0] > 1 else [])
    if not pair_by:
        return seeds, [], ""
    one_run = trained and rows[trained].drop_duplicates().shape[0] == 1
    if others and (not trained or one_run) and not {*others} & {*PARTS_OF_DATA}:
        return others, [], ", ".join(others)
    return (trained, others, "") if trained else (others, [], "")


def _over_items(keyed: pd.DataFrame, items: Sequence[str]) -> str:
    if not items:
        return ""
    counts = keyed[keyed["usable"]].groupby(["variant_", "unit_"]).size()
    low, high = int(counts.min()), int(counts.max())
    noun = items[0] if len(items) == 1 else "row"
    return f"{f'{low} to ' if low < high else ''}{counted(high, noun)}"


def _means(keyed: pd.DataFrame, items: Sequence[str]) -> pd.DataFrame:
    """A row a unit: the mean over the items that all variants have of it."""
    of_item = keyed[keyed["usable"]].groupby(["unit_", *items])["variant_"].transform("size")
    most = of_item.groupby(keyed["unit_"]).transform("max")
    keyed = keyed.assign(value=keyed["value"].where(of_item == most))
    places = keyed.groupby(["variant_", "unit_"], sort=False)
    first = places.head(1).set_index(["variant_", "unit_"])
    lost = places["lost"].any()
    value = places["value"].mean()
    return first.assign(value=value, lost=lost, usable=value.notna() & ~lost).reset_index()


def _numbers(keyed: pd.DataFrame, metric: str, named: Sequence[str]) -> Array:
    """(N,) the metric of each row; NaN where there is none. Raises ConfigError for a word in its place, or a
    number that is too large."""
    cells = keyed[metric]
    value = pd.to_numeric(cells, errors="coerce").to_numpy(float)
    huge = np.isfinite(value) & (np.abs(value) > LARGEST)
    if len(wrong := keyed[huge | (np.isnan(value) & cells.notna().to_numpy())]):
        row = wrong.iloc[0]
        why = f"{str(row[metric])!r} is no usable number ({row_in_words(row.to_dict(), named)})"
        raise ConfigError(f"{metric}: {why}; correct the row or leave it out")
    return value


def _evaluated_again(keyed: pd.DataFrame, metric: str) -> Array:
    """Which rows repeat a run that another row, evaluated differently, reports as well or better."""
    place = ["variant_", "unit_"]
    agree = keyed.groupby(place)[metric].transform("nunique") < 2
    rows = keyed[[*OF_EVALUATION, *place]].iloc[np.argsort(keyed[metric].isna(), kind="stable")]
    again = rows.duplicated(place) & ~rows.duplicated()
    return (agree & again.reindex(keyed.index)).to_numpy()


def _table(keyed: pd.DataFrame, settings: Sequence[str]) -> pd.DataFrame:
    """A row for each variant, with the first value that its rows have in each column, finished runs first."""
    finished_first = np.argsort(~keyed["usable"], kind="stable")
    table = keyed.reindex(columns=[*dict.fromkeys([*settings, *CARRIED])]).take(finished_first)
    table = table.groupby(keyed["variant_"].take(finished_first).to_numpy()).first()
    for column in ("form", "function_class", "tuned"):
        if column not in settings:  # by which others may name variants
            table[column] = as_texts(table[column])
    return table


def _as_they_are(cells: pd.Series) -> Array:
    """The cells as text, digit by digit, as an id or a version is; empty where there is none."""
    return cells.astype(object).where(cells.notna(), "").astype(str).to_numpy(object)


def _options(rows: pd.DataFrame) -> dict[str, list[str]]:
    return {kind: option_names(rows, kind) for kind in PARTS}


def _left_over(rows: pd.DataFrame, placed: set[str]) -> list[str]:
    """The columns of another program that vary and that nobody has placed: of words that are no
    name of a single row, and of numbers that are no measurement, which has another value in most rows."""
    known = (
        {*COLUMNS} if rows["fusion"].notna().any() else {*of_role("identity", "metric", "seed", "resource")}
    )
    columns = []
    for column in rows.columns.difference([*placed, *known], sort=False):
        kinds = rows[column].astype(str).nunique()
        if 1 < kinds < len(rows) and not (is_numeric(rows[column]) and kinds > len(rows) // 2):
            columns.append(str(column))
    return columns


# --- what can't stand in one table -----------------------------------------------------------------------


def _refuse_duplicates(
    keyed: pd.DataFrame, place: Sequence[str], metric: str, question: Question, named: Sequence[str]
) -> None:
    """Raises ConfigError if two rows have one variant and unit."""
    place = [*place]
    if not keyed.duplicated(place).any():
        return
    row = keyed[keyed.duplicated(place, keep=False)].iloc[0]
    same = keyed[(keyed[place] == row[place]).all(axis=1)]
    by, pair_by = question.by, question.pair_by
    varying = _left_over(keyed, {metric, *by, *place, "value", "usable", "lost"})
    others = [column for column in varying if same[column].astype(str).nunique() > 1]
    ways = []
    if others:
        ways = [option("--by", *by, others[0]), option("--where", f"{others[0]}={as_text(row[others[0]])}")]
    if others and not (pair_by and "seed" not in pair_by):
        ways.insert(1, option("--pair-by", *(pair_by or ["seed"]), others[0]))
    elif pair_by and same["seed"].nunique() > 1:
        ways.append(option("--pair-by", *pair_by, "seed"))
    if looked := [column for column in OF_EVALUATION if same[column].nunique() > 1]:
        ways = [option("--where", f"{looked[0]}={row[looked[0]]}")]
    ids = " and ".join(map(str, same["run_id"].dropna()[:2]))
    values = " and ".join(f"{value:.10g}" for value in same["value"][:2])
    way_out = (
        f"tell them apart with {joined(ways, 'or')}"
        if ways
        else "leave one out, or give them a column that differs, for --pair-by or --where"
    )
    raise ConfigError(
        f"{'two' if len(same) == 2 else len(same)} rows of one variant and seed"
        f"{f': runs {ids}' if ids else ''}"
        f" ({row_in_words(row.to_dict(), named)}: {metric} {values}); {way_out}"
    )


def _refuse_pooling(table: pd.DataFrame, by: Sequence[str], differing: Sequence[str]) -> None:
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


def _refuse_mixed_parts(keyed: pd.DataFrame, settings: Sequence[str]) -> None:
    """Raises ConfigError if one variant has rows from several versions of its methods' code."""
    versions = (
        pd.Series(_as_they_are(keyed["parts"])).groupby(keyed["variant_"].to_numpy(), sort=False).unique()
    )
    for at, values in versions.items():
        if len(values) > 1:
            first = keyed.drop_duplicates("variant_")
            shown = variants_of(first, distinguishing(first, settings))
            name = dict(zip(first["variant_"], shown, strict=True))[at].name
            short = " / ".join(value[:12] or "unknown" for value in values)
            raise ConfigError(
                f"{name}: its rows come from {len(values)} versions of its code, so they make no mean: parts"
                f" {short}; force=stale runs the older ones again, or allow it with --mixed"
            )
