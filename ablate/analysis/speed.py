"""The time of a training step of each variant, as further columns of a comparison."""

import math
import statistics
from collections.abc import Hashable
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from ablate.execution.timing import StepTimer


COLUMNS = ("step_ms", "step_ratio", "step_ratio_low", "step_ratio_high")


def step_times(table: pd.DataFrame, timer: "StepTimer") -> pd.DataFrame:
    """For each row of a table of compare the columns step_ms, step_ratio, step_ratio_low and step_ratio_high:
    medians over rounds, and the range of the ratio, which is empty if there is no baseline, or if it takes
    the same steps."""
    alone: dict[Hashable, float] = {}
    ratios: dict[Hashable, list[float]] = {}
    rows = []
    for variant, baseline in zip(table["variant"], table["baseline"], strict=True):
        if (key := timer.steps_of(variant)) not in alone:
            alone[key] = 1000 * statistics.median(timer.seconds(variant).pop())
        ratio = [math.nan]
        if isinstance(baseline, str) and (pair := (key, timer.steps_of(baseline)))[0] != pair[1]:
            if pair not in ratios:
                ours, theirs = timer.seconds(variant, baseline)
                ratios[pair] = [a / b for a, b in zip(ours, theirs, strict=True)]
            ratio = ratios[pair]
        rows.append((alone[key], statistics.median(ratio), min(ratio), max(ratio)))
    return pd.DataFrame(rows, columns=[*COLUMNS], index=table.index)
