"""Group rows into variants with a value per seed, and refuse rows that must not be in one table.

It reads no files, prints nothing, and loads no torch.
"""

import json
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from ablate.analysis.frames import LARGEST, of_others
from ablate.analysis.select import as_texts, is_own_value, option_names, with_options
from ablate.analysis.stats import Array, moments
from ablate.config.conditions import as_text, column_for, column_of
from ablate.config.rules import ConfigError, did_you_mean
from ablate.config.schema import PARTS
from ablate.phrases import SEEN, counted, option, visible
from ablate.store.columns import (
    COLUMNS,
    CONFIG_COLUMNS,
    METRICS,
    RESULTS,
    SEED_COLUMNS,
    WIDTHS,
    Status,
    column_named,
    config_about,
    of_role,
)

# Losses per token are not comparable across these columns, nor are results of different programs.
TEXT_COLUMNS = config_about("text")
CODE_COLUMNS = ("numerics", "torch")
# The columns that readers look for first: always shown, and the last to be dropped in a narrow terminal.
FACTORS = ("fusion", "heads", "out_proj")
# How often a run is evaluated does not change what it learns, so these columns define no variants, except for
# metrics that depend on them.
LOOKS = config_about("evaluation")
BUDGET = ("steps", "batch", "context")  # their product is the number of tokens that a run is trained on
USABLE = (Status.DONE, Status.STALE)
MOST_CELLS = 10_000_000  # of variants times seeds: about half a gigabyte
_MARKED = r'"(?:[^"\\]|\\.)*"'  # a level, or a column, whose end could not be told in a name
_LEVEL = re.compile(rf"({_MARKED}|\w+)=({_MARKED}|[^=]*?)(?= (?:{_MARKED}|\w+)=|$)")
CARRIED = (
    *("form", "function_class", "params", "match_error", "role", "tuned", "run_id"),
    *("epochs", "overlap", "ngram_order", "ngram_val_loss", "ngram_loss"),
)


class Incomparable(ConfigError):
    """These rows can't be compared in one table."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """C variants by what they set. table: C rows of text, with the `columns` that define a variant, and with
    others. options: the option columns of each kind of part."""

    columns: list[str]
    options: dict[str, list[str]]
    table: pd.DataFrame

    @property
    def of_others(self) -> bool:
        """Whether they are of a table of others, whose words for form, match or role mean something else."""
        return not self.table["fusion"].any()


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
    def names(self) -> list[str]:
        return variant_names(self.table, self.shown)

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
        # In a tuned study, only a variant at its own arm's value is a result.
        roles = [""] * len(n) if self.of_others else self.table["role"]
        own = np.array([*map(is_own_value, roles)], bool)
        rivals = pd.Series(mean).where(own).groupby(self.budgets, dropna=False)
        first = rivals.transform("max" if self.higher_is_better else "min")
        best = own & (mean == first) & (rivals.transform("count") > 1) & (n.max() > 1)
        best &= self.higher_is_better is not None
        extra = ["params", "match_error"] if self.table["match_error"].notna().any() else ["params"]
        table = self.table[[*dict.fromkeys([*self.shown, *extra])]].drop(columns="variant", errors="ignore")
        table.insert(0, "variant", self.names)
        return table.assign(n=n, diverged=self.diverged.sum(1), mean=mean, sd=sd, best=best)


def variant_names(table: pd.DataFrame, shown: Sequence[str]) -> list[str]:
    """A name such as fusion=sum heads=4 for each row of text."""
    columns = [column if re.fullmatch(r"\w+", column) else _marked(column) for column in shown]
    texts = {level: in_name(level) for column in shown for level in table[column].unique()}
    rows = table[list(shown)].itertuples(index=False, name=None)
    return [" ".join(f"{c}={texts[v]}" for c, v in zip(columns, row, strict=True)) for row in rows]


def in_name(level: str) -> str:
    """A level as it stands in a name: if it might be read as something else, between quotation marks."""
    return _marked(level) if re.search(rf'^"|=| · |\\u|[{SEEN}]', level) or visible(level) != level else level


def _marked(text: str) -> str:
    return visible(json.dumps(text, ensure_ascii=False))


def names(rows: pd.DataFrame, shown: Sequence[str]) -> pd.Series:
    """The name of each row's variant, as in a comparison that shows these columns."""
    texts = with_options(rows)[list(shown)].apply(as_texts)
    return pd.Series(variant_names(texts, shown), index=rows.index, dtype=object)


