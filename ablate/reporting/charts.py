"""The charts of a comparison, each a function from the page to its figures, with its own numbers.

They are means and ranges over seeds, without tests. A new chart is a function that is named in CHARTS.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import Comparison
from ablate.analysis.frames import as_texts, with_options
from ablate.analysis.load import metrics
from ablate.analysis.variant import names, of_rows
from ablate.analysis.variants import USABLE, diverged, mean_interval
from ablate.phrases import lines_if
from ablate.reporting import head_charts
from ablate.reporting.figures import (
    COLORS,
    GREY,
    SPARSE,
    TICKS,
    Figure,
    Labels,
    colours,
    graded,
    in_colour,
    measured,
    over_runs,
    points_joined,
    ranges,
    slug,
    spec,
    tooltips,
)
from ablate.reporting.page import Page
from ablate.reporting.words import confidence
from ablate.store.columns import column_named, on_validation

VERDICTS = {  # their colours and shapes
    stats.BETTER: ("#2e9e6b", "diamond"),
    stats.BETTER_WITHIN: ("#6fa83a", "triangle-up"),
    stats.EQUIVALENT: ("#3b82c4", "square"),
    stats.UNDECIDED: (GREY, "circle"),
    stats.WORSE_WITHIN: ("#d9730d", "triangle-down"),
    stats.WORSE: ("#d64550", "cross"),
    stats.HIGHER: ("#9467bd", "triangle-right"),
    stats.HIGHER_WITHIN: ("#9467bd", "triangle-up"),
    stats.LOWER_WITHIN: ("#178f9e", "triangle-down"),
    stats.LOWER: ("#178f9e", "triangle-left"),
}
ROW, ROOM = 18, 30  # height of a row of differences, and of the room around all
WIDE = 42  # letters of labels for which the axis of a chart in a paper has room
POINTS = 60  # the most points of a curve


def figures(page: Page) -> list[Figure]:
    """The figures of a page, in reading order. Raises ConfigError if the file of probes can't be read."""
    return [figure for chart in (*CHARTS, head_charts.figures) for figure in chart(page)]


def _intervals(page: Page) -> Iterator[Figure]:
    """The difference of each variant to its baseline, one row per variant."""
    comparison, margin = page.comparison, page.comparison.margin
    ends = comparison.table[["low", "high"]].to_numpy(float)
    reach = [*ends[np.isfinite(ends)], *(m for m in (-margin, margin) if m == m), 0.0]
    same = alt.Scale(domain=[min(reach), max(reach)], nice=True)  # the same in all families
    label = Labels(comparison)
    for family in comparison.families:
        table = comparison.family(family)
        data = table[["variant", "baseline", "pairs", "diff", "low", "high", "p_holm", "verdict"]]
        data = data[data["low"].notna()]
        if data.empty:
            continue
        drawn = data.assign(label=[label(name) for name in data["variant"]])
        verdicts = [verdict for verdict in VERDICTS if verdict in {*data["verdict"]}]
        colors = alt.Scale(domain=verdicts, range=[VERDICTS[verdict][0] for verdict in verdicts])
        shapes = alt.Scale(domain=verdicts, range=[VERDICTS[verdict][1] for verdict in verdicts])
        base = alt.Chart(drawn).encode(
            y=alt.Y("label:N", sort=None, title=None, axis=alt.Axis(grid=False)),
            color=alt.Color("verdict:N", scale=colors),
            tooltip=tooltips(drawn, *data.columns),
        )
        x = alt.X(
            "low:Q", title=f"difference in {comparison.metric} to the baseline", scale=same, axis=SPARSE
        )
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
        yield Figure(
            f"intervals-{slug(family)}",
            f"Differences to the baseline, {family}",
            f"Points: differences to the baseline; lines: simultaneous {confidence(comparison)}"
            f" intervals{grey}. Left of zero the variant has the lower {comparison.metric}.",
            {f"intervals-{slug(family)}": spec(chart, ROOM + ROW * len(drawn), label.title)},
            data,
            first=family == comparison.families[0],
        )


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
    others = data[~data["variant"].isin(in_colour(page.comparison))]
    which = "those of the primary contrasts" if len(page.comparison.family("primary")) else "the best"
    count = others["variant"].nunique()
    grey = "the other one" if count == 1 else f"the {count} others"
    rest = f" In colour: {which}; in grey: {grey}." if count else ""
    yield Figure(
        "curves",
        "Loss over the training",
        f"Validation loss at each evaluation: mean over seeds, band from the lowest to the highest.{rest}",
        {"curves": spec(_lines(page.comparison, data), 300)},
        data,
        first=True,
    )


