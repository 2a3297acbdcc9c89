"""How fast variants learn, as further columns of a comparison: steps to reach a loss, and the time of a step.

It reads no files, prints nothing, and loads no torch.
"""

import math
import statistics
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Unpack

import numpy as np
import pandas as pd

from ablate.analysis.compare import compare, reported
from ablate.analysis.frames import LARGEST
from ablate.analysis.question import Question
from ablate.analysis.stats import Array
from ablate.analysis.variants import USABLE, names
from ablate.config.rules import ConfigError
from ablate.phrases import some
from ablate.store.columns import STEPS_TO
from ablate.store.record import StudyRecord

if TYPE_CHECKING:
    from ablate.execution.timing import StepTimer

BASELINE = "baseline"


def with_steps_to(
    rows: pd.DataFrame,
    metrics: pd.DataFrame,
    target: str,
    records: Sequence[StudyRecord] = (),
    **question: Unpack[Question],
) -> tuple[pd.DataFrame, str, str]:
    """The rows with a column of `first_reached`, its name, and a line that explains it. It is NaN for a run
    without metrics.csv, or without a final loss because it diverged.

    metrics: as from load.metrics. target: a loss in nats, or `baseline`: the highest final loss of the
    baseline's runs, which all of them reach. Were each seed's own final loss the target, equal variants would
    differ, as the baseline would take all steps by definition. Raises ConfigError.
    """
    compared, _ = reported(rows, question.get("where", ()))
    curves = metrics[metrics["run_id"].isin(compared["run_id"])]
    if curves.empty:
        raise _without_metrics(target, "these runs")
    if target == BASELINE:
        runs, name = _baseline(rows, compared, records, **question)
        final = curves[curves["run_id"].isin(runs)].groupby("run_id")["val_loss"].last()
        if final.empty:
            raise _without_metrics(target, f"the runs of {name}")
        loss, where = math.ceil(1e4 * final.max()) / 1e4, f", which every run of {name} reaches"
    else:
        loss, where = _loss(target), ""
    least = curves["val_loss"].min()
    if not least <= loss:
        raise ConfigError(
            f"--steps-to {target}: no run reaches it; the lowest val_loss is {least:.4f}; give more"
        )
    reached = {
        run_id: first_reached(curve["step"].to_numpy(float), curve["val_loss"].to_numpy(), loss)
        for run_id, curve in metrics.groupby("run_id")
    }
    column = f"{STEPS_TO}{loss:g}"
    line = f"{column}: the step at which val_loss of metrics.csv first is {loss:g} or less{where}"
    steps = rows["run_id"].map(reached).where(rows["val_loss"].notna())
    return rows.assign(**{column: steps}), column, line


def first_reached(steps_T: Array, losses_T: Array, loss: float) -> float:
    """The step at which a curve first reaches `loss`, interpolated linearly from the evaluation before;
    infinite if it never does."""
    below = np.flatnonzero(losses_T <= loss)
    if not len(below):
        return math.inf
    around = slice(max(below[0] - 1, 0), below[0] + 1)
    return float(np.interp(-loss, -losses_T[around], steps_T[around]))


def with_step_times(table: pd.DataFrame, timer: "StepTimer") -> pd.DataFrame:
    """Add to a table of compare the columns step_ms, step_ratio, step_ratio_low and step_ratio_high: medians
    over rounds, and the range of the ratio, which is empty if there is no baseline, or if it takes the same
    steps."""
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
    columns = ["step_ms", "step_ratio", "step_ratio_low", "step_ratio_high"]
    return table.join(pd.DataFrame(rows, columns=columns, index=table.index))


def _without_metrics(target: str, runs: str) -> ConfigError:
    return ConfigError(
        f"--steps-to {target}: none of {runs} has its metrics.csv here, where its losses on the way stand;"
        " compare where the runs were made, or leave --steps-to out"
    )


def _loss(text: str) -> float:
    try:
        loss = float(text)
    except ValueError:
        loss = math.nan
    if not 0 < loss < LARGEST:
        raise ConfigError(f"--steps-to {text}: give a validation loss in nats, such as 1.5, or {BASELINE}")
    return loss


def _baseline(
    rows: pd.DataFrame,
    compared: pd.DataFrame,
    records: Sequence[StudyRecord],
    **question: Unpack[Question],
) -> tuple[pd.Series, str]:
    """The finished runs of the only baseline of the first family, and its name. Raises ConfigError."""
    comparison = compare(rows, records=records, **question)
    bases = comparison.family(comparison.families[0])["baseline"].dropna().unique()
    if len(bases) != 1:
        which = f"there are {len(bases)} ({some(bases)})" if len(bases) else "there is none"
        raise ConfigError(
            f"--steps-to {BASELINE}: {which}, and all variants are to reach one loss; choose with --where or"
            " --baseline, or give a loss in nats"
        )
    of_it = compared["status"].isin(USABLE) & (names(compared, comparison.shown) == bases[0])
    return compared["run_id"][of_it], bases[0]
