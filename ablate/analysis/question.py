"""What is asked of a table: its metric, the margin, what was varied, what pairs. It loads no torch."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
import pandas as pd

from ablate.analysis.contrasts import parse_baseline
from ablate.analysis.frames import LARGEST, is_numeric, of_others
from ablate.analysis.select import as_texts
from ablate.analysis.variants import metrics_of, variant_columns
from ablate.config.conditions import Where, column_of, spelled
from ablate.config.contrast import MARGIN
from ablate.config.rules import ConfigError
from ablate.phrases import Taken, some
from ablate.store.columns import COLUMNS, column_named, of_role
from ablate.store.record import StudyRecord

NOT_VARIED = (*of_role("identity", "seed", "metric", "measured"), "git", "code", "parts")


class Question(TypedDict, total=False):
    """Arguments of `compare`: which rows are compared, by which metric, grouped into which variants, and what
    pairs their runs."""

    metric: str | None
    by: Sequence[str]
    pair_by: Sequence[str]
    baseline: Mapping[str, Any] | None
    where: Sequence[str]
    higher_is_better: bool | None
    mixed: bool


def question(
    metric: str | None,
    by: Sequence[str] | str | None,
    baseline: Mapping[str, Any] | str | None,
    where: Sequence[Where] | Where | None,
    mixed: bool,
    pair_by: Sequence[str] | str | None = None,
    higher_is_better: bool | None = None,
) -> Question:
    """The question as people ask it: columns as a list or as COL,COL, the baseline as a mapping or as
    K=V,K=V, and one condition or several. Raises ConfigError."""
    several = [where] if isinstance(where, str | Mapping) else where or ()

    def columns(given: Sequence[str] | str | None) -> Sequence[str]:
        return [name for name in given.split(",") if name] if isinstance(given, str) else given or ()

    return {
        "metric": metric,
        "by": columns(by),
        "pair_by": columns(pair_by),
        "baseline": parse_baseline(baseline) if isinstance(baseline, str) else baseline,
        "where": [*map(spelled, several)],
        "higher_is_better": higher_is_better,
        "mixed": mixed,
    }


def metric_of(
    rows: pd.DataFrame, records: Sequence[StudyRecord], metric: str | None, keys: Sequence[str] = ()
) -> tuple[str, list[str]]:
    """The metric, and a line if it was chosen here: the study's; test_loss, where all rows report on it;
    val_loss; of a table of others without it, the only column that can be one. keys: columns that are none,
    as they were varied or pair. Raises ConfigError."""
    if metric is not None:
        return metric, []
    planned = {record.metric for record in records}
    if len(planned) == 1 and (chosen := planned.pop()):
        return chosen, [f"metric: {chosen}, on which this study reports; --metric takes another"]
    if not of_others(rows):
        if "phase" not in rows or (rows["phase"] != "report").any() or rows["test_loss"].isna().all():
            return "val_loss", []
        return "test_loss", ["metric: test_loss, on which every row reports (phase); --metric takes another"]
    taken = {column_of(key, rows.columns, "--by") for key in keys}
    choices = [name for name in metrics_of(rows) if name not in taken and column_named(name).role == "metric"]
    ours = [name for name in choices if name in COLUMNS]
    if "val_loss" in ours:
        return "val_loss", []
    if len(only := ours or choices) == 1:
        return only[0], [Taken(f"metric: {only[0]}; --metric takes another")]
    raise ConfigError(f"--metric: name the column to compare; choices: {', '.join(choices) or 'none'}")


def margin_of(records: Sequence[StudyRecord], margin: float | None, metric: str) -> float:
    """The margin: as given, else the study's if that is in the same unit, else MARGIN of what is in nats.
    NaN for any other metric, of which then nothing is equivalent. Raises ConfigError."""
    unit = column_named(metric).unit
    if margin is None:
        planned = {
            record.margin
            for record in records
            if record.margin
            and (record.metric == metric or unit == column_named(record.metric or "val_loss").unit != "")
        }
        return planned.pop() if len(planned) == 1 else MARGIN if unit == "nats" else np.nan
    if not 0 < margin < LARGEST:
        raise ConfigError(f"--margin {margin}: give one above 0, in the metric's unit, such as 0.01")
    return margin


def varied(
    rows: pd.DataFrame, by: Sequence[str], pair_by: Sequence[str], metric: str | None
) -> tuple[Sequence[str], list[str]]:
    """The columns that define variants: those of --by; of a table of others without it, the only column of
    words that varies, with a line. Raises ConfigError."""
    if by or not of_others(rows):
        return by, []
    used = {*NOT_VARIED, metric, *pair_by}
    several = [
        name
        for name in map(str, rows.columns)
        if name not in used and 1 < rows[name].nunique(dropna=False) < len(rows)
    ]
    words = [name for name in several if not is_numeric(rows[name])]
    if len(words) == 1:
        levels = some([level or "None" for level in as_texts(rows[words[0]]).unique()])
        return words, [
            Taken(f"variants: by {words[0]} ({levels}), the only column of words; --by takes others")
        ]
    if not words and {*several} & {*variant_columns(rows)}:
        return by, []
    choices = ", ".join(words or several) or "none has a value twice"
    raise ConfigError(
        f"which column was varied? name it, as --by {(words or several or ['COL'])[0]}; columns: {choices}"
    )
