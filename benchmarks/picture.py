"""Draw the picture of README, from docs/results.

    python benchmarks/picture.py

writes docs/answer-light.svg and docs/answer-dark.svg.
"""

import json
from pathlib import Path

import altair as alt
import pandas as pd
import vl_convert

import ablate

DOCS = Path(__file__).parent.parent / "docs"
INK = {"light": "#1b1f24", "dark": "#e6e9ed"}
BLUE = "#3b82c4"
# By fusion, projection and what is made equal, as a reader calls them.
TERMS = {
    ("sum", "true", "params"): "sum",
    ("concat", "true", "params"): "projection of two factors",
    ("sum", "false", "params"): "wide sum",
}


def main() -> None:
    data = against_concat().sort_values("diff")
    seeds = int(data["pairs"].max())
    title = f"nats of loss more than concat, at 0 ({seeds} paired seeds; 95 % intervals)"
    for scheme, ink in INK.items():
        _draw(DOCS / f"answer-{scheme}.svg", data, title, ink)


def against_concat() -> pd.DataFrame:
    """What is drawn, with its name."""
    table = ablate.compare(DOCS / "results" / "why_cpu").table
    (concat,) = {*table["variant"][(table["fusion"] == "concat") & (table["match"] == "none")]}
    data = table[table["low"].notna() & (table["baseline"] == concat)]
    terms = [TERMS[of] for of in zip(data["fusion"], data["out_proj"], data["match"], strict=True)]
    return data[["diff", "low", "high", "pairs"]].assign(name=terms)


def _draw(path: Path, data: pd.DataFrame, title: str, ink: str) -> None:
    """A row for each difference: a point on its interval. data: name, diff, low, high."""
    names = alt.Axis(grid=False, domain=False, ticks=False, labelLimit=300)
    base = alt.Chart(data).encode(
        y=alt.Y("name:N", sort=[*data["name"]], title=None, axis=names), color=alt.value(BLUE)
    )
    ticks = alt.Axis(tickCount=5, format=".2f")
    x = alt.X("low:Q", title=title, scale=alt.Scale(domain=[-0.3, 0.1]), axis=ticks)
    chart = alt.layer(
        base.mark_rule(strokeWidth=3).encode(x=x, x2="high:Q"),
        base.mark_point(filled=True, size=90, opacity=1).encode(x="diff:Q"),
        base.mark_text(align="left", dx=6).encode(
            x="high:Q", text=alt.Text("diff:Q", format="+.3f"), color=alt.value(ink)
        ),
    ).properties(width=460, height=30 * len(data))
    quiet = {"gridColor": "#8884", "domainColor": "#888", "tickColor": "#888", "titleFontWeight": "normal"}
    axis = {"labelColor": ink, "titleColor": ink, "labelFontSize": 12, **quiet}
    config = {"background": "transparent", "view": {"stroke": None}, "axis": axis}
    svg = vl_convert.vegalite_to_svg(json.dumps({**chart.to_dict(), "config": config}))
    path.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
