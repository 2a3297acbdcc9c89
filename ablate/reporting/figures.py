"""Figures of a report: charts as Vega-Lite specifications with their data, and helpers for all charts.

The same specification serves everywhere: the page draws it (its colours are mid-tones, visible on white and
on black; the style sheet sets those of text and lines), and vl-convert renders it to PNG, SVG and PDF.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

COLORS = ("#3b82c4", "#d9730d", "#2e9e6b", "#9467bd", "#d64550", "#178f9e", "#a07040", "#b8559b")
GREY = "#888888"
MANY_COLUMNS = 10  # a heat map with more columns has no room for numbers
_LINE_ENDS = {0x2028: " ", 0x2029: " "}  # Unicode line ends, which strings in Vega expressions must not have
CONFIG: dict[str, Any] = {
    "font": "system-ui, Helvetica, Arial, sans-serif",
    "background": "transparent",
    "view": {"stroke": None},
    "axis": {"labelLimit": 190, "labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal"},
    "axisX": {"labelFlush": True, "labelOverlap": "greedy", "labelSeparation": 8},
    "title": {"anchor": "start", "frame": "bounds", "fontSize": 11, "fontWeight": "normal", "offset": 4},
    "legend": {
        "orient": "bottom",
        "columns": 2,
        "labelLimit": 150,
        "title": None,
        "labelFontSize": 11,
        "symbolOpacity": 1,
    },
}


@dataclass(frozen=True)
class Figure:
    """charts: by the stem of their file names. about: a description of what can be seen, also for readers who
    can't see it. data: the numbers drawn, as a table. first: whether it belongs near the top of a page."""

    key: str
    title: str
    about: str
    charts: dict[str, dict[str, Any]]
    data: pd.DataFrame
    first: bool = False


def legend(labels: Iterable[str]) -> alt.Legend:
    """A legend, in one column if a label is too long for two columns on a phone."""
    return alt.Legend(columns=1, labelLimit=300) if max(map(len, labels)) > 22 else alt.Legend()


def slug(text: str) -> str:
    """A text as part of an HTML id or a file name: letters, digits and hyphens."""
    return re.sub(r"\W+", "-", text.replace("'", "")).strip("-")


def tooltips(data: pd.DataFrame, *columns: str) -> list[alt.Tooltip]:
    return [
        alt.Tooltip(column, type="quantitative", format=_format(data[column]))
        if pd.api.types.is_numeric_dtype(data[column])
        else alt.Tooltip(column, type="nominal")
        for column in columns
    ]


def _format(column: pd.Series) -> str:
    return (
        ",d"
        if pd.api.types.is_integer_dtype(column)
        else ".4~g"
        if column.name in ("lr", "p_holm")
        else ".4f"
    )


def spec(chart: Any, height: int, title: str = "") -> dict[str, Any]:
    """The specification as plain data, without a width. title: what the labels of the rows mean."""
    sized = chart.properties(
        height=height,
        **({"title": title} if title else {}),
        autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
    )
    with alt.data_transformers.enable("default", max_rows=None):
        text = json.dumps(sized.to_dict(), ensure_ascii=False).translate(_LINE_ENDS)
    return {**json.loads(text), "config": CONFIG}


def curves(
    data: pd.DataFrame, label: Callable[[str], str], chosen: Sequence[str], at: str, x: str, y: str
) -> Any:
    """A chart of `mean` over the whole numbers in the column `at`, one line per variant, with a band from low
    to high if there are such columns. The chosen variants are coloured, the others grey. x, y: titles of the
    axes. label: gives the short name of a variant."""
    drawn = data.round({"mean": 5, "low": 5, "high": 5}).assign(label=[label(v) for v in data["variant"]])
    whole = alt.X(f"{at}:Q", title=x, scale=alt.Scale(zero=False), axis=alt.Axis(tickMinStep=1))
    shown = [column for column in ("variant", at, "mean", "low", "high", "n") if column in drawn]
    axes = {"x": whole, "y": alt.Y("mean:Q", title=y, scale=alt.Scale(zero=False))}
    colored = drawn[drawn["variant"].isin(chosen)]
    colored = colored.sort_values([at, "variant"], kind="stable")
    order = [label(name) for name in chosen if name in set(colored["variant"])]
    scale = alt.Scale(domain=order, range=list(COLORS))
    color = alt.Color("label:N", scale=scale, sort=None, legend=legend(order or [""]))
    picked = alt.selection_point(fields=["label"], bind="legend")  # a click on the legend highlights one line
    seen = alt.condition(picked, alt.value(1.0), alt.value(0.12))
    base = alt.Chart(colored).encode(color=color)
    lines = base.mark_line(strokeWidth=2, point={"size": 40})
    lines = lines.encode(**axes, opacity=seen, tooltip=tooltips(drawn, *shown)).add_params(picked)
    layers = [lines]
    if "low" in drawn:
        layers.insert(0, base.mark_area(opacity=0.18).encode(x=whole, y=alt.Y("low:Q"), y2="high:Q"))
    others = drawn[~drawn["variant"].isin(chosen)]
    if len(others):
        few = drawn[at].nunique() < 2
        grey = alt.Chart(others).mark_line(color=GREY, opacity=0.45, strokeWidth=1, point=few)
        layers.insert(0, grey.encode(**axes, detail="variant:N", tooltip=tooltips(drawn, *shown)))
    return alt.layer(*layers)


def intervals(base: Any, data: pd.DataFrame, axis: str, title: Any = alt.Undefined) -> list[Any]:
    """A line from low to high for each row, along the axis x or y; none for single seeds, which have no
    interval."""
    if data["low"].isna().all():
        return []
    end: dict[str, Any] = {
        f"{axis}2": "high:Q",
        axis: (alt.X if axis == "x" else alt.Y)("low:Q", title=title),
    }
    return [base.mark_rule(opacity=0.6).encode(**end)]


def heat_map(
    base: Any,
    drawn: pd.DataFrame,
    scheme: Any,
    columns: int,
    *,
    title: str = "",
    domain: tuple[float, float] | None = None,
) -> dict[str, Any]:
    """A heat map of `mean`, with `text` in its cells if there is room."""
    low, high = domain or (float(drawn["mean"].min()), float(drawn["mean"].max()))
    color = alt.Color("mean:Q", scale=alt.Scale(scheme=scheme, domain=[low, high]), legend=None)
    shown = [
        c for c in ("variant", "layer", "rank", "head", "other", "mean", "low", "high", "n") if c in drawn
    ]
    layers = [base.mark_rect().encode(color=color, tooltip=tooltips(drawn, *shown))]
    if columns <= MANY_COLUMNS:
        ink = alt.condition(
            f"datum.mean > {low + 0.7 * (high - low)}", alt.value("white"), alt.value("black")
        )
        layers.append(base.mark_text(fontSize=11).encode(text="text:N", color=ink))
    rows = drawn["row"].nunique() if "row" in drawn else columns
    return spec(alt.layer(*layers), 22 * rows, title)
