"""The charts of a comparison, each a function from the page to its figures, with its own numbers. A new chart
is a function that is named in CHARTS."""

from collections.abc import Iterator
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from scipy.special import stdtrit

from ablate.analysis import stats
from ablate.analysis.compare import Comparison
from ablate.analysis.finding import Finding
from ablate.analysis.load import metrics
from ablate.analysis.variant import names
from ablate.analysis.variants import USABLE
from ablate.reporting import head_charts
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
    over_runs,
    ranges,
    spec,
)
from ablate.reporting.page import Page

VERDICTS = {  # their colours and shapes
    stats.BETTER: ("#2e9e6b", "diamond"),
    stats.EQUIVALENT: ("#3b82c4", "square"),
    stats.UNDECIDED: (GREY, "circle"),
    stats.WORSE: ("#d64550", "cross"),
}
ROW, ROOM = 18, 30  # height of a row of differences, and of the room around all
POINTS = 40  # the most points of a curve


def figures(page: Page) -> list[Figure]:
    """The figures of a page, in reading order. Raises ConfigError if the file of probes can't be read."""
    return [figure for chart in (*CHARTS, head_charts.figures) for figure in chart(page)]


def _intervals(page: Page) -> Iterator[Figure]:
    """The difference of each variant to its baseline, one row per contrast; of the planned ones or, without
    any, of all."""
    comparison, margin = page.comparison, page.comparison.margin
    tested = comparison.tested
    if not tested:
        return
    several = len({one.baseline.name for one in tested}) > 1
    data = pd.DataFrame(
        {
            "label": _called(comparison, one, several),
            **{name: getattr(one, name) for name in ("diff", "low", "high", "verdict")},
        }
        for one in tested
    )
    verdicts = [verdict for verdict in VERDICTS if verdict in {*data["verdict"]}]
    colors, shapes = (
        alt.Scale(domain=verdicts, range=[VERDICTS[verdict][at] for verdict in verdicts]) for at in (0, 1)
    )
    base = alt.Chart(data).encode(
        y=alt.Y("label:N", sort=None, title=None, axis=alt.Axis(grid=False)),
        color=alt.Color("verdict:N", scale=colors),
    )
    x = alt.X("low:Q", title=f"difference in {comparison.metric} to the baseline", axis=SPARSE)
    band = pd.DataFrame([{"from": -margin, "to": margin}] if margin > 0 else [], columns=["from", "to"])
    zero = pd.DataFrame([{"zero": 0}])
    grey = f"; grey band: the margin of ±{margin:g}, too small to matter" if margin > 0 else ""
    chart = alt.layer(
        alt.Chart(band).mark_rect(opacity=0.18, color=GREY).encode(x="from:Q", x2="to:Q"),
        alt.Chart(zero).mark_rule(color=GREY, strokeDash=[3, 3]).encode(x="zero:Q"),
        base.mark_rule(strokeWidth=2).encode(x=x, x2="high:Q"),
        base.mark_point(filled=True, size=60, opacity=1).encode(
            x="diff:Q", shape=alt.Shape("verdict:N", scale=shapes)
        ),
    )
    to = f" to {label(comparison, tested[0].baseline.name)}" if not several else ""
    key = f"intervals-{'planned' if tested[0].is_planned else 'exploratory'}"
    yield Figure(
        key,
        "Differences to the baseline",
        f"Points: differences{to}; lines: their intervals, which hold together{grey}.",
        {key: spec(chart, ROOM + ROW * len(data))},
        data,
    )


def _called(comparison: Comparison, one: Finding, several: bool) -> str:
    of = one.both[: 1 + several]
    return one.name if one.is_sum else " − ".join(label(comparison, side.name) for side in of)


