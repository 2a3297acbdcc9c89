"""Differences with their intervals, drawn inside the answer: places in percent, for any width."""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ablate.analysis.compare import Comparison
from ablate.analysis.contrasts import names
from ablate.analysis.variants import levels_of
from ablate.reporting.answers import without
from ablate.reporting.words import number, signed, unit

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
    table = comparison.tested
    for side in ("variant", "baseline"):
        table = table.assign(**{side: [without(name, tuned) for name in table[side]]})
    rows = [row for row in table.to_dict("records") if math.isfinite(row["low"])]
    if not rows:
        return None
    shown, margin = rows[:MOST], comparison.margin
    ends = [0.0, *(row[end] for row in shown for end in ("low", "high"))]
    ends += [] if math.isnan(margin) else [-margin, margin]
    low, high = min(ends), max(ends)
    scale = (100 - 2 * ROOM) / ((high - low) or 1.0)

    def place(value: float) -> float:
        return round(ROOM + (value - low) * scale, 2)

    settings = [levels_of(row["variant"]) for row in shown]
    varying = {key for one in settings for key in one if len({other.get(key) for other in settings}) > 1}
    drawn = [
        Span(
            label=_label(row, varying),
            text=f"{signed(row['diff'])} [{number(row['low'])}, {number(row['high'])}]",
            verdict=row["verdict"],
            low=place(row["low"]),
            at=place(row["diff"]),
            high=place(row["high"]),
        )
        for row in shown
    ]
    measure = f",{words}" if (words := unit(comparison.metric)) else ""
    sides = {True: "; right of 0 is better", False: "; left of 0 is better", None: ""}
    return Spans(
        spans=drawn,
        title=f"difference in {comparison.metric}{measure}{sides[comparison.higher_is_better]}",
        zero=place(0.0),
        margin=None if math.isnan(margin) else (place(-margin), place(margin)),
        ticks=[(place(value), label) for value, label in _ticks(low, high)],
        left=len(rows) - len(shown),
    )


def _label(row: Mapping[Hashable, Any], varying: Collection[str]) -> str:
    """The two sides, and of what they share the settings that vary between contrasts."""
    ours, theirs = levels_of(row["variant"]), levels_of(row["baseline"])
    shared = [f"{key}={ours[key]}" for key in ours if key in varying and ours[key] == theirs.get(key) != ""]
    where = f" ({', '.join(shared)})" if shared else ""
    one, other, _ = names(row["variant"], row["baseline"])
    return f"{one} − {other}{where}"


def _ticks(low: float, high: float) -> Sequence[tuple[float, str]]:
    """Round numbers from low to high, in steps of 1, 2 or 5 times a power of ten."""
    width = (high - low) or 1.0
    power = 10 ** math.floor(math.log10(width / STEPS))
    step = next(power * times for times in (1, 2, 5, 10) if width / (power * times) <= STEPS)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    values = np.arange(math.ceil(low / step), math.floor(high / step) + 1) * step
    return [(float(value), f"{value + 0.0:.{digits}f}".replace("-", "−")) for value in values]
