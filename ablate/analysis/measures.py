"""What a table measures: which column is compared and what was varied, where nobody says so, and its numbers.

Numbers are read as people and programs write them, from the text of cells: 3.21, −0.5, 1 234.5, 93.5 %. Loads
no torch.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from ablate.analysis.foreign import FILE, LARGEST, REPLICATE, SEEDS, STEPS
from ablate.analysis.question import WIDE, Question
from ablate.analysis.stats import Array
from ablate.analysis.variants import USABLE
from ablate.config.conditions import key_in, spelling
from ablate.config.rules import ConfigError, did_you_mean
from ablate.phrases import Note, joined, lines_if, option
from ablate.store.columns import COLUMNS, CONFIG_COLUMNS, METRICS, RESULTS, SEED_COLUMNS, Status, of_role
from ablate.store.frames import is_foreign, is_numeric, row_in_words, spellings
from ablate.store.record import StudyRecord

OTHERS = {*COLUMNS} - {*METRICS}  # of ablate's own columns
NO_METRICS = of_role("identity", "resource", "derived")
NOT_VARIED = (*of_role("identity", "seed", "metric", "resource"), "code", "parts")
PLACES = ("variant_", "unit_", "value_", "usable_", "lost_")  # columns of a projection
# When a run was, and what it took: by these, two rows of one result may differ.
OF_TIME = re.compile(
    r".*(time|date|created|updated|second|elapsed|wall|duration|latency|memory|gpu|cpu|speed|per_s|throughput).*"
    r"|_?(s|ms)|run_?id|run_?name|name",
    re.IGNORECASE,
)
ORDINAL = re.compile(r".*(\b|_)(id|index|step|epoch|line|row|rank|no|nr)", re.IGNORECASE)

MISSING = {"", "na", "n/a", "nan", "null", "none", "<na>", "#n/a", "-", "--", "—", "–", "?"}
TRUTH = {"true": 1.0, "false": 0.0}
SOME = 100  # cells that are looked at before all are
_SIGNS = str.maketrans({"\u2212": "-", "\u2013": "-", "\u202f": " ", "\u2009": " ", "\xa0": " "})
_NUMBER = r"[+-]?[\d.,]*\d\s*%?"
_MEAN = re.compile(rf"{_NUMBER}\s*((±|\+/-|\+-|\\pm)\s*{_NUMBER}|\(\s*±?\s*{_NUMBER}\s*\)).*")
_COMMA = r"[+-]?[\d.]*,[\d.,]*"


def settled(
    question: Question, rows: pd.DataFrame, records: Sequence[StudyRecord]
) -> tuple[Question, pd.DataFrame, list[Note]]:
    """The question with its metric, and of a table of another program what was varied; the rows, one for each
    value of a table that has a column for each variant; and a line on what was chosen here. Raises
    ConfigError."""
    by, taken = question.by, list[str]()
    are_variants = is_foreign(rows) and len(by) > 1 and question.metric not in rows
    if are_variants and all(name in rows and can_be_numbers(rows[name]) for name in by):
        metric, rest = question.metric or "value", rows.drop(columns=[*by])
        parts = [rest.assign(**{WIDE: name, metric: rows[name]}) for name in by]
        rows = pd.concat([part[part[metric].notna()] for part in parts], ignore_index=True)
        question = replace(question, by=[WIDE], metric=metric)
        return question, _measured(rows, question), [Note("each column a variant", "taken")]
    if not by and is_foreign(rows):
        by = _varied(rows, [*question.pair_by, question.metric])
        taken = lines_if(by, f"variants by {', '.join(by)}")
    metric = question.metric or _metric(rows, records, [*by, *question.pair_by])
    metric = key_in(metric, [*map(str, rows.columns[rows.notna().any()])]) or metric
    if question.metric is None and metric not in ("val_loss", *(record.metric for record in records)):
        taken.append(f"metric {metric}")
    line = f"{', '.join(taken)} (--by and --metric take others)"
    question = replace(question, by=by, metric=metric)
    return question, _measured(rows, question), lines_if(taken, Note(line, "taken"))


def _measured(rows: pd.DataFrame, question: Question) -> pd.DataFrame:
    """The rows of another program with numbers in the metric, as far as they have a result; what is none is
    refused. A column of words stays. Raises ConfigError."""
    metric, results = question.metric or "", rows[rows["status"].isin(RESULTS)]
    if not is_foreign(rows) or metric not in rows:
        return rows
    if not results[metric].astype(str).str.contains(r"\d|inf|true|false", case=False).any():
        return rows
    named = [*dict.fromkeys([*question.by, *question.pair_by, "seed"])]
    return rows.assign(**{metric: as_numbers(results, metric, named).reindex(rows.index)})


def _metric(rows: pd.DataFrame, records: Sequence[StudyRecord], keys: Sequence[str]) -> str:
    """The metric of the studies; else that on which all rows report; else, of a table of another program, the
    only column that can be one. keys: columns of another use."""
    if len(planned := {record.metric for record in records}) == 1 and (chosen := planned.pop()):
        return chosen
    if (rows["phase"] == "report").all() and rows["test_loss"].notna().any():
        return "test_loss"
    choices = [name for name in metrics_of(rows) if name not in (*keys, *NO_METRICS)]
    return choices[0] if is_foreign(rows) and len(choices) == 1 else "val_loss"


def _varied(rows: pd.DataFrame, used: Sequence[str | None]) -> list[str]:
    """What was varied in a table of another program: its only column of words that varies, or what of it is
    called like a key of ours. Raises ConfigError."""
    there = rows.columns[rows.notna().any()]
    free = rows[there.difference([*NOT_VARIED, FILE, *used], sort=False)]
    several = [str(name) for name in free if 1 < free[name].nunique(dropna=False) < len(free)]
    words = [name for name in several if not can_be_numbers(rows[name])]
    if len(words) == 1:
        return words
    if ours := [name for name in several if name in CONFIG_COLUMNS and not words]:
        return ours
    names = ", ".join(words or several) or "none has a value twice"
    by, wide = option("--by", [*words, *several, "COL"][0]), [] if words else measured_columns(rows)
    each = f"; if each column is a variant: {option('--by', *wide)}" if len(wide) > 1 else ""
    raise ConfigError(f"name the column that was varied, as {by}: {names}{each}")


def metrics_of(rows: pd.DataFrame, asked: str = "") -> list[str]:
    """The columns that can be compared: those with one number a run, some of them not empty. asked: a metric
    of another program, which may be called like a key of ablate."""
    foreign = is_foreign(rows)
    taken = {*CONFIG_COLUMNS} - {asked} | {*SEED_COLUMNS} if foreign else OTHERS
    names = [*map(str, rows.columns[rows.notna().any()].difference([*taken], sort=False))]
    return [name for name in names if can_be_numbers(rows[name]) and not (foreign and SEEDS.fullmatch(name))]


def measured_columns(rows: pd.DataFrame, metric: str = "") -> list[str]:
    """Those of `metrics_of` that may each be of a variant: no seeds, no steps."""
    return [one for one in metrics_of(rows, metric) if not (REPLICATE.fullmatch(one) or STEPS.fullmatch(one))]


def left_over(rows: pd.DataFrame, placed: set[str]) -> list[str]:
    """The columns of another program that vary and that nobody has placed: of words that are no name of a
    single row, and of numbers that are no measurement, which has another value in most rows."""
    known = {*placed, *PLACES, *of_role("identity", "metric", "seed", "resource"), FILE}
    there = map(str, rows.columns[rows.notna().any()])
    free = [column for column in there if column not in known and not SEEDS.fullmatch(column)]
    kinds = {column: rows[column].astype(str).nunique() for column in free}
    many = [column for column in free if kinds[column] > len(rows) // 2 and can_be_numbers(rows[column])]
    return [column for column in free if 1 < kinds[column] < len(rows) and column not in many]


def others(keyed: pd.DataFrame, placed: set[str]) -> list[Array]:
    """(N,) each of what else was measured, of which copies have the same."""
    free = keyed.columns[keyed.notna().any()].difference([*placed, *PLACES, *of_role("identity"), FILE])
    names = [key for key in map(str, free) if not (OF_TIME.fullmatch(key) or ORDINAL.fullmatch(key))]
    names = [key for key in names if not REPLICATE.fullmatch(key) and can_be_numbers(keyed[key])]
    return [as_numbers(keyed, key).to_numpy(float) for key in names]


def with_results(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The rows that may have a result in this metric, with its value_, NaN without one; whether it counts
    (usable_); and whether the run diverged (lost_): by its status, as a stale one without a result but with a
    reason, or with an infinite result, which another program may call done. Raises ConfigError if no value
    counts."""
    ended, foreign = rows["status"].isin(RESULTS), is_foreign(rows)
    # A damaged run may have only its id; another program may list an attempt that crashed beside a finished
    # repetition.
    kept = rows[ended if foreign else ended | rows["seed"].notna()]
    if kept.empty:
        raise ConfigError(_no_result(rows[ended | rows["seed"].notna()], metric))
    rows = kept
    _require_numbers(rows, metric, foreign)
    value = as_floats(rows[metric])
    status = rows["status"]
    gone = status.eq(Status.STALE) & np.isnan(value) & rows["error"].notna()
    lost = status.eq(Status.DIVERGED) | gone | np.isinf(value)
    if not (usable := status.isin(USABLE) & np.isfinite(value)).any():
        raise ConfigError(_no_result(rows.assign(status=status.mask(lost, str(Status.DIVERGED))), metric))
    return rows.assign(value_=value, usable_=usable, lost_=lost)


