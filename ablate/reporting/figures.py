"""Figures of a report: charts as Vega-Lite specifications with their data, the parts that charts are made of,
and the names of variants in them.

The same specification serves everywhere: the page draws it (its colours are mid-tones, visible on white and
on black; the style sheet sets those of text and lines), and vl-convert renders it to PNG, SVG and PDF.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from ablate.analysis.compare import Comparison
from ablate.analysis.variant import Variant, varying
from ablate.store.columns import column_named

COLORS = ("#3b82c4", "#d9730d", "#2e9e6b", "#9467bd", "#d64550", "#178f9e", "#a07040", "#b8559b")
GREY = "#888888"
TICKS = alt.ExprRef("max(2, ceil(width / 70))")  # so few that none loses its label
SPARSE = alt.Axis(tickCount=TICKS)
MOST_LABELS = 5.5  # of a numeric factor, on an axis in a column of a paper
MANY_COLUMNS = 10  # a heat map with more columns has no room for numbers
_LINE_ENDS = {0x2028: " ", 0x2029: " "}  # Unicode line ends, which strings in Vega expressions must not have
CONFIG: dict[str, Any] = {
    "font": "system-ui, Helvetica, Arial, sans-serif",
    "background": "transparent",
    "view": {"stroke": None},
    "axis": {"labelLimit": 190, "labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal"},
    "text": {"fontSize": 11},
    "axisX": {"labelFlush": False, "labelOverlap": "greedy", "labelSeparation": 8},
    "title": {"anchor": "start", "frame": "bounds", "fontSize": 11, "fontWeight": "normal", "offset": 4},
    "legend": {
        "orient": "bottom",
        "columns": 2,
        "layout": {"bottom": {"direction": "vertical", "anchor": "start"}},
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


def over_runs(values: pd.DataFrame, by: Sequence[str], column: str = "value") -> pd.DataFrame:
    """For each group of runs the mean of a column; low and high, the lowest and the highest run; and n."""
    groups = values.groupby([*by], sort=False)[column]
    return groups.agg(mean="mean", low="min", high="max", n="count").reset_index()


# --- parts of charts -------------------------------------------------------------------------------------


def measured(channel: Any, column: str, title: str, **more: Any) -> Any:
    """An axis (alt.X or alt.Y) of measured numbers, which need not begin at 0. title: words, or a metric."""
    return channel(f"{column}:Q", title=column_named(title).words, scale=alt.Scale(zero=False), **more)


def graded(column: str, levels: Iterable[float], title: str, *, log: bool, format: str = "~g") -> alt.X:
    """The axis of a numeric factor, with a tick at each level for which there is room."""
    axis = alt.Axis(format=format, values=_apart(sorted({*levels}), log=log), labelOverlap=False)
    scale = alt.Scale(type="log", nice=False) if log else alt.Scale(zero=False)
    return alt.X(f"{column}:Q", title=title, scale=scale, axis=axis)


def _apart(levels: Sequence[float], *, log: bool) -> list[float]:
    """The levels, of these ascending ones, that lie far enough apart for their labels."""
    place = math.log if log else float
    least = (place(levels[-1]) - place(levels[0])) / MOST_LABELS
    kept = [levels[0]]
    for level in levels[1:]:
        if place(level) - place(kept[-1]) >= least:
            kept.append(level)
    return kept


def colours(column: str, order: Sequence[str], *, legend: bool = True) -> alt.Color:
    """A colour for each text, with a legend: of one column if a text is too long for two on a phone."""
    long = max(map(len, order), default=0) > 22
    shown = alt.Legend(columns=1, labelLimit=300) if long else alt.Legend()
    scale = alt.Scale(domain=[*order], range=list(COLORS))
    return alt.Color(f"{column}:N", scale=scale, sort=None, legend=shown if legend else None)


def ranges(base: Any, data: pd.DataFrame, channel: Any, title: str) -> list[Any]:
    """A line from low to high for each row along an axis (alt.X or alt.Y); none if all rows are of single
    seeds, which have no interval. title: as of `measured`, since Vega-Lite joins titles that differ."""
    name = channel.__name__.lower()
    ends: dict[str, Any] = {name: channel("low:Q", title=column_named(title).words), f"{name}2": "high:Q"}
    return [base.mark_rule(opacity=0.6).encode(**ends)] if data["low"].notna().any() else []


def points_joined(
    base: Any, data: pd.DataFrame, metric: str, line: Mapping[str, Any] = {}, point: Mapping[str, Any] = {}
) -> list[Any]:
    """Points at `mean` with their ranges, joined by lines. line, point: further encodings of each."""
    y = measured(alt.Y, "mean", metric)
    return [
        *ranges(base, data, alt.Y, metric),
        base.mark_line().encode(y=y, **line),
        base.mark_point(filled=True, size=45, opacity=1).encode(y=y, **point),
    ]


def curves(comparison: Comparison, data: pd.DataFrame, at: str, x: str, y: str) -> Any:
    """A chart of `mean` over the whole numbers in the column `at`, one line per variant, with a band from low
    to high. The most important variants are coloured, the others grey. x, y: titles of the axes."""
    label, chosen = Labels(comparison).full, in_colour(comparison)
    drawn = data.round({"mean": 5, "low": 5, "high": 5}).assign(label=[label(v) for v in data["variant"]])
    tip = tooltips(drawn, "variant", at, "mean", "low", "high", "n")
    axes = {
        "x": measured(alt.X, at, x, axis=alt.Axis(tickMinStep=1, tickCount=TICKS)),
        "y": measured(alt.Y, "mean", y),
    }
    colored = drawn[drawn["variant"].isin(chosen)].sort_values([at, "variant"], kind="stable")
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
        few = drawn[at].nunique() < 2
        grey = alt.Chart(others).mark_line(color=GREY, opacity=0.45, strokeWidth=1, point=few)
        layers.insert(0, grey.encode(**axes, detail="variant:N", tooltip=tip))
    return alt.layer(*layers)


def heat_map(
    cells: pd.DataFrame,
    scheme: Any,
    across: str,
    down: str | None = None,
    *,
    value: str = "mean",
    title: str = "",
    order: Sequence[str] | None = None,
    domain: tuple[float, float] | None = None,
    digits: int = 2,
    height: int = 22,
    **axis: Any,
) -> dict[str, Any]:
    """A heat map of `value` by `column` and `row`, with numbers in its cells if there is room.

    across, down: titles of the axes. order: of the columns. domain: the lightest and the darkest value, by
    default the lowest and the highest. height: of a cell. axis: further properties of both axes.
    """
    light, dark = domain or (float(cells[value].min()), float(cells[value].max()))
    about = [c for c in ("variant", "layer", "rank", "head", "other", "query", "key") if c in cells]
    tip = tooltips(cells, *about, value, *(c for c in ("low", "high", "sd", "n") if c in cells))
    base = alt.Chart(cells.assign(text=cells[value].map(f"{{:.{digits}f}}".format))).encode(
        x=alt.X("column:N", sort=order, title=across, axis=alt.Axis(**{"labelAngle": 0, **axis})),
        y=alt.Y("row:N", sort=None, title=down, axis=alt.Axis(**axis)),
    )
    scale = alt.Scale(scheme=scheme, domain=[light, dark])
    layers = [base.mark_rect().encode(color=alt.Color(f"{value}:Q", scale=scale, legend=None), tooltip=tip)]
    if cells["column"].nunique() <= MANY_COLUMNS and height >= 20:
        is_dark = f"(datum.{value} - {light}) / {dark - light} > 0.7"
        ink = alt.condition(is_dark, alt.value("white"), alt.value("black"))
        layers.append(base.mark_text().encode(text="text:N", color=ink))
    return spec(alt.layer(*layers), height * cells["row"].nunique(), title)


# --- names of variants -----------------------------------------------------------------------------------


class Labels:
    """Names variants by their arms or the levels of the varying columns. title: the names of these columns.

    without: a column to leave out, and then arms have no names. among: the names of the variants in the
    chart; by default all. variants: by name, if not those of the comparison.
    """

    def __init__(
        self,
        comparison: Comparison,
        *,
        without: str = "",
        among: Iterable[str] | None = None,
        variants: Mapping[str, Variant] | None = None,
    ) -> None:
        self.variants = {**comparison.variants, **(variants or {})}
        among = {*comparison.variants} if among is None else {*among}
        drawn = [variant for name, variant in comparison.variants.items() if name in among]
        self.named = Variant.label if without else Variant.title
        self.columns = [column for column in varying(drawn) if column != without]
        self.title = self.join(*self.columns)

    def __call__(self, variant: str) -> str:
        return self.named(self.variants[variant], self.columns, between=" · ", pattern="{1}")

    def full(self, variant: str) -> str:
        """A name such as `sum · heads 4`, for charts in which no axis says what the numbers are."""
        return self.named(self.variants[variant], self.columns, between=" · ", pattern="{} {}")

    def of_layers(self, data: pd.DataFrame) -> list[str]:
        """A name such as `sum · layer 1` for each row, by its variant and its layer."""
        pairs = zip(data["variant"], data["layer"], strict=True)
        return [self.join(self(variant), layer_name(layer)) for variant, layer in pairs]

    @staticmethod
    def join(*parts: str) -> str:
        return " · ".join(part for part in parts if part)


def layer_name(layer: object) -> str:
    """The name of a layer in charts, as `layer 1` or `cross 1`."""
    return f"layer {layer}" if str(layer).isdecimal() else str(layer)


def in_colour(comparison: Comparison) -> list[str]:
    """The variants drawn in colour: those of the primary contrasts, else the best."""
    primary = comparison.family("primary")
    table = primary if len(primary) else comparison.table
    return list(dict.fromkeys(table["variant"]))[: len(COLORS)]
