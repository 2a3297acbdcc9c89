"""Draw the README's picture: the differences of other methods to concat, from docs/noise.csv.

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
TICKS = [0.0, 0.02, 0.04, 0.06]
TERMS = {"sum": "sum", "weighted_sum": "weighted sum", "mean": "mean"}


def main() -> None:
    table = ablate.compare(pd.read_csv(DOCS / "noise.csv", dtype={"run_id": str})).table
    data = table[table["low"].notna()][["fusion", "diff", "low", "high", "pairs"]]
    data = data.assign(name=data["fusion"].map(TERMS)).sort_values("diff")
    seeds = int(data["pairs"].max())
    base = alt.Chart(data).encode(
        y=alt.Y(
            "name:N", sort=[*data["name"]], title=None, axis=alt.Axis(grid=False, domain=False, ticks=False)
        )
    )
    title = f"nats of loss more than concat (0 is concat; {seeds} paired seeds, simultaneous 95 % intervals)"
    x = alt.X(
        "low:Q", title=title, scale=alt.Scale(domain=[0, 0.065]), axis=alt.Axis(values=TICKS, format=".2f")
    )
    for scheme, ink in INK.items():
        chart = alt.layer(
            base.mark_rule(strokeWidth=3, color="#3b82c4").encode(x=x, x2="high:Q"),
            base.mark_point(filled=True, size=90, opacity=1, color="#3b82c4").encode(x="diff:Q"),
            base.mark_text(align="left", dx=6, color=ink).encode(
                x="high:Q", text=alt.Text("diff:Q", format="+.3f")
            ),
        ).properties(width=460, height=90)
        axis = {
            "labelColor": ink,
            "titleColor": ink,
            "gridColor": "#8884",
            "domainColor": "#888",
            "tickColor": "#888",
            "titleFontWeight": "normal",
        }
        config = {
            "background": "transparent",
            "view": {"stroke": None},
            "axis": {**axis, "labelFontSize": 12},
        }
        svg = vl_convert.vegalite_to_svg(json.dumps({**chart.to_dict(), "config": config}))
        (DOCS / f"answer-{scheme}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
