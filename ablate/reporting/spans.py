"""Differences with their intervals, drawn inside the answer: places in percent, for any width."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ablate.analysis.compare import Comparison
from ablate.analysis.finding import Finding
from ablate.analysis.variant import varying
from ablate.reporting.words import interval, setting_of, signed, unit

MOST = 8  # rows
ROOM = 6.0  # percent that stay free on either side
STEPS = 4.5  # the most steps on the axis


@dataclass(frozen=True)
class Span:
    """One contrast. label: what is compared with what. text: its difference and interval. low, at, high:
    their places."""

    label: str
    text: str
    verdict: str
    low: float
    at: float
    high: float


@dataclass(frozen=True)
class Spans:
    """title: what the axis shows. zero, margin: places of no difference and of the ends of the margin, if
    there is one. ticks: place and number. left: whether contrasts are left out."""

    spans: list[Span]
    title: str
    zero: float
    margin: tuple[float, float] | None
    ticks: list[tuple[float, str]]
    left: int


def spans(comparison: Comparison, tuned: str = "") -> Spans | None:
    """The tested contrasts, at most MOST; None if there is none. tuned: the column of which each variant has
    its own value; it is not named."""
    found = [one.without(tuned) for one in comparison.tested if math.isfinite(one.low)]
    if not found:
        return None
    shown, margin = found[:MOST], comparison.margin
    ends = [0.0, *(end for one in shown for end in (one.low, one.high))]
    ends += [] if math.isnan(margin) else [-margin, margin]
    low, high = min(ends), max(ends)
    scale = (100 - 2 * ROOM) / ((high - low) or 1.0)

    def place(value: float) -> float:
        return round(ROOM + (value - low) * scale, 2)

    apart = varying(one.variant for one in shown)
    drawn = [
        Span(
            label=_label(one, apart),
            text=f"{signed(one.diff)} {interval(one.low, one.high)}",
            verdict=one.verdict or "",
            low=place(one.low),
            at=place(one.diff),
            high=place(one.high),
        )
        for one in shown
    ]
    measure = f",{words}" if (words := unit(comparison.metric)) else ""
    sides = {True: "; right of 0 is better", False: "; left of 0 is better", None: ""}
    return Spans(
        spans=drawn,
        title=f"difference in {comparison.metric}{measure}{sides[comparison.higher_is_better]}",
        zero=place(0.0),
        margin=None if math.isnan(margin) else (place(-margin), place(margin)),
        ticks=[(place(value), label) for value, label in _ticks(low, high)],
        left=len(found) - len(shown),
    )


def _label(one: Finding, varying: Collection[str]) -> str:
    """The two sides, and of what they share the settings that vary between contrasts."""
    shared = ", ".join(setting_of(one, columns=varying))
    return " − ".join(one.sides()) + (f" ({shared})" if shared else "")


def _ticks(low: float, high: float) -> Sequence[tuple[float, str]]:
    """Round numbers from low to high, in steps of 1, 2 or 5 times a power of ten."""
    width = (high - low) or 1.0
    power = 10.0 ** math.floor(math.log10(width / STEPS))
    step = next(power * times for times in (1, 2, 5, 10) if width / (power * times) <= STEPS)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    values = np.arange(math.ceil(low / step), math.floor(high / step) + 1) * step
    return [(float(value), f"{value + 0.0:.{digits}f}".replace("-", "−")) for value in values]
