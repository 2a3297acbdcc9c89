"""The charts of a report, drawn from the data of its page. No statistics, no torch."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.files.atomic import explained
from ablate.phrases import only_if
from ablate.reporting import factor_charts, head_charts, own_files
from ablate.reporting.figures import (
    COLORS,
    GREY,
    MANY_COLUMNS,
    Figure,
    curves,
    heat_map,
    legend,
    slug,
    spec,
    tooltips,
)
from ablate.reporting.labels import Labels, in_colour
from ablate.reporting.methods import HYPERPARAMETERS
from ablate.reporting.page import Page

VERDICTS = {
    stats.BETTER: "#2e9e6b",
    stats.BETTER_WITHIN: "#6fa83a",
    stats.EQUIVALENT: "#3b82c4",
    stats.UNDECIDED: GREY,
    stats.WORSE_WITHIN: "#d9730d",
    stats.WORSE: "#d64550",
}
SHAPES = ("diamond", "triangle-up", "square", "circle", "triangle-down", "cross")
WIDTH = 640  # of charts in files; in the page the width follows the window


def figures(page: Page) -> list[Figure]:
    """The figures of a page, in reading order."""
    found = [figure for part in (_intervals, _curves, _rates) for figure in part(page)]
    found += [*factor_charts.figures(page), *_weights(page)]
    if page.heads is not None:
        found += head_charts.figures(page.heads, Labels(page.comparison), in_colour(page.comparison))
    return found


def save(drawn: Sequence[Figure], directory: Path) -> None:
    """Write each chart as PNG, SVG and PDF. Raises ConfigError before writing any if one can't be written."""
    import vl_convert

    formats: dict[str, Callable[[str], str | bytes]] = {
        "png": lambda spec: vl_convert.vegalite_to_png(spec, scale=2),
        "svg": vl_convert.vegalite_to_svg,
        "pdf": vl_convert.vegalite_to_pdf,
    }
    with explained(directory):
        directory.mkdir(exist_ok=True)
    charts = {
        directory / f"{stem}.{format}": (chart, format)
        for figure in drawn
        for stem, chart in figure.charts.items()
        for format in formats
    }
    for path, (_, format) in charts.items():
        own_files.check_file(path, format)
    for path, (chart, format) in charts.items():
        content = formats[format](json.dumps({**chart, "width": WIDTH, "background": "white"}))
        data = content.encode() if isinstance(content, str) else content
        own_files.write(path, own_files.marked(data, format), format)


# --- each figure ----------------------------------------------------------------------------------


def _intervals(page: Page) -> Iterator[Figure]:
    """The difference of each variant to its baseline, one row per variant."""
    comparison = page.comparison
    ends = comparison.table[["low", "high"]].to_numpy(float)
    reach = [*ends[np.isfinite(ends)], *(m for m in (-comparison.margin, comparison.margin) if m == m), 0.0]
    same = alt.Scale(domain=[min(reach), max(reach)], nice=True)  # the same in all families
    for family in comparison.families:
        table = comparison.family(family)
        table = table[table["low"].notna()]
        if table.empty:
            continue
        label = Labels(comparison)
        data = table[["variant", "baseline", "pairs", "diff", "low", "high", "p_holm", "verdict"]]
        drawn = data.assign(label=[label(name) for name in data["variant"]])
        y = alt.Y("label:N", sort=None, title=None, axis=alt.Axis(grid=False))
        seen = [verdict for verdict in VERDICTS if verdict in set(data["verdict"])]
        domain = alt.Scale(domain=seen, range=[VERDICTS[verdict] for verdict in seen])
        shapes = alt.Scale(domain=seen, range=[SHAPES[[*VERDICTS].index(verdict)] for verdict in seen])
        color = alt.Color("verdict:N", scale=domain)
        tip = tooltips(drawn, "variant", "baseline", "pairs", "diff", "low", "high", "p_holm", "verdict")
        base = alt.Chart(drawn).encode(y=y, tooltip=tip)
        x_title = f"difference in {comparison.metric} to the baseline"
        band = pd.DataFrame([{"from": -comparison.margin, "to": comparison.margin}])
        chart = alt.layer(
            alt.Chart(band).mark_rect(opacity=0.18, color=GREY).encode(x="from:Q", x2="to:Q"),
            alt.Chart(pd.DataFrame([{"zero": 0}]))
            .mark_rule(color=GREY, strokeDash=[3, 3])
            .encode(x="zero:Q"),
            base.mark_rule(strokeWidth=2).encode(
                x=alt.X("low:Q", title=x_title, scale=same), x2="high:Q", color=color
            ),
            base.mark_point(filled=True, size=60, opacity=1).encode(
                x="diff:Q", color=color, shape=alt.Shape("verdict:N", scale=shapes)
            ),
        )
        level = f"{100 * (1 - comparison.alpha):g} %"
        yield Figure(
            f"intervals-{slug(family)}",
            f"Differences to the baseline, {family}",
            f"Points: differences to the baseline; lines: simultaneous {level} intervals; grey band: the"
            f" margin of ±{comparison.margin:g}, too small to matter. Left of zero the variant has the lower"
            f" {comparison.metric}.",
            {f"intervals-{slug(family)}": spec(chart, 17 * len(drawn), label.title)},
            data,
            first=family == comparison.families[0],
        )


