"""The charts of a comparison, each a function from the page to its figures, with its own numbers. A new chart
is a function that is named in CHARTS."""

from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import Comparison
from ablate.analysis.findings import Finding
from ablate.analysis.variants import USABLE, names
from ablate.reporting.figures import (
    COLORS,
    GREY,
    SPARSE,
    TICKS,
    Figure,
    colours,
    in_colour,
    label,
    measured,
    spec,
)
from ablate.reporting.page import Page
from ablate.store.run_files import read_metrics

VERDICTS = {  # their colours and shapes
    stats.BETTER: ("#2e9e6b", "diamond"),
    stats.EQUIVALENT: ("#3b82c4", "square"),
    stats.UNDECIDED: (GREY, "circle"),
    stats.WORSE: ("#d64550", "cross"),
}
ROW, ROOM = 18, 30  # height of a row of differences, and of the room around all
POINTS, FEW = 40, 5  # the most points of a curve; fewer than so many are marked, and counted in words


def figures(page: Page) -> list[Figure]:
    """The figures of a page, in reading order."""
    return [figure for chart in CHARTS for figure in chart(page)]


def _intervals(page: Page) -> Iterator[Figure]:
    """The difference of each variant to its baseline, one row per contrast; of the planned ones or, without
    any, of all."""
    comparison, margin = page.comparison, page.comparison.margin
    tested = comparison.tested
    if not tested:
        return
    data = pd.DataFrame(
        {name: getattr(one, name) for name in ("diff", "low", "high", "verdict")} for one in tested
    )
    data.insert(0, "label", _labels(comparison, tested))
    verdicts = [verdict for verdict in VERDICTS if verdict in {*data["verdict"]}]
    colors, shapes = (
        alt.Scale(domain=verdicts, range=[VERDICTS[verdict][at] for verdict in verdicts]) for at in (0, 1)
    )
    y = alt.Y("label:N", sort=None, title=None, axis=alt.Axis(grid=False))
    base = alt.Chart(data).encode(y=y, color=alt.Color("verdict:N", scale=colors))
    points, shape = base.mark_point(filled=True, size=60, opacity=1), alt.Shape("verdict:N", scale=shapes)
    x = alt.X("low:Q", title=f"difference in {comparison.metric} to the baseline", axis=SPARSE)
    band = pd.DataFrame([{"from": -margin, "to": margin}] if margin > 0 else [], columns=["from", "to"])
    grey = f"; grey band: the margin of ±{margin:g}, too small to matter" if margin > 0 else ""
    chart = alt.layer(
        alt.Chart(band).mark_rect(opacity=0.18, color=GREY).encode(x="from:Q", x2="to:Q"),
        _zero(),
        base.mark_rule(strokeWidth=2).encode(x=x, x2="high:Q"),
        points.encode(x="diff:Q", shape=shape),
    )
    bases = {one.baseline.name for one in tested}
    to = f" to {label(comparison, bases.pop())}" if len(bases) == 1 else ""
    key = f"intervals-{'planned' if tested[0].is_planned else 'exploratory'}"
    about = f"Points: differences{to}; lines: their intervals, which hold together{grey}."
    drawn = {key: spec(chart, ROOM + ROW * len(data))}
    yield Figure(key, "Differences to the baseline", about, drawn, data)


def _labels(comparison: Comparison, tested: Sequence[Finding]) -> list[str]:
    """What each contrast is called: a sum by its name, with its baseline where there are several."""
    several = len({one.baseline.name for one in tested}) > 1
    sides = [[label(comparison, side.name) for side in one.both] for one in tested]
    each = zip(tested, sides, strict=True)
    return [one.name if one.is_sum else " − ".join(of[: 1 + several]) for one, of in each]


def _seeds(page: Page) -> Iterator[Figure]:
    """The difference of each pair, one row per contrast."""
    tested = [one for one in page.comparison.tested if one.pairs is not None]
    each = zip(_labels(page.comparison, tested), tested, strict=True)
    pairs = [(of, value) for of, one in each for value in one.differences.tolist() if value == value]
    data = pd.DataFrame(pairs, columns=["label", "difference"])
    if data.empty:
        return
    points = alt.Chart(data).mark_point(filled=True, size=30, opacity=0.6, color=COLORS[0])
    x = alt.X("difference:Q", title=f"difference in {page.comparison.metric} of each pair", axis=SPARSE)
    points = points.encode(y=alt.Y("label:N", sort=None, title=None), x=x)
    about = "A point for each pair of runs of one seed: how far differences scatter."
    height = ROOM + ROW * len(tested)
    drawn = {"seeds": spec(alt.layer(_zero(), points), height)}
    yield Figure("seeds", "Differences of pairs", about, drawn, data)


