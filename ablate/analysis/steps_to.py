"""The training steps that a run takes to reach a loss, as a further column to compare.

It reads no files, prints nothing, and loads no torch.
"""

import math
from collections.abc import Sequence
from typing import Unpack

import numpy as np
import pandas as pd

from ablate.analysis.compare import Question, compare, report_rows
from ablate.analysis.frames import LARGEST
from ablate.analysis.select import select, with_options
from ablate.analysis.series import names
from ablate.analysis.stats import Array
from ablate.analysis.variants import STEPS_TO, USABLE
from ablate.config.rules import ConfigError
from ablate.phrases import some
from ablate.store.record import StudyRecord

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

    metrics: run_id, step, val_loss, as from load.metrics. target: a loss in nats, or `baseline`: the highest
    final loss of the baseline's runs, one loss for all seeds, which all of these runs reach. If each seed had
    its own final loss as the target, the baseline would take all steps by definition, and any other variant
    would be faster or missing, so that equal variants would differ. With the mean of the final losses, half
    of the baseline's runs would be missing, and most pairs with them. Raises ConfigError.
    """
    compared = select(with_options(report_rows(rows)[0]), question.get("where", ()))
    seen = metrics[metrics["run_id"].isin(compared["run_id"])]
    if seen.empty:
        raise _without_metrics(target, "these runs")
    if target == BASELINE:
        runs, name = _baseline(rows, compared, records, **question)
        final = seen[seen["run_id"].isin(runs)].groupby("run_id")["val_loss"].last()
        if final.empty:
            raise _without_metrics(target, f"the runs of {name}")
        loss, where = math.ceil(1e4 * final.max()) / 1e4, f", which every run of {name} reaches"
    else:
        loss, where = _loss(target), ""
    if not (seen["val_loss"] <= loss).any():
        least = seen["val_loss"].min()
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
        there = f"there are {len(bases)} ({some(bases)})" if len(bases) else "there is none"
        raise ConfigError(
            f"--steps-to {BASELINE}: {there}, and all variants are to reach one loss; choose with --where or"
            " --baseline, or give a loss in nats"
        )
    of_it = compared["status"].isin(USABLE) & (names(compared, comparison.shown) == bases[0])
    return compared["run_id"][of_it], bases[0]
