"""What is asked of a table: its metric, the margin, what was varied, what pairs. It loads no torch."""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypedDict, Unpack

import numpy as np

from ablate.analysis.foreign import LARGEST
from ablate.config.conditions import Where, pairs, single
from ablate.config.contrast import MARGIN
from ablate.config.rules import ConfigError
from ablate.store.columns import METRICS, column_named
from ablate.store.record import StudyRecord

WIDE = "column"  # what is varied in a table with a column for each variant


@dataclass(frozen=True, kw_only=True)
class Question:
    """Which rows are compared (where), by which metric and margin, grouped into which variants (by), with
    which of them (baseline), and what pairs their runs (pair_by). What is None or empty is left to the
    studies and to the rows. higher_is_better: of a metric that ablate does not know. fixed: the variant whose
    one value is known, and has no scatter. within: a column between whose levels differences are compared.
    shown: columns that names have in any case. finished: words for the status of rows that count, besides
    those of every program."""

    metric: str | None = None
    by: Sequence[str] = ()
    pair_by: Sequence[str] = ()
    baseline: Mapping[str, Any] | None = None
    where: Sequence[str] = ()
    margin: float | None = None
    higher_is_better: bool | None = None
    fixed: Mapping[str, Any] | None = None
    within: str = ""
    shown: Sequence[str] = ()
    finished: Sequence[str] = ()

    @property
    def suffix(self) -> str:
        """Of the names of its files, so that another question does not overwrite them: -heads-test_loss."""
        asked = (self.within, self.metric, *self.where, *chain(*(self.baseline or {}).items()))
        return re.sub(r"[^\w.]+", "-", "".join(f"-{one}" for one in asked if one not in (None, "")))


NOTHING_ASKED = Question()


class Asked(TypedDict, total=False):
    """A Question as people ask it: columns as a list or as COL,COL, the baseline as a mapping, as K=V,K=V or
    as the name of a variant, and one condition or several."""

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


def ask(**asked: Unpack[Asked]) -> Question:
    """Raises ConfigError."""
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    where = given.get("where", ())
    each = [where] if isinstance(where, str | Mapping) else where
    given["where"] = [text for one in each for text in single(one)]
    for name in {"by", "pair_by", "finished"} & {*given}:
        given[name] = listed(given[name])
    for name in {"baseline", "fixed"} & {*given}:
        of = given[name]
        given[name] = (pairs(of) or {of: None}) if isinstance(of, str) and of else of or None
    return Question(**given)


def listed(given: Sequence[str] | str) -> Sequence[str]:
    """COL,COL as a list; a name with a comma stands in quotation marks."""
    if not isinstance(given, str):
        return given
    return [name for name in next(csv.reader([given], skipinitialspace=True), []) if name]


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
