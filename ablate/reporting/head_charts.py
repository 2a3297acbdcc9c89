"""Where heads look in a text of one's own, drawn."""

from typing import Any

import altair as alt
import pandas as pd

from ablate.reporting.figures import CONFIG


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