def _lines(comparison: Comparison, data: pd.DataFrame) -> Any:
    """A chart of `mean` over `step`, one line per variant, with a band from low to high. The most important
    variants are coloured, the others grey."""
    label, chosen = Labels(comparison).full, in_colour(comparison)
    drawn = data.round({"mean": 5, "low": 5, "high": 5}).assign(label=[label(v) for v in data["variant"]])
    tip = tooltips(drawn, "variant", "step", "mean", "low", "high", "n")
    axes = {
        "x": measured(alt.X, "step", "step", axis=alt.Axis(tickMinStep=1, tickCount=TICKS)),
        "y": measured(alt.Y, "mean", "val_loss"),
    }
    colored = drawn[drawn["variant"].isin(chosen)].sort_values(["step", "variant"], kind="stable")
    order = [label(name) for name in chosen if name in {*colored["variant"]}]
    picked = alt.selection_point(fields=["label"], bind="legend")  # a click on the legend highlights one line
    opacity = alt.condition(picked, alt.value(1.0), alt.value(0.12))
    base = alt.Chart(colored).encode(color=colours("label", order))
    lines = base.mark_line(strokeWidth=2, point={"size": 40})
    layers = [
        base.mark_area(opacity=0.18).encode(x=axes["x"], y=alt.Y("low:Q"), y2="high:Q"),
        lines.encode(**axes, opacity=opacity, tooltip=tip).add_params(picked),
    ]
    others = drawn[~drawn["variant"].isin(chosen)]
    if len(others):
        few = drawn["step"].nunique() < 2
        grey = alt.Chart(others).mark_line(color=GREY, opacity=0.45, strokeWidth=1, point=few)
        layers.insert(0, grey.encode(**axes, detail="variant:N", tooltip=tip))
    return alt.layer(*layers)


def _thinned(curve: pd.DataFrame) -> pd.DataFrame:
    at = np.unique(np.linspace(0, len(curve) - 1, POINTS).round().astype(int))
    return curve.sort_values("step").iloc[at]


def _rates(page: Page) -> Iterator[Figure]:
    """The loss against the tuned key, or against the learning rate."""
    column, metric = page.subject.record.tuned_column or "lr", on_validation(page.comparison.metric)
    data = _by_value(page.subject.rows, metric, page.comparison.shown, column)
    if data.empty:
        return
    others = [one for one in page.comparison.shown if one != column]
    named = of_rows(page.subject.rows, others)
    words, label = column_named(column).words, Labels(page.comparison, without=column, variants=named)
    drawn = data.assign(label=[label(name) for name in data["variant"]])
    # Best first, as in the other charts, so that variants keep their colours.
    texts = dict.fromkeys([*map(label, page.comparison.table["variant"]), *drawn["label"]])
    order = [text for text in texts if text in {*drawn["label"]}]
    phases = drawn["phase"].nunique() > 1
    grid = drawn[drawn["phase"] != "report"] if phases else drawn
    finite, lost = drawn[drawn["diverged"] == 0], drawn[drawn["diverged"] > 0]
    x = graded(column, grid[column].astype(float), words)
    look: dict[str, Any] = {
        "color": colours("label", order) if len(order) <= len(COLORS) else alt.value(GREY)
    }
    tip = ("variant", "phase", column, "mean", "low", "high", "n")
    base = alt.Chart(finite).encode(x=x, tooltip=tooltips(finite, *tip), **look)
    dash, shape = {"detail": "variant:N"}, {}
    if phases:  # one legend, that of the points, is enough for both
        dash = {"strokeDash": alt.StrokeDash("phase:N", legend=None)}
        shape = {"shape": alt.Shape("phase:N", legend=alt.Legend(symbolFillColor=GREY))}
    layers = points_joined(base, finite, metric, dash, shape)
    about = (
        f"Mean {metric} over seeds at each {words} (logarithmic), line from the lowest to the highest seed."
    )
    if len(lost):
        gone = alt.Chart(lost).mark_point(shape="triangle-up", size=70, opacity=1)
        tip = tooltips(lost, "variant", "phase", column, "n", "diverged")
        layers.append(gone.encode(x=x, y=alt.value(6), tooltip=tip, **look))
        about += " Open triangles at the top: seeds diverged there, so that there is no mean."
    hidden = [*lines_if(not phases, "phase"), *lines_if(lost.empty, "diverged")]
    specs = {"rates": spec(alt.layer(*layers), 280)}
    yield Figure("rates", f"Loss against {words}", about, specs, data.drop(columns=hidden))


