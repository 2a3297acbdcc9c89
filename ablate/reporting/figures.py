"""Figures of a report: charts as Vega-Lite specifications with their data, the parts that charts are made of,
and the names of variants in them.

The same specification serves everywhere: the page draws it (its colours are mid-tones, visible on white and
on black; the style sheet sets those of text and lines), and vl-convert renders it to PNG, SVG and PDF.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from ablate.analysis.compare import Comparison
from ablate.analysis.variant import Variant, varying
from ablate.files.atomic import write_atomically
from ablate.store.columns import column_named

COLORS = ("#3b82c4", "#d9730d", "#2e9e6b", "#9467bd", "#d64550", "#178f9e", "#a07040", "#b8559b")
GREY = "#888888"
TICKS = alt.ExprRef("max(2, ceil(width / 70))")  # so few that none loses its label
SPARSE = alt.Axis(tickCount=TICKS)
MOST_LABELS = 5.5  # of a numeric factor, on an axis in a column of a paper
MANY_COLUMNS = 10  # a heat map with more columns has no room for numbers
POINTS_AN_INCH, DOTS_AN_INCH = 72, 300
COLUMN = (
    3.3 * POINTS_AN_INCH
)  # width of charts in files: a column of a paper; in a page it follows the window
LOWER = 0.7  # the height of a chart in a file, times that in a page, as its text is smaller
PAPER_SIZES = {  # of text in points; labelLimit: the longest label
    **dict.fromkeys(("labelFontSize", "titleFontSize", "fontSize"), 8),
    "labelLimit": 110,
}
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


def graded(column: str, levels: Iterable[float], title: str) -> alt.X:
    """The logarithmic axis of a numeric factor, with a tick at each level for which there is room."""
    axis = alt.Axis(format="~g", values=_apart(sorted({*levels})), labelOverlap=False)
    return alt.X(f"{column}:Q", title=title, scale=alt.Scale(type="log", nice=False), axis=axis)


def _apart(levels: Sequence[float]) -> list[float]:
    """The levels, of these ascending ones, that lie far enough apart for their labels."""
    least = math.log(levels[-1] / levels[0]) / MOST_LABELS
    kept = [levels[0]]
    for level in levels[1:]:
        if math.log(level / kept[-1]) >= least:
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


def heat_map(cells: pd.DataFrame, scheme: Any, across: str) -> dict[str, Any]:
    """A heat map of `mean` by `column` and `row`, with numbers in its cells if there is room. across: what
    stands below the columns."""
    light, dark = float(cells["mean"].min()), float(cells["mean"].max())
    tip = tooltips(cells, "variant", "layer", "rank", "mean", "low", "high", "n")
    base = alt.Chart(cells.assign(text=cells["mean"].map("{:.2f}".format))).encode(
        x=alt.X("column:N", title=across, axis=alt.Axis(labelAngle=0)),
        y=alt.Y("row:N", sort=None, title=None),
    )
    scale = alt.Scale(scheme=scheme, domain=[light, dark])
    layers = [base.mark_rect().encode(color=alt.Color("mean:Q", scale=scale, legend=None), tooltip=tip)]
    if cells["column"].nunique() <= MANY_COLUMNS:
        is_dark = f"(datum.mean - {light}) / {dark - light} > 0.7"
        ink = alt.condition(is_dark, alt.value("white"), alt.value("black"))
        layers.append(base.mark_text().encode(text="text:N", color=ink))
    return spec(alt.layer(*layers), 22 * cells["row"].nunique())


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


# --- files for papers ------------------------------------------------------------------------------------


def write_charts(specs: Mapping[str, Mapping[str, Any]], directory: Path) -> None:
    """Write each chart, given by the stem of its file, as PNG, SVG and PDF, as wide as a column of a paper,
    with labels of 8 pt. Raises StoreError."""
    import vl_convert

    formats: dict[str, Callable[[str], str | bytes]] = {
        "png": lambda spec: vl_convert.vegalite_to_png(spec, ppi=DOTS_AN_INCH),
        "svg": lambda spec: _in_points(vl_convert.vegalite_to_svg(spec)),
        "pdf": vl_convert.vegalite_to_pdf,
    }
    for stem, spec in specs.items():
        for_paper = json.dumps(_in_a_column(spec))
        for format, convert in formats.items():
            write_atomically(directory / f"{stem}.{format}", convert(for_paper))


def _in_a_column(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A chart at the width of a column of a paper, its text in 8 pt."""
    config = {
        part: {key: PAPER_SIZES.get(key, value) for key, value in values.items()}
        if isinstance(values, dict)
        else values
        for part, values in spec["config"].items()
    }
    height = round(LOWER * spec["height"], 1)
    return {**spec, "width": COLUMN, "height": height, "background": "white", "config": config}


def _in_points(svg: str) -> str:
    """An SVG whose size is in points, as a unit of it is one."""
    return re.sub(r'^(<svg [^>]*?width="[\d.]+)(" height="[\d.]+)"', r'\1pt\2pt"', svg)