def names_of_runs(rows: pd.DataFrame, shown: Sequence[str]) -> pd.Series:
    """The names of variants by run_id, of the rows that have one."""
    rows = rows[rows["run_id"].notna()]
    return names(rows, shown).set_axis(rows["run_id"].astype(str))


def mean_interval(table: pd.DataFrame, level: float = 0.95) -> pd.DataFrame:
    """`table`, which has n, mean and sd, with low and high, the t-interval of each mean; NaN for one seed."""
    from scipy.stats import t

    n = table["n"].astype(float).where(table["n"] > 1)
    half = t.ppf((1 + level) / 2, n - 1) * table["sd"] / np.sqrt(n)
    return table.assign(low=table["mean"] - half, high=table["mean"] + half)


def levels_of(name: str) -> dict[str, str]:
    """The columns in such a name with their levels as written in it: fusion=concat windows=[8, 8]."""
    return dict(_LEVEL.findall(name))


def collect(
    rows: pd.DataFrame, metric: str, by: Sequence[str] = (), pair_by: Sequence[str] = (), mixed: bool = False
) -> Variants:
    """The variants of these rows, except those of which no run finished or diverged.

    by: further columns that define variants, shown instead of those that differ. pair_by: the columns by
    which runs pair, in place of their seeds. mixed: allow rows of several corpora, versions of the code or of
    torch. Raises Incomparable, and ConfigError for a missing column.
    """
    others = of_others(rows)
    rows = with_options(known(rows))
    there = ", ".join(f"{count} {status}" for status, count in rows["status"].value_counts().items())
    ours = rows["fusion"].notna().any() or rows.empty
    way_out = "; ablate runs lists the runs" if ours else f" ({there}); --metric takes another column"
    unusable = f"{metric}: no finished run has it{way_out}"
    if others:  # an attempt that crashed may stand beside its finished repetition
        rows = rows[rows["status"].isin(RESULTS)]
    if rows.empty:
        raise Incomparable(unusable)
    _check_metric(rows, metric)
    if not mixed:
        _refuse_mixed(rows.drop(columns=metric))
    by = [column_of(key, rows.columns, f"--by {key}") for key in dict.fromkeys(by)]
    pair_by = [column_of(key, rows.columns, f"--pair-by {key}") for key in dict.fromkeys(pair_by)]
    looks = [column for column in LOOKS if column in rows]
    apart = looks if column_named(metric).by_evaluation else []
    columns = [key for key in dict.fromkeys([*variant_columns(rows), *apart, *by]) if key != metric]
    seeds = pair_by or [column for column in SEED_COLUMNS if column in rows and rows[column].notna().any()]
    keyed = rows.assign(**{column: as_texts(rows[column]) for column in [*columns, *seeds, *looks]})
    if others and by:  # a level is missing where a CSV file, or pandas, has None
        keyed[by] = keyed[by].replace("", "None")
    for column in pair_by:
        if lacking := int((keyed[column] == "").sum()):
            raise Incomparable(f"--pair-by {column}: {counted(lacking, 'row')} without it; complete or drop")
    differing = [column for column in columns if keyed[column].nunique() > 1] or columns[:1]
    variant = keyed.groupby(differing, sort=False).ngroup().to_numpy()
    of_seed = keyed.groupby(seeds).ngroup() if seeds else pd.Series(variant).groupby(variant).cumcount()
    seed = of_seed.to_numpy()
    if looks:
        once = ~_evaluated_again(keyed, [variant, seed], looks, metric)
        keyed, variant, seed = keyed[once], variant[once], seed[once]
    named = [*dict.fromkeys(["fusion", "heads", *by, *pair_by, "seed"])]
    _refuse_duplicates(keyed, variant, seed, metric, named, by, pair_by)

    value = pd.to_numeric(keyed[metric], errors="coerce").to_numpy(float)
    huge = np.isfinite(value) & (np.abs(value) > LARGEST)
    if len(wrong := keyed[huge | (np.isnan(value) & keyed[metric].notna().to_numpy())]):
        row = wrong.iloc[0]
        which = row_in_words(row.to_dict(), named)
        why = f"{str(row[metric])!r} is no usable number ({which})"
        raise Incomparable(f"{metric}: {why}; correct the row or leave it out")
    usable = keyed["status"].isin(USABLE).to_numpy() & np.isfinite(value)
    if not usable.any():
        raise Incomparable(unusable)
    shape = (int(variant.max()) + 1, int(seed.max()) + 1)
    if shape[0] * shape[1] > MOST_CELLS:
        cells = f"{shape[0]:,} variants times {shape[1]:,} seeds are more cells than the {MOST_CELLS:,}"
        raise Incomparable(f"{cells} that fit; choose rows with --where, or other columns with --pair-by")
    values, lost = np.full(shape, np.nan), np.zeros(shape, bool)
    run_ids, processors = np.full(shape, "", object), np.full(shape, "", object)
    values[variant[usable], seed[usable]] = value[usable]
    learned = np.zeros(shape, np.uint64)
    numbers = keyed.filter([*of_role("metric")]).select_dtypes("number")
    learned[variant, seed] = pd.util.hash_pandas_object(numbers, index=False)
    lost[variant, seed] = gone = diverged(keyed, value)
    run_ids[variant, seed] = keyed["run_id"].astype(str) if "run_id" in keyed else ""
    kinds = keyed["processor"].astype(object) if "processor" in keyed else pd.Series(None, keyed.index)
    processors[variant, seed] = kinds.where(kinds.notna(), "unknown")
    if not mixed:
        _refuse_mixed_parts(keyed[usable | gone], columns, differing)
    finished_first = np.argsort(~usable, kind="stable")
    table = keyed.reindex(columns=[*dict.fromkeys([*columns, *CARRIED])]).take(finished_first)
    table = table.groupby([variant[finished_first]]).first()  # the first value in each column
    for column in ("form", "function_class", "role", "tuned"):
        if column not in columns:  # by which others may name variants
            table[column] = "" if others else as_texts(table[column])
    kept = np.flatnonzero((~np.isnan(values) | lost).any(1))
    table = table.take(kept).reset_index(drop=True)
    if by:
        _refuse_pooling(table, by, differing)
    shown = by or distinguishing(table, columns) or columns[:1]
    return Variants(
        metric=metric,
        higher_is_better=column_named(metric).higher_is_better,
        paired=bool(seeds),
        columns=columns,
        shown=shown,
        options=_options(rows),
        table=table,
        values=values[kept],
        learned=learned[kept],
        diverged=lost[kept],
        run_ids=run_ids[kept],
        processors=processors[kept],
        seeds=keyed[seeds or ["seed"]].groupby([seed]).first(),
    )


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
    neither seeds nor LOOKS."""
    config = [column for column in CONFIG_COLUMNS if column in rows.columns and column not in LOOKS]
    options = {f"{kind}_options": names for kind, names in _options(rows).items()}
    return list(dict.fromkeys(name for column in config for name in options.get(column, [column])))


def _options(rows: pd.DataFrame) -> dict[str, list[str]]:
    return {kind: option_names(rows, kind) for kind in PARTS}


def distinguishing(table: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """The columns needed to tell the variants apart: always FACTORS, if they are known, and no column that
    follows from the others, such as key_width from heads. Widths are dropped first, since they usually
    follow. A tuned value differs from arm to arm, so it tells no arms apart, only variants of one arm."""
    factors = [column for column in columns if column in FACTORS and table[column].ne("").any()]
    kept = [column for column in columns if column in factors or table[column].nunique(dropna=False) > 1]
    of_tuned = {column_for(str(key)) for key in table["tuned"]} if "tuned" in table else set()
    tuned = [column for column in kept if column in of_tuned]
    settings = [column for column in kept if column not in tuned]
    arms = table.drop_duplicates(settings)
    for column in sorted(reversed(settings), key=lambda column: column not in WIDTHS):
        rest = [other for other in settings if other != column]
        if column not in factors and rest and not arms.duplicated(rest).any():
            settings = rest
    needed = {*settings, *(tuned if table.duplicated(settings).any() else [])}
    return [column for column in kept if column in needed]


def known(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that say what was run; the row of a damaged run may have only its id."""
    return rows[rows["seed"].notna() | rows["status"].isin(RESULTS)]