def _by_value(rows: pd.DataFrame, metric: str, shown: Sequence[str], column: str) -> pd.DataFrame:
    """The metric by the values of `column`: variant (named without `column`), phase, `column`, mean, low,
    high, n, diverged; empty if all rows have the same value.

    There is no mean if a seed diverged, as a tuned study counts its loss as infinite: a mean over the other
    seeds would be too good.
    """
    rows = with_options(rows)
    result = rows[metric].to_numpy(float)
    usable, lost = rows["status"].isin(USABLE) & np.isfinite(result), diverged(rows, result)
    rows = rows.assign(result=rows[metric].where(usable), lost=lost)[usable | lost]
    if column not in rows or rows[column].nunique() < 2:
        return pd.DataFrame()
    by = ["variant", "phase", column]
    named = rows.assign(
        variant=names(rows, [other for other in shown if other != column]),
        phase=as_texts(rows["phase"]),
    )
    table = over_runs(named, by, "result")
    table["diverged"] = named.groupby(by, sort=False)["lost"].sum().to_numpy()
    table.loc[table["diverged"] > 0, ["mean", "low", "high"]] = np.nan
    return table.sort_values(by, ignore_index=True)


def _seeds(page: Page) -> Iterator[Figure]:
    """One point per run; lines join the runs of one seed."""
    shown, metric = in_colour(page.comparison), page.comparison.metric
    label = Labels(page.comparison, among=shown)
    rows = page.comparison.rows[page.comparison.rows["status"].isin(USABLE)]
    rows = rows[np.isfinite(rows[metric].to_numpy(float))]
    data = pd.DataFrame(
        {"variant": names(rows, page.comparison.shown), "seed": rows["seed"], "value": rows[metric]}
    )
    data = data[data["variant"].isin(shown)]
    if data["variant"].nunique() < 2 or data["seed"].nunique() < 2:
        return
    drawn = data.round({"value": 5}).assign(label=[label(name) for name in data["variant"]])
    order = [label(name) for name in shown if name in {*data["variant"]}]
    axis = alt.Axis(labelAngle=0 if len("  ".join(order)) < WIDE else -35, labelOverlap=False)
    base = alt.Chart(drawn).encode(
        x=alt.X("label:N", sort=order, title=label.title, axis=axis),
        y=measured(alt.Y, "value", metric),
        tooltip=tooltips(drawn, "variant", "seed", "value"),
    )
    points = base.mark_point(filled=True, size=40, opacity=0.9)
    chart = alt.layer(
        base.mark_line(color=GREY, opacity=0.4, strokeWidth=1).encode(detail="seed:N"),
        points.encode(color=colours("label", order, legend=False)),
    )
    about = f"{metric} of each run; a line joins the runs of one seed. Differences are taken along the lines."
    yield Figure("seeds", "Seed by seed", about, {"seeds": spec(chart, 280)}, data)


def _costs(page: Page) -> Iterator[Figure]:
    """The result against the parameters and FLOPs of each variant."""
    metric = page.comparison.metric
    means = mean_interval(page.comparison.table.drop_duplicates("variant"))
    rows = page.comparison.rows
    rows = rows.assign(variant=names(rows, page.comparison.shown), out_proj=as_texts(rows["out_proj"]))
    costs = rows[["variant", "fusion", "out_proj", "params", "flops_per_token"]].drop_duplicates("variant")
    data = means[["variant", "n", "mean", "low", "high"]].merge(costs, on="variant")
    legend = alt.Legend(columns=1, symbolFillColor=GREY, labelExpr="'out_proj ' + datum.label")
    several = data["out_proj"].nunique() > 1
    shape: dict[str, Any] = {"shape": alt.Shape("out_proj:N", legend=legend)} if several else {}
    charts = {}
    for cost, words in (("params", "parameters"), ("flops_per_token", "FLOPs per token, forward")):
        if data[cost].nunique() < 2:
            continue
        base = alt.Chart(data).encode(
            x=measured(alt.X, cost, words, axis=alt.Axis(format="~s", tickCount=TICKS)),
            color=colours("fusion", [*data["fusion"].unique()]),
            tooltip=tooltips(data, "variant", cost, "mean", "n"),
        )
        points = base.mark_point(filled=True, size=60, opacity=0.85)
        points = points.encode(y=measured(alt.Y, "mean", metric), **shape)
        chart = alt.layer(*ranges(base, data, alt.Y, metric), points)
        charts[f"cost-{cost.partition('_')[0]}"] = spec(chart, 260)
    if charts:
        about = (
            f"Mean {metric} with its 95 % interval, against parameters and against forward FLOPs per token; a"
            " point a variant."
        )
        yield Figure("cost", "Cost against result", about, charts, data, first=True)


CHARTS = (_intervals, _curves, _rates, _seeds, _costs)
