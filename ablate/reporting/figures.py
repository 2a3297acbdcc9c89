"""Figures of a report: charts as Vega-Lite specifications with their data, the parts that charts are made of,
and the names of variants in them.

The same specification serves everywhere: vl-convert draws it into the page (its colours are mid-tones,
visible on white and on black; the style sheet sets those of text and lines), and renders it to PNG, SVG and
PDF.
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

from ablate.analysis.compare import Comparison
from ablate.files.atomic import write_atomically
from ablate.store.columns import column_named

COLORS = ("#3b82c4", "#d9730d", "#2e9e6b", "#9467bd", "#d64550", "#178f9e", "#a07040", "#b8559b")
GREY = "#888888"
TICKS = alt.ExprRef("max(2, ceil(width / 70))")  # so few that none loses its label
SPARSE = alt.Axis(tickCount=TICKS)
POINTS_AN_INCH, DOTS_AN_INCH = 72, 300
LETTERS = 60  # of 8 pt in a column
COLUMN = 3.3 * POINTS_AN_INCH  # width of charts in files, a column of a paper
NEEDLESS = (  # in a page, whose style sheet and captions say as much
    r' (aria-[a-z]+|role|pointer-events|font-family|xmlns:xlink|version)="[^"]*"',
    r' (opacity|stroke-width|fill-opacity)="1"| transform="translate\(0,0\)"| fill="#000"',
    r'<path class="(background|foreground)"[^>]*/>',
)
PAGE = 620  # width of charts in a page, which shows them as wide as there is room
LOWER = 0.7  # the height of a chart in a file, times that in a page, as its text is smaller
PAPER_SIZES = {  # of text in points; labelLimit: the longest label
    **dict.fromkeys(("labelFontSize", "titleFontSize", "fontSize"), 8),
    "labelLimit": 110,
}
IN_PIXELS = re.compile(r'^(<svg [^>]*?width="[\d.]+)(" height="[\d.]+)"')  # whose unit is then a point
_PRECISE = re.compile(r"-?\d+\.\d{2,}")
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
    can't see it. data: the numbers drawn, as a table."""

    key: str
    title: str
    about: str
    charts: dict[str, dict[str, Any]]
    data: pd.DataFrame


def spec(chart: Any, height: int) -> dict[str, Any]:
    """The specification as plain data, without a width."""
    sized = chart.properties(height=height, autosize=alt.AutoSizeParams(type="fit-x", contains="padding"))
    with alt.data_transformers.enable("default", max_rows=None):
        text = json.dumps(sized.to_dict(), ensure_ascii=False).translate(_LINE_ENDS)
    return {**json.loads(text), "config": CONFIG}


# --- parts of charts -------------------------------------------------------------------------------------


def measured(channel: Any, column: str, title: str, **more: Any) -> Any:
    """An axis (alt.X or alt.Y) of measured numbers, which need not begin at 0. title: words, or a metric."""
    return channel(f"{column}:Q", title=column_named(title).words, scale=alt.Scale(zero=False), **more)


def colours(column: str, order: Sequence[str]) -> alt.Color:
    """A colour for each text, with a legend: of one column if a text is too long for two on a phone."""
    long = max(map(len, order), default=0) > 22
    shown = alt.Legend(columns=1, labelLimit=300) if long else alt.Legend()
    scale = alt.Scale(domain=[*order], range=list(COLORS))
    return alt.Color(f"{column}:N", scale=scale, sort=None, legend=shown)


# --- names of variants -----------------------------------------------------------------------------------


def label(comparison: Comparison, variant: str, pattern: str = "{1}") -> str:
    """What a chart calls a variant: its arm or the levels of the varying columns. pattern: of a column with
    its level, as `{} {}` where no axis says what the numbers are."""
    return comparison.variants[variant].title(comparison.varying, between=" · ", pattern=pattern)


def in_colour(comparison: Comparison) -> list[str]:
    """The variants drawn in colour: those of the planned contrasts, else the best."""
    sides = [name for one in comparison.tested for name in (one.variant.name, one.baseline.name)]
    planned = any(one.is_planned for one in comparison.tested)
    ordered = [name for name in comparison.summary["variant"] if not planned or name in sides]
    return ordered[: len(COLORS)]


# --- files for papers ------------------------------------------------------------------------------------


def drawn(spec: Mapping[str, Any]) -> str:
    """The chart as SVG for a page, which scales with it."""
    import vl_convert

    svg = vl_convert.vegalite_to_svg(json.dumps({**spec, "width": PAGE}))
    svg = re.sub(r' (width|height)="[\d.]+"', "", svg, count=2)
    for needless in NEEDLESS:
        svg = re.sub(needless, "", svg)
    # Places are rounded, not what is written.
    return re.sub(r"<[^>]+>", lambda tag: _PRECISE.sub(lambda of: f"{float(of[0]):.1f}", tag[0]), svg)


def write_charts(specs: Mapping[str, Mapping[str, Any]], directory: Path, doubts: Sequence[str] = ()) -> None:
    """Write each chart, given by the stem of its file, as PNG, SVG and PDF, as wide as a column of a paper,
    with labels of 8 pt. doubts: stand above each. Raises StoreError."""
    import vl_convert

    formats: dict[str, Callable[[str], str | bytes]] = {
        "png": lambda spec: vl_convert.vegalite_to_png(spec, ppi=DOTS_AN_INCH),
        "svg": lambda spec: IN_PIXELS.sub(r'\1pt\2pt"', vl_convert.vegalite_to_svg(spec)),
        "pdf": vl_convert.vegalite_to_pdf,
    }
    for stem, spec in specs.items():
        config = {
            part: {key: PAPER_SIZES.get(key, value) for key, value in values.items()}
            if isinstance(values, dict)
            else values
            for part, values in spec["config"].items()
        }
        # At the width of a column, if it has no sizes of its own; its text in 8 pt.
        size = {"width": COLUMN, "height": round(LOWER * spec["height"], 1)} if "height" in spec else {}
        above = {"title": textwrap.wrap(f"Doubts: {', '.join(doubts)}", LETTERS)} if doubts else {}
        for_paper = json.dumps({**spec, **size, "background": "white", "config": config, **above})
        for format, convert in formats.items():
            write_atomically(directory / f"{stem}.{format}", convert(for_paper))


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