def _require_numbers(rows: pd.DataFrame, metric: str, foreign: bool) -> None:
    """Raises ConfigError unless the metric is a column that can be one."""
    is_loss = metric in ("val_loss", "test_loss") and not foreign
    if is_loss or (metric in rows and (foreign or metric not in OTHERS) and can_be_numbers(rows[metric])):
        return
    numeric = metrics_of(rows, metric) or rows.columns.difference([*COLUMNS, FILE])
    if metric not in rows or (foreign and metric in COLUMNS and rows[metric].isna().all()):
        wide = measured_columns(rows, metric) if foreign else []
        melts = f"; if each column is a variant: {option('--by', *wide)}" if len(wide) > 1 else ""
        raise ConfigError(f"--metric {metric}: no column of results{did_you_mean(metric, numeric)}{melts}")
    if not rows[metric].isna().all() and not is_numeric(rows[metric]):
        raise ConfigError(f"--metric {metric}: {rows[metric].dropna().iloc[0]!r} is no number{_others(rows)}")
    raise ConfigError(_no_result(rows, metric))


def _no_result(rows: pd.DataFrame, metric: str) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in rows["status"].value_counts().items())
    return f"{metric}: no finished run has it ({counts or 'no rows'}){_others(rows, metric)}"


def _others(rows: pd.DataFrame, metric: str = "") -> str:
    others = sorted({*metrics_of(rows)} - {metric})
    return f"; --metric takes another column: {joined(others, 'or')}" if others else ""


