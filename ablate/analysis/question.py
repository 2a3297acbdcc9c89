"""What is asked of a table: its metric, the margin, what was varied, what pairs. It loads no torch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

import numpy as np
import pandas as pd

from ablate.analysis.contrasts import parse_baseline
from ablate.analysis.frames import LARGEST, is_foreign, is_numeric
from ablate.analysis.incomparable import metrics_of
from ablate.analysis.variant import Variant
from ablate.analysis.variants import variant_columns
from ablate.config.conditions import Where, column_for, spelled
from ablate.config.contrast import MARGIN
from ablate.config.rules import ConfigError
from ablate.phrases import Note, option
from ablate.store.columns import METRICS, column_named, of_role
from ablate.store.record import StudyRecord

NOT_VARIED = (*of_role("identity", "seed", "metric", "resource"), "git", "code", "parts")


class Question(TypedDict, total=False):
    """Arguments of `compare`: which rows are compared, by which metric, grouped into which variants, what
    pairs their runs, and what levels are called, as {"fusion=sum": "summed heads"}."""

    metric: str | None
    by: Sequence[str]
    pair_by: Sequence[str]
    baseline: Mapping[str, Any] | None
    where: Sequence[str]
    higher_is_better: bool | None
    mixed: bool
    label: Mapping[str, str]


def question(
    metric: str | None,
    by: Sequence[str] | str | None,
    baseline: Mapping[str, Any] | str | None,
    where: Sequence[Where] | Where | None,
    mixed: bool,
    pair_by: Sequence[str] | str | None = None,
    higher_is_better: bool | None = None,
    label: Mapping[str, str] | Sequence[str] | None = None,
) -> Question:
    """The question as people ask it: columns as a list or as COL,COL, the baseline as a mapping or as
    K=V,K=V, one condition or several, and labels as a mapping or as K=V:WORDS each. Raises ConfigError."""
    given = [where] if isinstance(where, str | Mapping) else where or ()
    several = [
        [{key: values} for key, values in one.items()] if isinstance(one, Mapping) else [one] for one in given
    ]

    def columns(given: Sequence[str] | str | None) -> Sequence[str]:
        return [name for name in given.split(",") if name] if isinstance(given, str) else given or ()

    return {
        "metric": metric,
        "by": columns(by),
        "pair_by": columns(pair_by),
        "baseline": parse_baseline(baseline) if isinstance(baseline, str) else baseline,
        "where": [spelled(one) for conditions in several for one in conditions],
        "higher_is_better": higher_is_better,
        "mixed": mixed,
        "label": label if isinstance(label, Mapping) else dict(map(_label, label or ())),
    }


def _label(text: str) -> tuple[str, str]:
    level, _, words = text.partition(":")
    if not words or "=" not in level:
        raise ConfigError(
            f"--label {text}: give K=V:WORDS, such as {option('--label', 'fusion=sum:summed heads')}"
        )
    return level, words


def labelled(variants: Iterable[Variant], label: Mapping[str, str]) -> list[Variant]:
    """The variants with these words for their levels. Raises ConfigError for a level that none has, and for
    words that two levels of a column would share."""
    variants, words = [*variants], dict[str, dict[str, str]]()
    for key, called in label.items():
        name, _, level = key.partition("=")
        column, where = column_for(name), f"--label {key}:{called}"
        levels = [*dict.fromkeys(one.levels[column] for one in variants if column in one.levels)]
        if level not in levels:
            having = f"{name} is {', '.join(levels)}" if levels else f"{name} tells no variants apart"
            raise ConfigError(f"{where}: {having} here")
        of = words.setdefault(column, {})
        if called in of.values() or called in {*levels} - {level}:
            raise ConfigError(f"{where}: another level of {name} is called so; give other words")
        of[level] = called
    return [
        replace(one, words={c: of[one.levels[c]] for c, of in words.items() if one.levels[c] in of})
        for one in variants
    ]


def metric_of(
    rows: pd.DataFrame, records: Sequence[StudyRecord], metric: str | None, keys: Sequence[str]
) -> tuple[str, list[Note]]:
    """The metric, and a line if it was chosen here; of a foreign table without val_loss, the only column
    that can be one. keys: columns that were varied or pair."""
    if metric is not None:
        return metric, []
    planned = {record.metric for record in records}
    if len(planned) == 1 and (chosen := planned.pop()):
        return chosen, [Note(f"metric: {chosen}, on which this study reports; --metric takes another")]
    if (rows["phase"] == "report").all() and rows["test_loss"].notna().any():
        line = "metric: test_loss, on which every row reports (phase); --metric takes another"
        return "test_loss", [Note(line)]
    choices = [name for name in metrics_of(rows) if name not in keys and column_named(name).role == "metric"]
    if is_foreign(rows) and len(choices) == 1 and choices != ["val_loss"]:
        return choices[0], [Note(f"metric: {choices[0]}; --metric takes another", "taken")]
    return "val_loss", []


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


def varied(
    rows: pd.DataFrame, by: Sequence[str], used: Sequence[str | None]
) -> tuple[Sequence[str], list[Note]]:
    """The columns that define variants: those of --by; of a foreign table without it, the only column of
    words that varies, with a line. used: columns of another use. Raises ConfigError."""
    if by or not is_foreign(rows):
        return by, []
    free = rows[rows.columns.difference([*NOT_VARIED, *used], sort=False)]
    several = [str(name) for name in free if 1 < free[name].nunique(dropna=False) < len(free)]
    words = [name for name in several if not is_numeric(rows[name])]
    if len(words) == 1:
        return words, [Note(f"variants: by {words[0]}, the only column of words; --by takes others", "taken")]
    if words or not {*several} & {*variant_columns(rows)}:
        names = ", ".join(words or several) or "none has a value twice"
        by = option("--by", [*words, *several, "COL"][0])
        raise ConfigError(f"name the column that was varied, as {by}: {names}")
    return by, []