def _curves(page: Page) -> Iterator[Figure]:
    """Validation loss over steps; the most important variants in colour, the others in grey."""
    data = page.curves
    if data.empty:
        return
    chosen = in_colour(page.comparison)
    others = data[~data["variant"].isin(chosen)]
    which = "those of the primary contrasts" if len(page.comparison.family("primary")) else "the best"
    rest = f" In colour: {which}; in grey: the {others['variant'].nunique()} others." if len(others) else ""
    yield Figure(
        "curves",
        "Loss over the training",
        f"Validation loss at each evaluation: mean over seeds, band from the lowest to the highest.{rest}",
        {"curves": spec(curves(data, Labels(page.comparison).full, chosen, "step", "step", "val_loss"), 300)},
        data,
        first=True,
    )


def _rates(page: Page) -> Iterator[Figure]:
    """Loss against the tuned key, or against the learning rate."""
    data = page.rates
    if data.empty:
        return
    comparison = page.comparison
    column, metric = page.tuned or "lr", page.rate_metric
    words = "learning rate" if column == "lr" else HYPERPARAMETERS.get(column, column)
    label = Labels(comparison, without=column)
    there = {*data["variant"]}
    # Best first, as in the other charts, so that variants keep their colours.
    order = [name for name in dict.fromkeys([*label.variants, *data["variant"]]) if name in there]
    drawn = data.assign(label=[label(name) for name in data["variant"]])
    phases = drawn["phase"].nunique() > 1
    grid = drawn[drawn["phase"] != "report"] if phases else drawn
    ticks = sorted(set(grid[column].astype(float)))
    axis = alt.Axis(format="~g", values=ticks if len(ticks) <= MANY_COLUMNS else alt.Undefined)
    x = alt.X(f"{column}:Q", title=words, scale=alt.Scale(type="log", nice=False), axis=axis)
    color = (
        alt.Color(
            "label:N",
            sort=[label(name) for name in order],
            scale=alt.Scale(range=list(COLORS)),
            legend=legend(drawn["label"]),
        )
        if len(order) <= len(COLORS)
        else alt.value(GREY)
    )
    tip = ("variant", "phase", column, "mean", "low", "high", "n")
    finite, lost = drawn[drawn["diverged"] == 0], drawn[drawn["diverged"] > 0]
    base = alt.Chart(finite).encode(x=x, color=color, tooltip=tooltips(finite, *tip))
    y = alt.Y("mean:Q", title=metric, scale=alt.Scale(zero=False))
    dash: dict[str, Any] = {"detail": "variant:N"}
    shape: dict[str, Any] = {}
    if phases:  # one legend, that of the points, is enough for both
        dash = {"strokeDash": alt.StrokeDash("phase:N", legend=None)}
        shape = {"shape": alt.Shape("phase:N", legend=alt.Legend(symbolFillColor=GREY))}
    layers = [
        base.mark_rule(opacity=0.5).encode(y=alt.Y("low:Q"), y2="high:Q"),
        base.mark_line().encode(y=y, **dash),
        base.mark_point(filled=True, size=45, opacity=1).encode(y=y, **shape),
    ]
    about = (
        f"Mean {metric} over seeds at each {words} (logarithmic), line from the lowest to the highest seed."
    )
    if len(lost):
        gone = alt.Chart(lost).mark_point(shape="triangle-up", size=70, opacity=1)
        lines = tooltips(lost, "variant", "phase", column, "n", "diverged")
        layers.append(gone.encode(x=x, y=alt.value(6), color=color, tooltip=lines))
        about += " Open triangles at the top: seeds diverged there, so that there is no mean."
    hidden = [*only_if(not phases, "phase"), *only_if(lost.empty, "diverged")]
    yield Figure(
        "rates",
        f"Loss against {words}",
        about,
        {"rates": spec(alt.layer(*layers), 280)},
        data.drop(columns=hidden),
    )


def _weights(page: Page) -> Iterator[Figure]:
    """Learned weights: one row per variant and layer, one column per head."""
    data = page.weights
    if data.empty:
        return
    label = Labels(page.comparison, among=data["variant"])
    drawn = data.assign(
        row=[
            label.join(label(name), f"layer {layer}")
            for name, layer in zip(data["variant"], data["layer"], strict=True)
        ],
        text=[f"{mean:.2f}" for mean in data["mean"]],
    )
    base = alt.Chart(drawn).encode(
        x=alt.X("head:O", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("row:N", sort=None, title=None),
    )
    title = label.join(label.title, "layer")
    yield Figure(
        "weights",
        "Learned fusion weights",
        "The weight of each head at the end of the training, mean over seeds; the darker, the larger.",
        {"weights": heat_map(base, drawn, "purples", data["head"].max(), title=title)},
        data,
    )
