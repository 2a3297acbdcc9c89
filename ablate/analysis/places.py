"""Where each row belongs: its unit and, if a run has several rows, its item; rows that are no run of their
own; and rows that have no place, or share one, with the way out.

Rows of ablate's own are known by their ids, and never taken for sums or copies.
"""

import re
from collections.abc import Sequence

import pandas as pd

from ablate.analysis.foreign import FILE, REPLICATE, STEPS
from ablate.analysis.measures import OF_TIME, PLACES
from ablate.analysis.question import Question
from ablate.config.rules import ConfigError
from ablate.phrases import Note, counted, counted_between, first_few, lines_if, option
from ablate.store.columns import COLUMNS
from ablate.store.frames import is_foreign, row_in_words, spellings

MOST_CELLS = 10_000_000  # of variants times units: about half a gigabyte
# Words that stand where a seed or a task does, in rows that sum up the others: the first may name a task.
SUMS = r"median|total|sum|all|min|max|minimum|maximum|count|best|worst|summary|aggregated?|ci|macro|micro"
MEANS = r"((grand|macro|micro|weighted)[ _-]?)?(mean|avg|average)|std(ev|err)?|sd|sem|stderr|overall|μ|σ"
SUMMARY = re.compile(rf"({SUMS}|{MEANS})(\W.*|_.*)?", re.IGNORECASE)
MEAN = re.compile(rf"({MEANS})(\W.*|_.*)?", re.IGNORECASE)


def alone(
    keyed: pd.DataFrame, by: Sequence[str], columns: Sequence[str], settings: Sequence[str]
) -> tuple[pd.DataFrame, list[Note]]:
    """The rows of a table of others that are runs of their own, and lines on those left out. columns: by
    which runs are known. Raises ConfigError."""
    keyed, said = _without_summaries(_with_blanks(keyed, by), columns)
    again = keyed[[*dict.fromkeys([*settings, *columns]), "value_"]].duplicated()
    if columns and again.any():  # in every value but its time
        given = keyed.columns[keyed.notna().any()]
        same = [key for key in given if key != FILE and not OF_TIME.fullmatch(str(key))]
        again &= keyed[same].astype(str).duplicated()
        count = int(again.sum())
        line = f"{counted(count, 'row')} that {'stands' if count == 1 else 'stand'} twice"
        keyed, said = keyed[~again], [*said, *lines_if(count, Note(line, "left out"))]
    return keyed, said


def _without_summaries(keyed: pd.DataFrame, columns: Sequence[str]) -> tuple[pd.DataFrame, list[Note]]:
    """The rows without those whose seed, or level of what pairs, is a word for several, and a line on them.
    Among numbers any word is one."""
    kept, said = pd.Series(True, keyed.index), list[Note]()
    for column in columns:
        levels = pd.Series(keyed[column].unique())
        numeric = pd.to_numeric(levels, errors="coerce").notna()
        named = levels.map(lambda level: bool(SUMMARY.fullmatch(str(level))))
        words = levels.str.fullmatch(r"[^\d\s][^\d]*")
        odd = ~numeric & (named | (words & (words.sum() < numeric.sum())))
        if not numeric.any():
            odd = levels.map(lambda level: bool(MEAN.fullmatch(str(level))))
        if odd.any() and not odd.all():
            of = keyed[column].isin(levels[odd])
            names = first_few([f"{column}={level}" for level in levels[odd]])
            said.append(Note(f"{counted(int(of.sum()), 'row')} of {names}: of several runs", "left out"))
            kept &= ~of
    return keyed[kept], said


