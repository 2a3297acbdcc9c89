"""The verdict on a claim, from the rows of its runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.analysis.arms import of_arms
from ablate.config.rules import ConfigError
from ablate.ledger.entry import ALPHA, METRIC, Entry, Prediction, weights_of
from ablate.phrases import some
from ablate.store.record import StudyRecord
from ablate.store.status import Status


class Verdict(StrEnum):
    """What is said of a claim, always of this scale and these texts."""

    REPLICATED = "replicated at this scale"
    NOT = "not replicated at this scale"
    UNDECIDED = "undecided at this scale"


@dataclass(frozen=True)
class Found:
    """What was seen of one prediction. diff, low, high: of its contrast in nats, with its simultaneous
    interval. n: paired seeds. share: diff by the worth of attention; NaN without a yardstick. bound: the one
    in nats that it was compared with; of a bound in shares, at the mean worth. verdict: on this prediction.
    share and such a bound are NaN where attention is worth nothing."""

    contrast: str
    expect: str
    diff: float
    low: float
    high: float
    n: int
    share: float
    bound: float
    verdict: Verdict


@dataclass(frozen=True)
class Judged:
    """The verdict on an entry with what it rests on. level: of each interval. worth: of attention, in nats;
    NaN without a yardstick. diverged: the arms of which a run diverged."""

    verdict: Verdict
    found: list[Found]
    level: float
    worth: float
    diverged: list[str]


def judge(entry: Entry, rows: pd.DataFrame, record: StudyRecord) -> Judged:
    """Judge the claim by as many reporting seeds as the rows have.

    A prediction holds if its whole interval is where the claim expects it and, of a published effect, its
    middle is at least the share that has to be seen. It fails if the whole interval is on the other side, or,
    of a claimed effect, within the margin. The claim is replicated if all predictions hold, and not if one
    fails; it is undecided if a reporting run diverged. The intervals hold together over all predictions and
    looks (Bonferroni). Raises ConfigError.
    """
    _require_one_program(rows)
    seeds = reporting_seeds(entry, record)
    losses = of_arms(entry.arms, rows, record, METRIC, seeds)
    diverged = [arm for arm, values in losses.items() if np.isnan(values).any()]
    level = 1 - ALPHA / (len(entry.predictions) * len(entry.seeds))
    worth_S = _contrast(weights_of(entry.yardstick), losses) if entry.yardstick else None
    found = [_found(entry, one, losses, worth_S, level) for one in entry.predictions]
    verdicts = {one.verdict for one in found}
    verdict = next((v for v in (Verdict.NOT, Verdict.UNDECIDED) if v in verdicts), Verdict.REPLICATED)
    if diverged:
        verdict = Verdict.UNDECIDED
    worth = np.nan if worth_S is None else float(np.mean(worth_S))
    return Judged(verdict, found, level, worth, diverged)


def reporting_seeds(entry: Entry, record: StudyRecord) -> list[int]:
    """The reporting seeds of the record, in the entry's order. Raises ConfigError for any others."""
    there = {*record.seeds} - {*entry.develop}
    for look in entry.seeds:
        if {entry.seed(k) for k in range(look)} == there:
            return [entry.seed(k) for k in range(look)]
    raise ConfigError(
        f"its reporting seeds are not the first {some([*map(str, entry.seeds)])} of the entry's"
    )


def _require_one_program(rows: pd.DataFrame) -> None:
    """Raises ConfigError unless one version of the code made all rows, and one of each method its rows."""
    several = any(rows[column].nunique() > 1 for column in ("code", "torch") if column in rows)
    if "parts" in rows:
        several |= (rows.groupby(["fusion", "scores"])["parts"].nunique() > 1).any()
    if several or (rows["status"] == Status.STALE).any():
        raise ConfigError(
            "its rows are of several versions of the code or of torch, or of an older one;"
            " ablate claims run with force=stale trains those anew"
        )


def _contrast(weights: Mapping[str, int], losses: Mapping[str, stats.Array]) -> stats.Array:
    return np.sum([weight * losses[arm] for arm, weight in weights.items()], axis=0)


def _found(
    entry: Entry,
    prediction: Prediction,
    losses: Mapping[str, stats.Array],
    worth_S: stats.Array | None,
    level: float,
) -> Found:
    difference_S = _contrast(prediction.weights, losses)
    worth = np.nan if worth_S is None or not np.mean(worth_S) > 0 else float(np.mean(worth_S))
    bound_S = np.full_like(difference_S, prediction.bound or entry.margin)
    if prediction.of_attention is not None and worth_S is not None:
        bound_S = prediction.of_attention * (worth_S if worth > 0 else np.nan)  # it scatters over seeds too
    effect, over, under = (
        _interval(values_S, level)
        for values_S in (difference_S, difference_S - bound_S, difference_S + bound_S)
    )
    return Found(
        contrast=prediction.contrast,
        expect=prediction.expect,
        diff=effect.middle,
        low=effect.low,
        high=effect.high,
        n=int((~np.isnan(difference_S)).sum()),
        share=effect.middle / worth,
        bound=float(np.mean(bound_S)),
        verdict=_verdict(prediction, entry.margin, effect, over, under),
    )


class _Interval(NamedTuple):
    middle: float
    low: float
    high: float


def _verdict(
    prediction: Prediction, margin: float, effect: _Interval, over: _Interval, under: _Interval
) -> Verdict:
    """The verdict on a prediction, from the intervals of the difference, of the difference − bound (over) and
    of the difference + bound (under)."""
    if np.isnan([effect.low, over.low, under.low]).any():
        return Verdict.UNDECIDED
    if prediction.expect in ("below", "above"):
        sign = 1 if prediction.expect == "above" else -1
        low, high = sorted((sign * effect.low, sign * effect.high))
        if high < 0 or (low > -margin and high < margin):  # too small to matter, even if it is there
            return Verdict.NOT
        seen = sign * effect.middle >= prediction.share * abs(prediction.published or 0)
        return Verdict.REPLICATED if low > 0 and seen else Verdict.UNDECIDED
    at_most = prediction.expect in ("within", "at_most")
    at_least = prediction.expect in ("within", "at_least")
    if (at_most and over.low > 0) or (at_least and under.high < 0):
        return Verdict.NOT
    holds = not (at_most and over.high >= 0) and not (at_least and under.low <= 0)
    return Verdict.REPLICATED if holds else Verdict.UNDECIDED


def _interval(values_S: stats.Array, level: float) -> _Interval:
    """The mean with its t-interval; NaN as bounds where nothing scatters."""
    one = stats.paired(values_S[None], np.zeros_like(values_S)[None], margin=np.inf, alpha=1 - level)
    return _Interval(*(float(one[name][0]) for name in ("diff", "low", "high")))
