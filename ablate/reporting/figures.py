"""Figures of a report: charts as Vega-Lite specifications with their data, and the parts of charts.

The same drawing serves everywhere: vl-convert draws it as wide as a column of a paper, into the page, which
shows it larger (its colours are mid-tones, visible on white and on black; the style sheet sets those of text
and lines), and as PNG, SVG and PDF.
"""

import json
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from ablate.files.atomic import write_atomically

COLORS = ("#3b82c4", "#d9730d", "#2e9e6b", "#9467bd", "#d64550", "#178f9e", "#a07040", "#b8559b")
GREY = "#888888"
TICKS = alt.ExprRef("max(2, ceil(width / 52))")  # so few that none loses its label
SPARSE = alt.Axis(tickCount=TICKS)
MEASURED = alt.Scale(zero=False, padding=5)  # of numbers that need not begin at 0
POINTS_AN_INCH, DOTS_AN_INCH = 72, 300
LETTERS = 74  # of 6.5 pt in a column
COLUMN = 3.3 * POINTS_AN_INCH
# In a page, whose style sheet and captions say as much, and decimals of places.
NEEDLESS = re.compile(r' ((aria-[a-z]+|role|font-family)="[^"]*"|fill="#000")|(?<=\.\d\d)\d+(?=[^<>]*>)')
IN_PIXELS = re.compile(r'^(<svg [^>]*?width="[\d.]+)(" height="[\d.]+)"')  # whose unit is then a point
_LINE_ENDS = {0x2028: " ", 0x2029: " "}  # Unicode line ends, which strings in Vega expressions must not have
CONFIG: dict[str, Any] = {
    "font": "Helvetica, Arial, sans-serif",
    "background": "transparent",
    "lineBreak": "\n",
    "view": {"stroke": None},
    "axis": {
        **{"labelLimit": 160, "labelFontSize": 8, "titleFontSize": 8, "titleFontWeight": "normal"},
        **{"translate": 0, "tickRound": False},  # a tick stands where a mark at its value does
    },
    "axisX": {"titleAnchor": "end", "labelFlush": False, "labelOverlap": "greedy", "labelSeparation": 5},
    "title": {"anchor": "start", "frame": "bounds", "fontSize": 8, "fontWeight": "normal", "offset": 4},
    "legend": {
        "orient": "bottom",
        "columns": 1,
        "offset": 6,
        "labelLimit": 190,
        "title": None,
        "labelFontSize": 8,
        "symbolSize": 40,
        "symbolOpacity": 1,
    },
}


@dataclass(frozen=True)
class Figure:
    """key: also the stem of its files. about: a description of what can be seen, also for readers who can't
    see it. spec: of the chart. data: the numbers drawn, as a table."""

    key: str
    title: str
    about: str
    spec: dict[str, Any]
    data: pd.DataFrame


def spec(chart: Any, height: int) -> dict[str, Any]:
    """The specification as plain data."""
    sized = chart.properties(
        width=COLUMN, height=height, autosize=alt.AutoSizeParams(type="fit-x", contains="padding")
    )
    with alt.data_transformers.enable("default", max_rows=None):
        text = json.dumps(sized.to_dict(), ensure_ascii=False).translate(_LINE_ENDS)
    return {**json.loads(text), "config": CONFIG}


def colours(column: str, order: Sequence[str]) -> alt.Color:
    """A colour for each text, with a legend."""
    scale = alt.Scale(domain=[*order], range=list(COLORS))
    return alt.Color(f"{column}:N", scale=scale, sort=None)


def drawn(spec: Mapping[str, Any]) -> str:
    """The chart as SVG for a page, which scales with it."""
    import vl_convert

    svg = vl_convert.vegalite_to_svg(json.dumps(spec))
    return NEEDLESS.sub("", re.sub(r' (width|height)="[\d.]+"', "", svg, count=2))


def write_chart(spec: Mapping[str, Any], stem: Path, note: str = "") -> None:
    """Write a chart as PNG, SVG and PDF, as wide as a column of a paper, with labels of 8 pt. stem: its path
    without the ending. note: what stands below it as PNG and PDF. Raises StoreError."""
    import vl_convert

    formats: dict[str, Callable[[str], str | bytes]] = {
        "png": lambda spec: vl_convert.vegalite_to_png(spec, ppi=DOTS_AN_INCH),
        "svg": lambda spec: IN_PIXELS.sub(r'\1pt\2pt"', vl_convert.vegalite_to_svg(spec)),
        "pdf": vl_convert.vegalite_to_pdf,
    }
    lines = textwrap.wrap(note.replace(" %", "\N{NO-BREAK SPACE}%"), LETTERS)
    below = {"title": {"text": lines, "orient": "bottom", "fontSize": 6.5}} if lines else {}
    for format, convert in formats.items():
        for_paper = {**spec, "background": "white", **({} if format == "svg" else below)}
        write_atomically(Path(f"{stem}.{format}"), convert(json.dumps(for_paper)))


def on_text(weights: pd.DataFrame, title: str) -> dict[str, Any]:
    """A heat map for each head, a row of them a layer. weights: as from probes.study.looks."""
    shown = weights.round({"weight": 3}).assign(
        layer=[f"layer {one}" if str(one).isdecimal() else str(one) for one in weights["layer"]],
        head=[f"head {head}" for head in weights["head"]],
    )
    token = alt.Axis(labelExpr="slice(datum.label, indexof(datum.label, ' ') + 1)", labelOverlap=False)
    scale = alt.Scale(scheme="blues", domain=[0, 1])
    maps = alt.Chart(shown, width=alt.Step(9), height=alt.Step(9)).mark_rect()
    maps = maps.encode(
        x=alt.X("key:N", sort=None, title="looks at", axis=token),
        y=alt.Y("query:N", sort=None, title=None, axis=token),
        color=alt.Color("weight:Q", scale=scale),
    )
    facets = {"row": alt.Row("layer:N", sort=None, title=None), "column": alt.Column("head:N", title=None)}
    with alt.data_transformers.enable("default", max_rows=None):
        return {**maps.facet(**facets, title=title).to_dict(), "config": CONFIG}
