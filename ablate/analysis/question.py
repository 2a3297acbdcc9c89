"""What is asked of a table: its metric, the margin, what was varied, what pairs. It loads no torch."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack

import numpy as np
import pandas as pd

from ablate.analysis.numbers import as_numbers, can_be_numbers
from ablate.config.conditions import Where, key_in, pairs, spelled
from ablate.config.contrast import MARGIN
from ablate.config.rules import ConfigError
from ablate.phrases import Note, lines_if, option
from ablate.store.columns import (
    COLUMNS,
    CONFIG_COLUMNS,
    METRICS,
    RESULTS,
    SEED_COLUMNS,
    column_named,
    of_role,
)
from ablate.store.frames import FILE, LARGEST, REPLICATE, SEEDS, STEPS, is_foreign, row_in_words
from ablate.store.record import StudyRecord

NOT_VARIED = (*of_role("identity", "seed", "metric", "resource"), "code", "parts")
WIDE = "column"  # what is varied in a table with a column for each variant


@dataclass(frozen=True, kw_only=True)
class Question:
    """Which rows are compared (where), by which metric and margin, grouped into which variants (by), with
    which of them (baseline), and what pairs their runs (pair_by). What is None or empty is left to the
    studies and to the rows.
    higher_is_better: of a metric that ablate does not know. mixed: allow sides of different programs. fixed:
    the variant whose one value is known, and has no scatter. within: a column between whose levels
    differences are compared. shown: columns that names have in any case. finished: words for the status of
    rows that count, besides those of every program."""

    metric: str | None = None
    by: Sequence[str] = ()
    pair_by: Sequence[str] = ()
    baseline: Mapping[str, Any] | None = None
    where: Sequence[str] = ()
    margin: float | None = None
    higher_is_better: bool | None = None
    mixed: bool = False
    fixed: Mapping[str, Any] | None = None
    within: str = ""
    shown: Sequence[str] = ()
    finished: Sequence[str] = ()


NOTHING_ASKED = Question()


class Asked(TypedDict, total=False):
    """A Question as people ask it: columns as a list or as COL,COL, the baseline as a mapping or as K=V,K=V,
    and one condition or several."""

    metric: str | None
    by: Sequence[str] | str | None
    pair_by: Sequence[str] | str | None
    baseline: Mapping[str, Any] | str | None
    where: Sequence[Where] | Where | None
    margin: float | None
    within: str | None
    higher_is_better: bool | None
    fixed: Mapping[str, Any] | str | None
    finished: Sequence[str] | str | None
    mixed: bool | None


def ask(**asked: Unpack[Asked]) -> Question:
    """Raises ConfigError."""
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    where, conditions = given.get("where", ()), list[Where]()
    for one in [where] if isinstance(where, str | Mapping) else where:
        levels = one if isinstance(one, Mapping) else pairs(one) or {}  # of a name, heads=4 fusion=sum
        is_one = isinstance(one, str) and len(levels) < 2
        conditions += [one] if is_one else [{key: value} for key, value in levels.items()]
    given["where"] = [*map(spelled, conditions)]
    for name in {"by", "pair_by", "finished"} & {*given}:
        given[name] = listed(given[name])
    for name in {"baseline", "fixed"} & {*given}:
        of = given[name]
        given[name] = (
            _pairs(of, f"--{name}", given.get("by", ())) if isinstance(of, str) and of else of or None
        )
    return Question(**given)


def listed(given: Sequence[str] | str) -> Sequence[str]:
    """COL,COL as a list; a name with a comma stands in quotation marks."""
    if not isinstance(given, str):
        return given
    return [name for name in next(csv.reader([given], skipinitialspace=True), []) if name]


def _pairs(text: str, option: str, by: Sequence[str]) -> dict[str, str]:
    """K=V[,K=V] as a mapping; with one column in --by, or with one for each variant, its level alone will do.
    Raises ConfigError."""
    if (found := pairs(text)) is not None:
        return found
    if len(by) == 1 or text in by:
        return {by[0] if len(by) == 1 else WIDE: text}
    raise ConfigError(f"{option} {text}: write K=V[,K=V], such as fusion=concat or heads=1,out_proj=true")


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

    def place(at: int) -> str:
        return row_in_words(results.iloc[at].to_dict(), named)

    return rows.assign(**{metric: as_numbers(results, metric, place).reindex(rows.index)})


def _metric(rows: pd.DataFrame, records: Sequence[StudyRecord], keys: Sequence[str]) -> str:
    """The metric of the studies; else that on which all rows report; else, of a table of another program, the
    only column that can be one. keys: columns of another use."""
    if len(planned := {record.metric for record in records}) == 1 and (chosen := planned.pop()):
        return chosen
    if (rows["phase"] == "report").all() and rows["test_loss"].notna().any():
        return "test_loss"
    choices = [name for name in metrics_of(rows) if name not in keys and column_named(name).role == "metric"]
    return choices[0] if is_foreign(rows) and len(choices) == 1 else "val_loss"


def metrics_of(rows: pd.DataFrame, asked: str = "") -> list[str]:
    """The columns that can be compared: those with one number a run, some of them not empty. asked: a metric
    of another program, which may be called like a key of ablate."""
    foreign = is_foreign(rows)
    taken = {*CONFIG_COLUMNS} - {asked} | {*SEED_COLUMNS} if foreign else {*COLUMNS} - {*METRICS}
    possible = rows.columns[rows.notna().any()].difference([*taken], sort=False)
    names = [*map(str, possible)]
    return [name for name in names if can_be_numbers(rows[name]) and not (foreign and SEEDS.fullmatch(name))]


def measured_columns(rows: pd.DataFrame, metric: str = "") -> list[str]:
    """Those of `metrics_of` that may each be of a variant: no seeds, no steps."""
    return [one for one in metrics_of(rows, metric) if not (REPLICATE.fullmatch(one) or STEPS.fullmatch(one))]


def direction(metric: str, higher_is_better: bool | None) -> bool | None:
    """Whether more of a metric is better, as ablate or the caller knows; None if neither does. Raises
    ConfigError where they disagree."""
    is_known = metric in METRICS and column_named(metric).role != "derived"
    known = column_named(metric).higher_is_better if is_known else None
    if None not in (known, higher_is_better) and known != higher_is_better:
        asked, better = ("higher", "lower") if higher_is_better else ("lower", "higher")
        raise ConfigError(f"--{asked}-is-better: {metric} is better when {better}; leave it out")
    return higher_is_better if known is None else known


def above_0(option: str, number: float) -> float:
    """The number, in the unit of a metric. Raises ConfigError."""
    if not 0 < number < LARGEST:
        raise ConfigError(f"{option} {number}: give one above 0, in the metric's unit, such as 0.01")
    return number


def margin_of(records: Sequence[StudyRecord], margin: float | None, metric: str) -> float:
    """The margin: as given, else the study's if that is in the same unit, else MARGIN of what is in nats; NaN
    for any other metric, of which then nothing is equivalent. Raises ConfigError."""
    if margin is not None:
        above_0("--margin", margin)
    unit = column_named(metric).unit
    of_unit = [
        one for one in records if metric == one.metric or unit == column_named(one.metric or "val_loss").unit
    ]
    planned = {record.margin for record in of_unit if unit or record.metric == metric} - {None}
    usual = MARGIN if unit == "nats" else np.nan
    return margin or (planned.pop() if len(planned) == 1 else None) or usual


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
