"""The charts of what heads do, from the file of `ablate probe`, each with its own numbers."""

from collections.abc import Iterator
from typing import Any

import altair as alt
import pandas as pd

from ablate.analysis.compare import Comparison
from ablate.analysis.probes import FILE, PROBES, SORTED, over_seeds, read, silent
from ablate.analysis.variant import names_of_runs
from ablate.reporting.figures import (
    CONFIG,
    GREY,
    Figure,
    colours,
    label,
    layer_name,
    measured,
    ranges,
    spec,
)
from ablate.reporting.page import Page

# Probes that only need attention patterns, for which the range of untrained models is known.
ATTENTION = ("previous", "induction", "distance", "entropy", "jsd")
SHAPES = ("triangle-right", "circle", "triangle-left")


def figures(page: Page) -> Iterator[Figure]:
    """The largest, the median and the smallest head of each layer: what is kept of them, where they look, and
    how much the loss needs them; none without probes. Raises ConfigError if their file can't be read."""
    path, comparison = page.subject.page.with_name(FILE), page.comparison
    if not path.is_file():
        return
    variant, values = names_of_runs(comparison.rows, comparison.shown), read(path)
    values = values[values["run_id"].isin(variant.index)]
    if values.empty:
        return
    last = over_seeds(values, variant)
    each = "the largest, the median and the smallest head of a layer, mean over seeds and 95 % interval."
    quiet = silent(values, variant)
    lines = ", ".join(f"{probe} ({beyond} of {runs} runs)" for probe, (beyond, runs) in quiet.items())
    chance = f" As by chance, but for so many runs, and not drawn: {lines}." if quiet else ""
    kept = (
        "The share of a head that can be computed back from what attention writes, on held-out text:"
        f" {each} Tick: the same with each head shuffled over tokens by itself."
    )
    looks = f"{each.capitalize()} Tick: the largest head of the same model before training.{chance}"
    needed = (
        f"The loss that is added when what a head writes is put at its mean: {each} Two heads that do the"
        " same can each be spared."
    )
    for key, title, about, probes, tick in (
        ("kept", "What of a head is kept", kept, ("kept",), "null"),
        ("attention", "Where heads look", looks, ATTENTION, "untrained"),
        ("needed", "What heads are needed for", needed, ("loss_added",), ""),
    ):
        data = last[last["probe"].isin(probes)]
        if data.empty or (key == "kept" and data["smallest"].min() >= 0.999):  # in full, by algebra
            continue
        charts = dict[str, dict[str, Any]]()
        for probe in (probe for probe in probes if probe in {*data["probe"]} - {*quiet}):
            drawn = _sorted_chart(data[data["probe"] == probe], comparison, PROBES[probe], tick)
            charts[f"heads-{key if len(probes) == 1 else probe}"] = drawn
        yield Figure(f"heads-{key}", title, about, charts, data.dropna(axis=1, how="all"))


def _sorted_chart(data: pd.DataFrame, comparison: Comparison, title: str, tick: str) -> dict[str, Any]:
    """One row per variant and layer, with a point for each of SORTED. tick: a column to mark for comparison;
    "" for none."""
    each = zip(data["variant"], data["layer"], strict=True)
    rows = data.assign(
        row=[f"{label(comparison, one)} · {layer_name(layer)}".removeprefix(" · ") for one, layer in each]
    )
    parts = [
        rows[["row", "variant", "layer", "n"]].assign(
            head=which, mean=rows[which], low=rows[f"{which}_low"], high=rows[f"{which}_high"]
        )
        for which in SORTED
    ]
    drawn = pd.concat(parts, ignore_index=True).round({"mean": 5, "low": 5, "high": 5})
    y = alt.Y("row:N", sort=None, title=None, axis=alt.Axis(grid=False))
    shape = alt.Shape("head:N", scale=alt.Scale(domain=[*SORTED], range=list(SHAPES)))
    offset = alt.YOffset("head:N", sort=[*SORTED])
    base = alt.Chart(drawn).encode(y=y, yOffset=offset, color=colours("head", SORTED))
    points = base.mark_point(filled=True, size=60, opacity=1)
    points = points.encode(x=measured(alt.X, "mean", title), shape=shape)
    layers = [*ranges(base, drawn, alt.X, title), points]
    if tick and rows[tick].notna().any():
        marks = alt.Chart(rows[["row", tick]].round({tick: 5})).mark_tick(color=GREY, thickness=2)
        layers.insert(0, marks.encode(x=alt.X(f"{tick}:Q", title=title), y=y))
    return spec(alt.layer(*layers), 8 * len(drawn))


def on_text(weights: pd.DataFrame, title: str) -> dict[str, Any]:
    """A heat map for each head, a row of them a layer. weights: as from probes.study.looks."""
    shown = weights.round({"weight": 3}).assign(
        layer=[layer_name(layer) for layer in weights["layer"]],
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