def _zero() -> alt.Chart:
    return alt.Chart(pd.DataFrame([{"zero": 0}])).mark_rule(color=GREY, strokeDash=[3, 3]).encode(x="zero:Q")


def _levels(page: Page) -> Iterator[Figure]:
    """Each difference at the levels between which contrasts of contrasts compare it."""
    crossed = [one for one in page.comparison.tested if one.variant.difference]
    sides = {
        side.name: (side, one.variant.differing(one.baseline))
        for one in crossed
        for side in reversed(one.both)
    }
    if not sides:
        return
    rows = page.comparison.summary.set_index("variant").loc[[*sides]].reset_index(drop=True)
    half = stats.half_width(rows["n"].to_numpy(float), rows["sd"].to_numpy(float))
    data = pd.DataFrame(
        {"mean": rows["mean"], "low": rows["mean"] - half, "high": rows["mean"] + half}
    ).assign(
        level=[one.label([c for c in apart if c not in one.difference]) for one, apart in sides.values()],
        difference=[one.label(one.difference) for one, _ in sides.values()],
    )
    title = f"difference in {page.comparison.metric}"
    base = alt.Chart(data).encode(
        x=alt.X("level:N", sort=None, title=None, axis=alt.Axis(labelAngle=0)),
        color=colours("difference", [*dict.fromkeys(data["difference"])]),
        xOffset="difference:N",
    )
    points = base.mark_point(filled=True, size=60, opacity=1).encode(y=measured(alt.Y, "mean", title))
    about = "Each difference at each level: mean over seeds, with a 95 % interval of its own."
    lines = base.mark_rule(opacity=0.6).encode(y=measured(alt.Y, "low", title), y2="high:Q")
    chart = spec(alt.layer(lines, points), 200)
    yield Figure("levels", "Is a difference the same?", about, {"levels": chart}, data)


def _curves(page: Page) -> Iterator[Figure]:
    """The validation loss by step, of the most important variants."""
    rows = page.comparison.rows[page.comparison.rows["status"].isin(USABLE)]
    variant = names(rows, page.comparison.shown)
    points = [
        (variant[run_id], row["step"], row["val_loss"])
        for run_id, directory in page.subject.directories.items()
        for row in read_metrics(directory)
        if "val_loss" in row and run_id in variant
    ]
    losses = pd.DataFrame(points, columns=["variant", "step", "val_loss"])
    table = losses.groupby(["variant", "step"], sort=False)["val_loss"]
    table = table.agg(mean="mean", low="min", high="max", n="count").reset_index()
    table = table[table["variant"].isin(in_colour(page.comparison))]
    complete = table[table["n"] == table.groupby("variant")["n"].transform("max")]
    if complete.empty:
        return
    curves = [curve.sort_values("step") for _, curve in complete.groupby("variant", sort=False)]
    places = (np.unique(np.linspace(0, len(one) - 1, POINTS).round().astype(int)) for one in curves)
    data = pd.concat([one.iloc[at] for one, at in zip(curves, places, strict=True)], ignore_index=True)
    about = "Validation loss at each evaluation: mean over seeds, band from the lowest to the highest."
    drawn = {"curves": spec(_lines(page.comparison, data), 300)}
    yield Figure("curves", "Loss over the training", about, drawn, data)


def _lines(comparison: Comparison, data: pd.DataFrame) -> Any:
    """A chart of `mean` over `step`, one line per variant, with a band from low to high."""
    chosen = in_colour(comparison)
    called = {name: label(comparison, name, "{} {}") for name in comparison.variants}
    drawn = data.round({"mean": 4, "low": 4, "high": 4}).assign(label=data["variant"].map(called))
    drawn = drawn.sort_values(["step", "variant"], kind="stable")
    count, y = drawn["step"].nunique(), measured(alt.Y, "mean", "val_loss")
    few, axis = count < FEW, alt.Axis(tickMinStep=1, tickCount=TICKS)
    title = f"step ({count} evaluations)" if few else "step"
    x = measured(alt.X, "step", title, axis=axis)
    order = [called[name] for name in chosen if name in {*drawn["variant"]}]
    base = alt.Chart(drawn).encode(color=colours("label", order))
    return alt.layer(
        base.mark_area(opacity=0.18).encode(x=x, y=alt.Y("low:Q"), y2="high:Q"),
        base.mark_line(strokeWidth=2, point=few).encode(x=x, y=y),
    )


CHARTS = (_intervals, _levels, _curves, _seeds)
