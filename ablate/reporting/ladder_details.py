"""How the results of a ladder came about: rates, forms, what grows. Prints nothing."""

import pandas as pd

from ablate.analysis.compare import Comparison
from ablate.analysis.ladder import Arm, LadderResult, shapes
from ablate.analysis.scaling import FORMS
from ablate.phrases import lines_if
from ablate.reporting.words import interval, remaining, unit
from ablate.store.record import LEVEL, name_at

NO_RATIO = "no ratio of parameters, which takes four rungs and a factor of ten between their sizes"
GROWS = {"heads": "heads", "key_width": "queries and keys of", "value_width": "values of"}


def details(comparison: Comparison, ladder: LadderResult) -> list[str]:
    """A line each; differences are arm − baseline."""
    return [
        *_rates(ladder),
        *(line for arm in ladder.arms for line in _of_arm(arm, ladder, unit(comparison.metric))),
        *_frozen(ladder),
        "Intervals of slopes and ratios are of 95 %, each by itself.",
        *_growth(comparison, ladder),
    ]


def _rates(ladder: LadderResult) -> list[str]:
    """The value of each arm at each rung, and how it was chosen."""
    record, lines = ladder.record, []
    for arm in record.arms:
        chosen = [(rung.name, record.chosen.get(name_at(rung, arm))) for rung in ladder.rungs]
        each = [
            f"{choice.value} at {rung} ({choice.how})" for rung, choice in chosen if choice and choice.value
        ]
        lines += lines_if(each, f"{arm}: {record.tuned_key} {', '.join(each)}.")
    return lines


def _of_arm(arm: Arm, ladder: LadderResult, nats: str) -> list[str]:
    """Its slope, its ratio of parameters, and the forms that predicted it."""
    parts = list[str]()
    if arm.slope:
        change = remaining(arm.slope.value, arm.slope.low, arm.slope.high)
        parts.append(f"with twice the parameters its difference changes by {change}{nats}")
    if ratio := arm.ratio:
        times = f"{ratio.value:.2f} {interval(ratio.low, ratio.high, '.2f')} times"
        parts.append(f"{ladder.baseline} reaches its loss with {times} its parameters")
    elif arm.slope:
        parts.append(NO_RATIO)
    if predicted := arm.predicted:
        weights = [f"{form} {predicted.weights[form]:.2f}" for form in FORMS if form in predicted.weights]
        parts.append(f"predicted by the forms {', '.join(weights)}")
    return lines_if(parts, f"{arm.name}: {'; '.join(parts)}.")


def _frozen(ladder: LadderResult) -> list[str]:
    if not (prediction := ladder.record.prediction) or not prediction.is_intact:
        return []
    return [
        f"{prediction.rung} was predicted on {prediction.date}, before a run of it began: intervals of"
        f" {100 * LEVEL:g} % for the differences seen there."
    ]


def _growth(comparison: Comparison, ladder: LadderResult) -> list[str]:
    """What else changes from the lowest rung with results to the highest."""
    found = shapes(comparison.rows, ladder.record)
    if found.empty:
        return []
    first, last = (ladder.rungs[int(at)] for at in (found["rung"].min(), found["rung"].max()))
    if first == last:
        return []
    by_rung = found.sort_values("rung", kind="stable")
    lines = [
        f"From {first.name} to {last.name}, by construction: width {_grown(by_rung, 'd_model')}, layers"
        f" {_grown(by_rung, 'layers')}, training tokens {first.tokens:,} to {last.tokens:,}."
    ]
    for arm, rows in found.groupby("arm", sort=False):
        parts = [f"{what} {_grown(rows, column)}" for column, what in GROWS.items() if _grown(rows, column)]
        ranks = rows["write_rank"]
        if (ranks.gt(0) & (ranks < rows["d_model"])).any():
            stays = _grown(rows, "write_rank") or f"{ranks.iloc[0]} at every rung"
            parts.append(
                f"its heads together write into a space of rank {stays}, of the {_grown(rows, 'd_model')}"
                " dimensions of the model"
            )
        lines += lines_if(parts, f"{arm}: {'; '.join(parts)}.")
    return lines


def _grown(rows: pd.DataFrame, column: str) -> str:
    """From what to what a number grows; empty if it does not."""
    low, high = rows[column].iloc[0], rows[column].iloc[-1]
    return f"{low} to {high}" if low != high else ""
