"""Charts of results by seed, by numeric factors, over the grid and by cost. No statistics, no torch."""

from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from ablate.analysis.series import mean_interval
from ablate.reporting.figures import (
    COLORS,
    GREY,
    MANY_COLUMNS,
    Figure,
    intervals,
    legend,
    slug,
    spec,
    tooltips,
)
from ablate.reporting.labels import Labels, in_colour
from ablate.reporting.methods import HYPERPARAMETERS
from ablate.reporting.page import Page

LEVELS = 3  # a numeric factor needs this many levels for a curve
FACTOR = 4.0  # if the largest level is this many times the smallest, the axis is logarithmic


def figures(page: Page) -> Iterator[Figure]:
    for part in (_seeds, _against, _grid, _costs):
        yield from part(page)


def _seeds(page: Page) -> Iterator[Figure]:
    """One point per run; lines join the runs of one seed."""
    shown = in_colour(page.comparison)
    label = Labels(page.comparison, among=shown)
    data = page.seeds[page.seeds["variant"].isin(shown)]
    if data["variant"].nunique() < 2 or data["seed"].nunique() < 2:
        return
    drawn = data.round({"value": 5}).assign(label=[label(name) for name in data["variant"]])
    order = [label(name) for name in shown if name in {*data["variant"]}]
    x = alt.X(
        "label:N", sort=order, title=label.title, axis=alt.Axis(labelAngle=0 if len(order) < 5 else -35)
    )
    y = alt.Y("value:Q", title=page.comparison.metric, scale=alt.Scale(zero=False))
    tip = tooltips(drawn, "variant", "seed", "value")
    color = alt.Color("label:N", sort=order, scale=alt.Scale(range=list(COLORS)), legend=None)
    base = alt.Chart(drawn).encode(x=x, y=y, tooltip=tip)
    yield Figure(
        "seeds",
        "Seed by seed",
        f"{page.comparison.metric} of each run; a line joins the runs of one seed. Differences are taken"
        " along the lines.",
        {
            "seeds": spec(
                alt.layer(
                    base.mark_line(color=GREY, opacity=0.4, strokeWidth=1).encode(detail="seed:N"),
                    base.mark_point(filled=True, size=40, opacity=0.9).encode(color=color),
                ),
                280,
            )
        },
        data,
    )


def _against(page: Page) -> Iterator[Figure]:
    """Means with intervals over each numeric factor, one line for each combination of the other factors."""
    comparison = page.comparison
    table = comparison.table.drop_duplicates("variant")
    for column in comparison.shown:
        levels = pd.to_numeric(table[column], errors="coerce")
        if column == page.tuned or levels.nunique() < LEVELS:
            continue
        data = mean_interval(table.assign(**{column: levels}).dropna(subset=column))
        label = Labels(comparison, without=column)
        others = [c for c in label.columns if c != column]
        data["line"] = [
            label.join(*(v if c == "fusion" else f"{c} {v}" for c, v in zip(others, row, strict=True)))
            for row in data[others].itertuples(index=False, name=None)
        ]
        data = data[[column, "line", "variant", "n", "mean", "low", "high"]].sort_values(["line", column])
        words = HYPERPARAMETERS.get(column, column)
        ticks = sorted({*data[column]})
        log = min(ticks) > 0 and max(ticks) / min(ticks) >= FACTOR
        scale = alt.Scale(type="log", base=2, nice=False) if log else alt.Scale(zero=False)
        axis = alt.Axis(format="~g", values=ticks if len(ticks) <= MANY_COLUMNS else alt.Undefined)
        x = alt.X(f"{column}:Q", title=words, scale=scale, axis=axis)
        y = alt.Y("mean:Q", title=comparison.metric, scale=alt.Scale(zero=False))
        lines = data["line"].nunique()
        color = alt.Color(
            "line:N", sort=None, scale=alt.Scale(range=list(COLORS)), legend=legend(data["line"])
        )
        look: dict[str, Any] = {"color": color} if 1 < lines <= len(COLORS) else {"detail": "line:N"}
        drawn = data.round({"mean": 5, "low": 5, "high": 5})
        base = alt.Chart(drawn).encode(
            x=x, tooltip=tooltips(drawn, "variant", "mean", "low", "high", "n"), **look
        )
        yield Figure(
            f"against-{slug(column)}",
            f"{comparison.metric} against {words}",
            f"Mean {comparison.metric} over seeds with its 95 % interval, at each {words}.",
            {
                f"against-{slug(column)}": spec(
                    alt.layer(
                        *intervals(base, drawn, "y"),
                        base.mark_line().encode(y=y),
                        base.mark_point(filled=True, size=45, opacity=1).encode(y=y),
                    ),
                    280,
                )
            },
            data,
        )