def _with_blanks(keyed: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """The rows with None for a level that is missing, as pandas has it. Raises ConfigError if others say so
    by that word."""
    for column in by:
        if (blank := keyed[column] == "").any() and (keyed[column] == "None").any():
            count = counted(int(blank.sum()), "row")
            raise ConfigError(f"--by {column}: it is None in some rows, blank in {count}; name what is blank")
        keyed = keyed.assign(**{column: keyed[column].where(~blank, "None")})
    return keyed


def placed(
    keyed: pd.DataFrame, seeds: Sequence[str], settings: Sequence[str], metric: str, question: Question
) -> tuple[pd.DataFrame, list[str], str, str]:
    """The rows with their unit_, one for each variant_ and unit; the columns by which a unit is known; what a
    value is a mean over, empty for single rows; and what was sampled in place of trainings. Raises
    ConfigError."""
    variant, pair_by = keyed["variant_"], [key for key in question.pair_by if key in keyed]
    trained, items, sampled = _units(keyed, seeds, pair_by, variant)
    if is_foreign(keyed) and not trained:
        _refuse_unplaced(keyed, variant, settings, metric)
    unit = keyed.groupby(trained).ngroup() if trained else variant.groupby(variant).cumcount()
    keyed = keyed.assign(unit_=unit)
    _refuse_duplicates(keyed, ["variant_", "unit_", *items], metric, question)
    if (C := int(variant.max()) + 1) * (S := int(unit.max()) + 1) > MOST_CELLS:
        cells = f"{C:,} variants times {S:,} seeds are more cells than the {MOST_CELLS:,}"
        raise ConfigError(f"{cells} that fit; choose rows with --where, or other columns with --pair-by")
    keyed, over = _means(keyed, items) if items else (keyed, "")
    return keyed, trained, over, sampled


def _units(
    keyed: pd.DataFrame, seeds: Sequence[str], pair_by: Sequence[str], variant: pd.Series
) -> tuple[list[str], list[str], str]:
    """The columns by which a unit is known, those of its items, and what is sampled for trainings."""
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
    usable = keyed[keyed["usable_"]]
    counts = usable.groupby(["variant_", "unit_"]).size()
    over = counted_between(int(counts.min()), int(counts.max()), items[0] if len(items) == 1 else "row")
    shared = usable.groupby("unit_")["variant_"].nunique().max() > 1
    of_unit = ["unit_"] if shared else []
    of_item = usable.groupby([*of_unit, *items])["variant_"].transform("size" if shared else "nunique")
    most = of_item.groupby(keyed["unit_"]).transform("max") if shared else of_item.max()
    keyed = keyed.assign(value_=keyed["value_"].where(of_item.reindex(keyed.index) == most))
    places = keyed.groupby(["variant_", "unit_"], sort=False)
    first, lost = places.head(1).set_index(["variant_", "unit_"]), places["lost_"].any()
    value = places["value_"].mean()
    first = first.assign(value_=value, lost_=lost, usable_=value.notna() & ~lost)
    return first.reset_index(), over


def _refuse_unplaced(keyed: pd.DataFrame, variant: pd.Series, settings: Sequence[str], metric: str) -> None:
    """Raises ConfigError if rows without a seed are parts of runs: a column, as of tasks or steps, has the
    same values in all variants, each once."""
    placed = [*settings, metric, "value_", *COLUMNS]
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


def _refuse_duplicates(keyed: pd.DataFrame, place: Sequence[str], metric: str, question: Question) -> None:
    """Raises ConfigError if two rows have one variant and unit."""
    if (again := keyed[keyed.duplicated([*place], keep=False)]).empty:
        return
    row, by, pair_by = again.iloc[0], question.by, question.pair_by or ["seed"]
    same = again[(again[[*place]] == row[[*place]]).all(axis=1)]
    known = [metric, *by, *place, *pair_by, *PLACES, *([] if is_foreign(keyed) else COLUMNS)]
    differing = [
        str(column)
        for column in keyed.columns.difference(known, sort=False)
        if same[column].astype(str).nunique() > 1 and keyed[column].astype(str).nunique() < len(keyed)
    ]
    if steps := [column for column in differing if STEPS.fullmatch(column)]:
        raise ConfigError(_history(keyed, steps[0], [*by, *pair_by]))
    one = differing[0] if differing else ""
    way = f" differ in {one}; add {one} to --by or --pair-by, or choose with --where {one}=…" * bool(one)
    ids = " and ".join(map(str, same["run_id"].dropna()[:2]))
    values = " and ".join(f"{value:.10g}" for value in same["value_"][:2])
    count, named = "two" if len(same) == 2 else len(same), ["fusion", "heads", *by, *pair_by, "seed"]
    which = row_in_words(row.to_dict(), named)
    raise ConfigError(
        f"{count} rows of one variant and seed{f': runs {ids}' if ids else ''} ({which}: {metric} {values})"
        f"{way or '; leave one out, or give them a column that differs'}"
    )


def _history(keyed: pd.DataFrame, step: str, keys: Sequence[str]) -> str:
    """The line on rows that are steps of one run, with how to take the last."""
    ends = pd.to_numeric(keyed[step], errors="coerce").groupby([keyed[key] for key in keys]).max()
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