def diverged(rows: pd.DataFrame, value: Array) -> Array:
    """Which runs diverged: by status; stale ones without a result but with a reason; and those with an
    infinite result, which another program may call done."""
    gone = rows["status"].eq(Status.STALE) & np.isnan(value)
    if "error" in rows:
        gone &= rows["error"].notna()
    return (rows["status"].eq(Status.DIVERGED) | gone).to_numpy() | np.isinf(value)


def metrics_of(rows: pd.DataFrame, asked: str = "") -> list[str]:
    """The columns that can be compared: those with one number a run, some of them not empty. asked: a metric
    of others, which may be called like a key of ours."""
    taken = {*CONFIG_COLUMNS} - {asked} | {*SEED_COLUMNS} if of_others(rows) else {*COLUMNS} - {*METRICS}
    possible = rows[rows.columns.difference([*taken], sort=False)]
    numeric = possible.select_dtypes(["number", "bool", "boolean"]).dropna(axis=1, how="all")
    return [*map(str, numeric.columns)]


def _check_metric(rows: pd.DataFrame, metric: str) -> None:
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


def _refuse_mixed(rows: pd.DataFrame) -> None:
    hashed = "corpus_sha256" in rows and rows["corpus_sha256"].notna().any()
    text = TEXT_COLUMNS if hashed else ("corpus", *TEXT_COLUMNS)
    for columns, what in ((text, "texts"), (CODE_COLUMNS, "programs")):
        kinds = rows[rows.columns.intersection([*columns], sort=False)].drop_duplicates()
        kinds = kinds.astype(object).where(kinds.notna(), "unknown").astype(str).drop_duplicates()
        differing = [column for column in columns if column in kinds and kinds[column].nunique() > 1]
        if differing:
            values = ", ".join(f"{column} {_short(kinds[column].unique())}" for column in differing)
            raise Incomparable(
                f"these rows come from {len(kinds)} {what}, so their numbers don't compare: {values}; compare"
                " them apart, or allow it with --mixed of compare, report or plan"
            )