def as_numbers(rows: pd.DataFrame, column: str, named: Sequence[str] = ()) -> pd.Series:
    """A column as float64, NaN for what is missing. named: what a row is called by. Raises ConfigError for
    anything else in it, and for a comma, which may mean two things."""
    cells = rows[column]
    if is_numeric(cells) or pd.api.types.is_bool_dtype(cells):
        return cells.astype("Float64").astype(float)
    texts = spellings(cells)
    numbers = pd.to_numeric(texts, errors="coerce").astype(float)
    given = ~texts.str.lower().isin(MISSING)
    if not (given & (numbers.isna() | numbers.abs().between(LARGEST, np.inf, inclusive="neither"))).any():
        return numbers
    found, reason = _shown(texts[given])
    if reason is None:
        return found.reindex(cells.index)
    row = rows.loc[found.index].iloc[0]
    raise ConfigError(f"{column}: {spelling(row[column])!r} {reason} ({row_in_words(row.to_dict(), named)})")


def as_floats(cells: pd.Series) -> np.ndarray:
    """(N,) what of a column is a plain number; NaN for what is not."""
    return pd.to_numeric(cells, errors="coerce").astype("Float64").to_numpy(float, na_value=np.nan)


def can_be_numbers(cells: pd.Series) -> bool:
    """Whether a column holds at least one number, and otherwise nothing else."""
    if is_numeric(cells) or pd.api.types.is_bool_dtype(cells):
        return bool(cells.notna().any())
    if {*map(type, cells[cells.notna()].iloc[:1])} - {str, int, float, bool, np.float64, np.int64}:
        return False
    texts = spellings(cells)
    given = texts[~texts.str.lower().isin(MISSING)]
    if _shown(given.iloc[:SOME])[1] is not None:
        return False
    plain = pd.to_numeric(given, errors="coerce").notna().all()
    return len(given) > 0 and bool(plain or _shown(given)[1] is None)


def _shown(texts: pd.Series) -> tuple[pd.Series, str | None]:
    """The numbers of cells that are not missing, and no reason; or the first cell that is none, and why."""
    lower = texts.str.lower()
    if lower.isin(TRUTH).all():
        return lower.map(TRUTH), None
    plain = texts.str.translate(_SIGNS).str.strip()
    percent = plain.str.endswith("%")
    plain = plain.str.removesuffix("%").str.strip()
    plain = plain.str.replace(r"(?<=\d)( (?=\d{3}(\D|$))|_(?=\d))", "", regex=True)
    numbers = pd.to_numeric(plain, errors="coerce").astype(float)
    for wrong, reason in (
        (plain.str.fullmatch(_MEAN), "is a mean over runs, and a comparison needs the runs: a row for each"),
        (~percent & bool(percent.any()), "has no %, and others have; write all alike"),
        (
            plain.str.fullmatch(_COMMA),
            "may mean a decimal or thousands; write decimal points and no thousands",
        ),
        (
            numbers.isna() | numbers.abs().between(LARGEST, np.inf, inclusive="neither"),
            "is no usable number; correct the row or leave it out",
        ),
    ):
        if wrong.any():
            return texts[wrong].iloc[:1], reason
    return numbers, None