def _grid(page: Page) -> Iterator[Figure]:
    """Heat maps of the means, heads against the other factors, one for each value of out_proj."""
    comparison = page.comparison
    table = comparison.table.drop_duplicates("variant")
    table = table[table["variant"].isin(page.costs["variant"])]
    if not {"heads", "out_proj"} <= {*comparison.shown} or table["heads"].nunique() < 2 or len(table) < 4:
        return
    rows = [
        c for c in comparison.shown if c not in ("heads", "out_proj", page.tuned) and table[c].nunique() > 1
    ]
    if not rows or table.duplicated([*rows, "heads", "out_proj"]).any():
        return
    data = table[[*comparison.shown, "n", "mean", "sd"]].reset_index(drop=True)
    drawn = table[["variant", "n", "mean", "sd", "heads", "out_proj"]].assign(
        row=table[rows].agg(" · ".join, axis=1), text=[f"{mean:.3f}" for mean in table["mean"]]
    )
    low, high = float(drawn["mean"].min()), float(drawn["mean"].max())
    charts = {}
    heads = sorted(drawn["heads"].unique(), key=float)
    for level, part in drawn.groupby("out_proj", sort=False):
        x = alt.X("heads:N", sort=heads, title=f"heads (out_proj={level})", axis=alt.Axis(labelAngle=0))
        base = alt.Chart(part.drop(columns="out_proj")).encode(x=x, y=alt.Y("row:N", sort=None, title=None))
        scale = alt.Scale(scheme="blues", domain=[low, high], reverse=comparison.metric.endswith("loss"))
        color = alt.Color("mean:Q", scale=scale, legend=None)
        layers = [base.mark_rect().encode(color=color, tooltip=tooltips(part, "variant", "n", "mean", "sd"))]
        if len(heads) <= MANY_COLUMNS:
            strong = low + 0.28 * (high - low) if scale.to_dict()["reverse"] else high - 0.28 * (high - low)
            sign = "<" if scale.to_dict()["reverse"] else ">"
            ink = alt.condition(f"datum.mean {sign} {strong}", alt.value("white"), alt.value("black"))
            layers.append(base.mark_text(fontSize=11).encode(text="text:N", color=ink))
        charts[f"grid-out_proj-{slug(str(level))}"] = spec(
            alt.layer(*layers), 30 * part["row"].nunique(), " · ".join(rows)
        )
    yield Figure(
        "grid",
        "The grid",
        f"Mean {comparison.metric} over seeds; the darker, the better. Colours are the same in all maps.",
        charts,
        data,
    )


def _costs(page: Page) -> Iterator[Figure]:
    """The result against the parameters and FLOPs of each variant."""
    means = mean_interval(page.comparison.table.drop_duplicates("variant"))
    data = means[["variant", "n", "mean", "low", "high"]].merge(page.costs, on="variant")
    color = alt.Color("fusion:N", scale=alt.Scale(range=list(COLORS)), sort=[*data["fusion"].unique()])
    shapes = alt.Legend(columns=1, symbolFillColor=GREY, labelExpr="'out_proj ' + datum.label")
    encoded: dict[str, Any] = {"shape": alt.Shape("out_proj:N", legend=shapes)}
    if data["out_proj"].nunique() < 2:
        encoded = {}
    y = alt.Y("mean:Q", title=page.comparison.metric, scale=alt.Scale(zero=False))
    charts = {}
    for cost, words in (("params", "parameters"), ("flops_per_token", "FLOPs per token, forward")):
        if data[cost].nunique() < 2:
            continue
        x = alt.X(f"{cost}:Q", title=words, scale=alt.Scale(zero=False), axis=alt.Axis(format="~s"))
        base = alt.Chart(data).encode(x=x, color=color, tooltip=tooltips(data, "variant", cost, "mean", "n"))
        chart = alt.layer(
            *intervals(base, data, "y"),
            base.mark_point(filled=True, size=60, opacity=0.85).encode(y=y, **encoded),
        )
        charts[f"cost-{cost.partition('_')[0]}"] = spec(chart, 260)
    if charts:
        yield Figure(
            "cost",
            "Cost against result",
            f"Mean {page.comparison.metric} with its 95 % interval, against parameters and against forward"
            " FLOPs per token; a point a variant.",
            charts,
            data,
            first=True,
        )