def _refuse_mixed_parts(keyed: pd.DataFrame, columns: Sequence[str], differing: Sequence[str]) -> None:
    """Raises Incomparable if one variant has rows from several versions of its methods' code."""
    if "parts" not in keyed:
        return
    parts = keyed["parts"].astype(object).where(keyed["parts"].notna(), "unknown")
    versions = parts.groupby([keyed[column] for column in differing], sort=False).unique()
    first = keyed.drop_duplicates(differing)
    for row, values in enumerate(versions):
        if len(values) > 1:
            name = variant_names(first, distinguishing(first, columns))[row]
            raise Incomparable(
                f"{name}: its rows come from {len(values)} versions of its code, so they make no mean: parts"
                f" {_short(values)}; force=stale runs the older ones again, or allow it with"
                " --mixed of compare, report or plan"
            )


def _short(values: Iterable[str]) -> str:
    return " / ".join(value[:12] for value in values)


def _evaluated_again(keyed: pd.DataFrame, run: list[Array], looks: Sequence[str], metric: str) -> Array:
    """Which rows repeat a run that another row, evaluated differently (LOOKS), reports as well or better."""
    empty = keyed[metric].isna().to_numpy()
    agree = pd.Series(keyed[metric].to_numpy()).groupby(run).transform("nunique").to_numpy() < 2
    rows = keyed[[*looks]].reset_index(drop=True).assign(variant=run[0], seed=run[1])
    rows = rows.iloc[np.argsort(empty, kind="stable")]
    again = rows.duplicated(["variant", "seed"]) & ~rows.duplicated()
    return agree & again.sort_index().to_numpy()


def row_in_words(row: Mapping[Hashable, Any], columns: Iterable[str]) -> str:
    """The values of a row in these columns, as far as there are any: fusion=sum heads=4."""
    texts = {column: as_text(row.get(column)) for column in columns}
    return " ".join(f"{column}={text}" for column, text in texts.items() if text)


def _refuse_duplicates(
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
        if looked := [column for column in LOOKS if column in same and same[column].nunique() > 1]:
            way_out = f"choose with {option('--where', f'{looked[0]}={row[looked[0]]}')}"
        ids = " and ".join(map(str, same["run_id"].dropna()))
        raise Incomparable(
            f"two rows of one variant and seed{f': runs {ids}' if ids else ''}"
            f" ({row_in_words(row.to_dict(), named)}, {metric}"
            f" {' and '.join(map(str, same[metric]))}); {way_out}"
        )


def _refuse_pooling(table: pd.DataFrame, by: Sequence[str], differing: Sequence[str]) -> None:
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
