"""The charts of results against factors and costs, each a function from the page to its figures.

A new chart is a function that is named in CHARTS.
"""

import json
from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from ablate.analysis.frames import as_texts, with_options
from ablate.analysis.variant import names
from ablate.analysis.variants import USABLE, mean_interval
from ablate.reporting.figures import (
    COLORS,
    GREY,
    TICKS,
    Figure,
    Labels,
    colours,
    graded,
    heat_map,
    measured,
    over_runs,
    ranges,
    slug,
    spec,
    tooltips,
)
from ablate.reporting.page import Page
from ablate.store.columns import column_named

LEVELS = 3  # a numeric factor needs this many levels for a curve
FACTOR = 4.0  # if the largest level is this many times the smallest, the axis is logarithmic


def _against(page: Page) -> Iterator[Figure]:
    """Means with intervals over each numeric factor, one line for each combination of the other factors."""
    comparison, tuned = page.comparison, page.subject.record.tuned_column
    table = comparison.table.drop_duplicates("variant")
    for column in comparison.shown:
        levels = pd.to_numeric(table[column], errors="coerce")
        if column == tuned or levels.nunique() < LEVELS:
            continue
        label = Labels(comparison, without=column)
        data = mean_interval(table.assign(**{column: levels}).dropna(subset=column))
        data["line"] = [label.full(name) for name in data["variant"]]
        data = data[[column, "line", "variant", "n", "mean", "low", "high"]].sort_values(["line", column])
        words, lines = column_named(column).words, [*data["line"].unique()]
        few = 1 < len(lines) <= len(COLORS)
        drawn = data.round({"mean": 5, "low": 5, "high": 5})
        look: dict[str, Any] = {"color": colours("line", lines)} if few else {"detail": "line:N"}
        low, high = levels.min(), levels.max()
        x = graded(column, data[column], words, log=low > 0 and high / low >= FACTOR)
        y = measured(alt.Y, "mean", comparison.metric)
        tip = tooltips(drawn, "variant", "mean", "low", "high", "n")
        base = alt.Chart(drawn).encode(x=x, tooltip=tip, **look)
        chart = alt.layer(
            *ranges(base, drawn, alt.Y, comparison.metric),
            base.mark_line().encode(y=y),
            base.mark_point(filled=True, size=45, opacity=1).encode(y=y),
        )
        yield Figure(
            f"against-{slug(column)}",
            f"{comparison.metric} against {words}",
            f"Mean {comparison.metric} over seeds with its 95 % interval, at each {words}.",
            {f"against-{slug(column)}": spec(chart, 280)},
            data,
        )


def _grid(page: Page) -> Iterator[Figure]:
    """Heat maps of the means, heads against the other factors, one for each value of out_proj."""
    comparison, tuned = page.comparison, page.subject.record.tuned_column
    table = comparison.table.drop_duplicates("variant")
    table = table[table["variant"].isin({*names(page.reported, comparison.shown)})]
    if not {"heads", "out_proj"} <= {*comparison.shown} or table["heads"].nunique() < 2 or len(table) < 4:
        return
    rows = [c for c in comparison.shown if c not in ("heads", "out_proj", tuned) and table[c].nunique() > 1]
    if not rows or table.duplicated([*rows, "heads", "out_proj"]).any():
        return
    data = table[[*comparison.shown, "n", "mean", "sd"]].reset_index(drop=True)
    cells = table[["variant", "n", "mean", "sd", "out_proj"]].assign(
        row=table[rows].agg(" · ".join, axis=1), column=table["heads"]
    )
    low, high = float(table["mean"].min()), float(table["mean"].max())
    charts = {
        f"grid-out_proj-{slug(str(level))}": heat_map(
            part.drop(columns="out_proj"),
            "blues",
            f"heads (out_proj={level})",
            title=" · ".join(rows),
            order=sorted(table["heads"].unique(), key=float),
            domain=(low, high) if comparison.higher_is_better else (high, low),
            digits=3,
        )
        for level, part in cells.groupby("out_proj", sort=False)
    }
    about = f"Mean {comparison.metric} over seeds; the darker, the better. Colours are the same in all maps."
    yield Figure("grid", "The grid", about, charts, data)


def _costs(page: Page) -> Iterator[Figure]:
    """The result against the parameters and FLOPs of each variant."""
    metric = page.comparison.metric
    means = mean_interval(page.comparison.table.drop_duplicates("variant"))
    rows = page.reported.assign(
        variant=names(page.reported, page.comparison.shown), out_proj=as_texts(page.reported["out_proj"])
    )
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


def _weights(page: Page) -> Iterator[Figure]:
    """Learned weights: one row per variant and layer, one column per head."""
    shown = page.comparison.shown
    rows = with_options(page.reported)  # of all rows: those with weights may lack an option that others have
    rows = rows[rows["status"].isin(USABLE) & rows["fusion_weights"].notna()]
    rows = rows.sort_values(list(shown), ignore_index=True)
    long = [
        (name, layer, head, weight)
        for name, text in zip(names(rows, shown), rows["fusion_weights"], strict=True)
        for layer, heads in enumerate(_numbers(text), 1)
        for head, weight in enumerate(heads, 1)
    ]
    if not long:
        return
    place = ["variant", "layer", "head"]
    data = over_runs(pd.DataFrame(long, columns=[*place, "weight"]), place, "weight")
    label = Labels(page.comparison, among=data["variant"])
    cells = data.assign(row=label.of_layers(data), column=data["head"])
    yield Figure(
        "weights",
        "Learned fusion weights",
        "The weight of each head at the end of the training, mean over seeds; the darker, the larger.",
        {"weights": heat_map(cells, "purples", "head", title=label.join(label.title, "layer"))},
        data,
    )


def _numbers(text: str) -> list[list[float]]:
    """fusion_weights, layers × heads; empty if the text is anything else."""
    try:
        return [[float(weight) for weight in layer] for layer in json.loads(text)]
    except (ValueError, TypeError, RecursionError):
        return []


CHARTS = (_against, _grid, _costs, _weights)