def _seeds(page: Page) -> Iterator[Figure]:
    """The difference of each pair, one row per contrast."""
    tested = [one for one in page.comparison.tested if one.pairs is not None]
    several = len({one.baseline.name for one in tested}) > 1
    data = pd.DataFrame(
        {"label": _called(page.comparison, one, several), "difference": value}
        for one in tested
        for value in one.differences.tolist()
        if value == value
    )
    if data.empty:
        return
    points = alt.Chart(data).mark_point(filled=True, size=30, opacity=0.6, color=COLORS[0])
    x = alt.X("difference:Q", title=f"difference in {page.comparison.metric} of each pair", axis=SPARSE)
    points = points.encode(y=alt.Y("label:N", sort=None, title=None), x=x)
    zero = alt.Chart(pd.DataFrame([{"zero": 0}])).mark_rule(color=GREY, strokeDash=[3, 3]).encode(x="zero:Q")
    about = "A point for each pair of runs of one seed: how far differences scatter."
    height = ROOM + ROW * len(tested)
    yield Figure(
        "seeds", "Differences of pairs", about, {"seeds": spec(alt.layer(zero, points), height)}, data
    )


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
    rows = page.comparison.summary.set_index("variant").loc[[*sides]]
    half = -stdtrit(rows["n"] - 1, stats.ALPHA / 2) * rows["sd"] / rows["n"] ** 0.5
    ends = {"mean": rows["mean"], "low": rows["mean"] - half, "high": rows["mean"] + half}
    data = (
        pd.DataFrame(ends)
        .reset_index(drop=True)
        .assign(
            level=[one.label([c for c in apart if c not in one.difference]) for one, apart in sides.values()],
            difference=[one.label(one.difference) for one, _ in sides.values()],
        )
    )
    title = f"difference in {page.comparison.metric}"
    base = alt.Chart(data).encode(
        x=alt.X("level:N", sort=None, title=None, axis=alt.Axis(labelAngle=0)),
        color=colours("difference", [*dict.fromkeys(data["difference"])]),
        xOffset="difference:N",
    )
    points = base.mark_point(filled=True, size=60, opacity=1).encode(y=measured(alt.Y, "mean", title))
    about = "Each difference at each level: mean over seeds, with a 95 % interval of its own."
    chart = spec(alt.layer(*ranges(base, data, alt.Y, title), points), 200)
    yield Figure("levels", "Is a difference the same?", about, {"levels": chart}, data)


def _curves(page: Page) -> Iterator[Figure]:
    """The validation loss by step; the most important variants in colour, the others in grey."""
    rows = page.comparison.rows[page.comparison.rows["status"].isin(USABLE)]
    variant = dict(zip(rows["run_id"], names(rows, page.comparison.shown), strict=True))
    losses = metrics(page.subject.directories)
    losses = losses.assign(variant=losses["run_id"].map(variant)).dropna(subset="variant")
    table = over_runs(losses, ["variant", "step"], "val_loss")
    complete = table[table["n"] == table.groupby("variant")["n"].transform("max")]
    if complete.empty:
        return
    thinned = [_thinned(curve) for _, curve in complete.groupby("variant", sort=False)]
    data = pd.concat(thinned, ignore_index=True)
    others = data[~data["variant"].isin(in_colour(page.comparison))]["variant"].nunique()
    grey = f"; in grey: {'another one' if others == 1 else f'{others} others'}" if others else ""
    yield Figure(
        "curves",
        "Loss over the training",
        f"Validation loss at each evaluation: mean over seeds, band from the lowest to the highest{grey}.",
        {"curves": spec(_lines(page.comparison, data), 300)},
        data,
    )


def _lines(comparison: Comparison, data: pd.DataFrame) -> Any:
    """A chart of `mean` over `step`, one line per variant, with a band from low to high. The most important
    variants are coloured, the others grey."""
    chosen = in_colour(comparison)
    called = {name: label(comparison, name, "{} {}") for name in comparison.variants}
    drawn = data.round({"mean": 4, "low": 4, "high": 4}).assign(label=data["variant"].map(called))
    axes = {
        "x": measured(alt.X, "step", "step", axis=alt.Axis(tickMinStep=1, tickCount=TICKS)),
        "y": measured(alt.Y, "mean", "val_loss"),
    }
    colored = drawn[drawn["variant"].isin(chosen)].sort_values(["step", "variant"], kind="stable")
    order = [called[name] for name in chosen if name in {*colored["variant"]}]
    base = alt.Chart(colored).encode(color=colours("label", order))
    layers = [
        base.mark_area(opacity=0.18).encode(x=axes["x"], y=alt.Y("low:Q"), y2="high:Q"),
        base.mark_line(strokeWidth=2, point=drawn["step"].nunique() < 2).encode(**axes),
    ]
    others = drawn[~drawn["variant"].isin(chosen)]
    if len(others):
        few = drawn["step"].nunique() < 2
        grey = alt.Chart(others).mark_line(color=GREY, opacity=0.45, strokeWidth=1, point=few)
        layers.insert(0, grey.encode(**axes, detail="variant:N"))
    return alt.layer(*layers)


def _thinned(curve: pd.DataFrame) -> pd.DataFrame:
    at = np.unique(np.linspace(0, len(curve) - 1, POINTS).round().astype(int))
    return curve.sort_values("step").iloc[at]


CHARTS = (_intervals, _levels, _curves, _seeds)
