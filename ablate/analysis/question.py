"""What is asked of a table: its metric, the margin, what was varied, what pairs. It loads no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from ablate.config.conditions import Where, spelled
from ablate.config.contrast import MARGIN
from ablate.config.rules import ConfigError
from ablate.phrases import Note, lines_if, option
from ablate.store.columns import (
    COLUMNS,
    CONFIG_COLUMNS,
    METRICS,
    SEED_COLUMNS,
    column_named,
    of_role,
)
from ablate.store.frames import LARGEST, is_foreign, is_numeric
from ablate.store.record import StudyRecord

NOT_VARIED = (*of_role("identity", "seed", "metric", "resource"), "git", "code", "parts")


@dataclass(frozen=True, kw_only=True)
class Question:
    """Which rows are compared (where), by which metric and margin, grouped into which variants (by), with
    which of them (baseline), and what pairs their runs (pair_by). What is None or empty is left to the
    studies and to the rows.
    higher_is_better: of a metric that ablate does not know. mixed: allow sides of different programs. within:
    a column between whose levels differences are compared. shown: columns that names have in any case."""

    metric: str | None = None
    by: Sequence[str] = ()
    pair_by: Sequence[str] = ()
    baseline: Mapping[str, Any] | None = None
    where: Sequence[str] = ()
    margin: float | None = None
    higher_is_better: bool | None = None
    mixed: bool = False
    within: str = ""
    shown: Sequence[str] = ()


NOTHING_ASKED = Question()


def ask(
    *,
    by: Sequence[str] | str | None = (),
    pair_by: Sequence[str] | str | None = (),
    baseline: Mapping[str, Any] | str | None = None,
    where: Sequence[Where] | Where | None = (),
    **others: Any,
) -> Question:
    """The question as people ask it: columns as a list or as COL,COL, the baseline as a mapping or as
    K=V,K=V, and one condition or several. Raises ConfigError."""
    given = [where] if isinstance(where, str | Mapping) else where or ()
    several = [
        [{key: values} for key, values in one.items()] if isinstance(one, Mapping) else [one] for one in given
    ]

    def columns(given: Sequence[str] | str | None) -> Sequence[str]:
        return [name for name in given.split(",") if name] if isinstance(given, str) else given or ()

    return Question(
        by=columns(by),
        pair_by=columns(pair_by),
        baseline=_baseline(baseline) if isinstance(baseline, str) and baseline else baseline or None,
        where=[spelled(one) for conditions in several for one in conditions],
        **others,
    )


def _baseline(text: str) -> dict[str, str]:
    """K=V[,K=V] as a mapping. Raises ConfigError."""
    parts = [part.partition("=") for part in text.split(",")]
    if not all(key.strip() and sign and value.strip() for key, sign, value in parts):
        raise ConfigError(
            f"--baseline {text}: write K=V[,K=V], such as fusion=concat or heads=1,out_proj=true"
        )
    return {key.strip(): value.strip() for key, _, value in parts}


def settled(
    question: Question, rows: pd.DataFrame, records: Sequence[StudyRecord]
) -> tuple[Question, list[Note]]:
    """The question with its metric, and of a table of another program what was varied; and a line on what was
    chosen here. Raises ConfigError."""
    by, taken = question.by, list[str]()
    if not by and is_foreign(rows):
        by = _varied(rows, [*question.pair_by, question.metric])
        taken = lines_if(by, f"variants by {', '.join(by)}")
    metric = question.metric or _metric(rows, records, [*by, *question.pair_by])
    if question.metric is None and metric not in ("val_loss", *(record.metric for record in records)):
        taken.append(f"metric {metric}")
    line = f"taken: {', '.join(taken)}; --by and --metric take others"
    return replace(question, by=by, metric=metric), lines_if(taken, Note(line, "taken"))


def _metric(rows: pd.DataFrame, records: Sequence[StudyRecord], keys: Sequence[str]) -> str:
    """The metric of the studies; else that on which all rows report; else, of a table of another program, the
    only column that can be one. keys: columns of another use."""
    planned = {record.metric for record in records}
    if len(planned) == 1 and (chosen := planned.pop()):
        return chosen
    if (rows["phase"] == "report").all() and rows["test_loss"].notna().any():
        return "test_loss"
    choices = [name for name in metrics_of(rows) if name not in keys and column_named(name).role == "metric"]
    return choices[0] if is_foreign(rows) and len(choices) == 1 else "val_loss"


def metrics_of(rows: pd.DataFrame, asked: str = "") -> list[str]:
    """The columns that can be compared: those with one number a run, some of them not empty. asked: a metric
    of another program, which may be called like a key of ablate."""
    taken = {*CONFIG_COLUMNS} - {asked} | {*SEED_COLUMNS} if is_foreign(rows) else {*COLUMNS} - {*METRICS}
    possible = rows[rows.columns.difference([*taken], sort=False)]
    numeric = possible.select_dtypes(["number", "bool", "boolean"]).dropna(axis=1, how="all")
    return [*map(str, numeric.columns)]


def direction(metric: str, higher_is_better: bool | None) -> bool | None:
    """Whether more of a metric is better, as ablate or the caller knows; None if neither does. Raises
    ConfigError where they disagree."""
    is_known = metric in METRICS and column_named(metric).role != "derived"
    known = column_named(metric).higher_is_better if is_known else None
    if None not in (known, higher_is_better) and known != higher_is_better:
        asked, better = ("higher", "lower") if higher_is_better else ("lower", "higher")
        raise ConfigError(f"--{asked}-is-better: {metric} is better when {better}; leave it out")
    return higher_is_better if known is None else known


def margin_of(records: Sequence[StudyRecord], margin: float | None, metric: str) -> float:
    """The margin: as given, else the study's if that is in the same unit, else MARGIN of what is in nats; NaN
    for any other metric, of which then nothing is equivalent. Raises ConfigError."""
    if margin is not None and not 0 < margin < LARGEST:
        raise ConfigError(f"--margin {margin}: give one above 0, in the metric's unit, such as 0.01")
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
    free = rows[rows.columns.difference([*NOT_VARIED, *used], sort=False)]
    several = [str(name) for name in free if 1 < free[name].nunique(dropna=False) < len(free)]
    words = [name for name in several if not is_numeric(rows[name])]
    if len(words) == 1:
        return words
    if ours := [name for name in several if name in CONFIG_COLUMNS and not words]:
        return ours
    names = ", ".join(words or several) or "none has a value twice"
    by = option("--by", [*words, *several, "COL"][0])
    raise ConfigError(f"name the column that was varied, as {by}: {names}")
