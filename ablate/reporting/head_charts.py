"""The charts of what heads do, from the files of `ablate probe`, each with its own numbers.

A new chart is a function from Heads to figures that is named in CHARTS.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from ablate.analysis.compare import Comparison
from ablate.analysis.probes import (
    FILE,
    PROBES,
    SORTED,
    at_the_end,
    named,
    over_seeds,
    read,
    silent,
    text_file,
)
from ablate.analysis.variant import names_of_runs
from ablate.reporting.figures import (
    GREY,
    Figure,
    Labels,
    colours,
    curves,
    heat_map,
    layer_name,
    measured,
    over_runs,
    ranges,
    slug,
    spec,
    tooltips,
)
from ablate.reporting.page import Page

# Probes that only need attention patterns, for which the range of untrained models is known.
ATTENTION = ("previous", "induction", "distance", "entropy", "jsd")
OVER_STEPS = ("previous", "induction", "loss_added")
SHAPES = ("triangle-right", "circle", "triangle-left")
MOST_VARIANTS = 4  # the most variants with attention maps
MAPS = 3  # the most attention maps per run
LETTERS = 32  # how many tokens of a text an axis shows


@dataclass(frozen=True)
class Heads:
    """values: as from analysis.probes.read. variant: names by run_id. maps: what `ablate probe --text` wrote
    about one run of each variant, by the variant's name."""

    values: pd.DataFrame
    variant: pd.Series
    maps: Mapping[str, Mapping[str, Any]]
    comparison: Comparison

    @cached_property
    def label(self) -> Labels:
        return Labels(self.comparison)

    @cached_property
    def last(self) -> pd.DataFrame:
        """The summary over seeds at the last step."""
        return at_the_end(over_seeds(self.values, self.variant), by="variant")

    def of(self, probe: str) -> pd.DataFrame:
        """The values of a probe at the last step, with their variant."""
        values = self.values[self.values["probe"] == probe]
        return named(at_the_end(values), self.variant)


def figures(page: Page) -> Iterator[Figure]:
    """The figures about heads; none without probes. Raises ConfigError if their file can't be read."""
    path = page.subject.page.with_name(FILE)
    if not path.is_file():
        return
    variant = names_of_runs(page.reported, page.comparison.shown)
    values = read(path)
    values = values[values["run_id"].isin(variant.index)]
    text = text_file(path)
    runs = json.loads(text.read_text(encoding="utf-8")) if text.is_file() else {}
    maps = {variant[run_id]: of_run for run_id, of_run in runs.items() if run_id in variant.index}
    if values.empty:
        return
    heads = Heads(values, variant, dict([*maps.items()][:MOST_VARIANTS]), page.comparison)
    for chart in CHARTS:
        yield from chart(heads)


def _sorted(heads: Heads) -> Iterator[Figure]:
    """The largest, the median and the smallest head of each layer: what is kept of them, where they look, and
    how much the loss needs them."""
    each = "the largest, the median and the smallest head of a layer, mean over seeds and 95 % interval."
    quiet = silent(heads.values, heads.variant)
    lines = ", ".join(f"{probe} ({beyond} of {runs} runs)" for probe, (beyond, runs) in quiet.items())
    chance = f" As by chance, but for so many runs, and not drawn: {lines}." if quiet else ""
    for key, title, about, probes, tick in (
        (
            *("kept", "What of a head is kept"),
            "The share of a head that can be computed back from what attention writes, on held-out text:"
            f" {each} Tick: the same with each head shuffled over tokens by itself.",
            *(("kept",), "null"),
        ),
        (
            *("attention", "Where heads look"),
            f"{each.capitalize()} Tick: the largest head of the same model before training.{chance}",
            *(ATTENTION, "untrained"),
        ),
        (
            *("needed", "What heads are needed for"),
            f"The loss that is added when what a head writes is put at its mean: {each} Two heads that do the"
            " same can each be spared.",
            *(("loss_added",), ""),
        ),
    ):
        data = heads.last[heads.last["probe"].isin(probes)]
        if data.empty or (key == "kept" and data["smallest"].min() >= 0.999):  # in full, by algebra
            continue
        charts = {
            f"heads-{key if len(probes) == 1 else probe}": _sorted_chart(
                data[data["probe"] == probe], heads.label, PROBES[probe], tick
            )
            for probe in probes
            if probe in {*data["probe"]} - {*quiet}
        }
        table = data.drop(columns=["step"]).dropna(axis=1, how="all")
        yield Figure(f"heads-{key}", title, about, charts, table)


def _sorted_chart(data: pd.DataFrame, label: Labels, title: str, tick: str) -> dict[str, Any]:
    """One row per variant and layer, with a point for each of SORTED. tick: a column to mark for comparison;
    "" for none."""
    rows = data.assign(row=label.of_layers(data))
    parts = [
        rows[["row", "variant", "layer", "n"]].assign(
            head=which, mean=rows[which], low=rows[f"{which}_low"], high=rows[f"{which}_high"]
        )
        for which in SORTED
    ]
    drawn = pd.concat(parts, ignore_index=True).round({"mean": 5, "low": 5, "high": 5})
    y = alt.Y("row:N", sort=None, title=None, axis=alt.Axis(grid=False))
    shape = alt.Shape("head:N", scale=alt.Scale(domain=[*SORTED], range=list(SHAPES)))
    base = alt.Chart(drawn).encode(
        y=y,
        yOffset=alt.YOffset("head:N", sort=[*SORTED]),
        color=colours("head", SORTED),
        tooltip=tooltips(drawn, "variant", "layer", "head", "mean", "n"),
    )
    points = base.mark_point(filled=True, size=60, opacity=1)
    layers = [
        *ranges(base, drawn, alt.X, title),
        points.encode(x=measured(alt.X, "mean", title), shape=shape),
    ]
    if tick and rows[tick].notna().any():
        marks = alt.Chart(rows[["row", tick]].round({tick: 5})).mark_tick(color=GREY, thickness=2)
        layers.insert(0, marks.encode(x=alt.X(f"{tick}:Q", title=title), y=y))
    return spec(alt.layer(*layers), 8 * len(drawn))


def _ranked(heads: Heads) -> Iterator[Figure]:
    """The loss added by rank within the layer and run, since ranks can be averaged over seeds."""
    values = heads.of("loss_added")
    ranks = values.groupby(["run_id", "layer"])["value"].rank(method="first", ascending=False)
    data = over_runs(values.assign(rank=ranks.astype(int)), ["variant", "layer", "rank"])
    if data.empty or data["rank"].max() < 2:
        return
    cells = data.assign(row=heads.label.of_layers(data), column=data["rank"])
    yield Figure(
        "heads-map",
        "How many heads matter",
        "The loss that is added without a head, heads sorted within a layer and run, mean over seeds; the"
        " darker, the more.",
        {"heads-map": heat_map(cells, "oranges", "head, the most needed first")},
        data,
    )


def _over_steps(heads: Heads) -> Iterator[Figure]:
    """The largest head of any layer by step, if the runs kept intermediate weights."""
    values = named(heads.values[heads.values["probe"].isin(OVER_STEPS)], heads.variant)
    if values["step"].nunique() < 2:
        return
    last = at_the_end(values)
    values = pd.concat([last.assign(step=0, value=last["untrained"]).dropna(subset="value"), values])
    runs = values.groupby(["variant", "probe", "step", "run_id"], sort=False)["value"].max()
    data = over_runs(runs.reset_index(), ["variant", "probe", "step"])
    charts = {
        f"heads-steps-{slug(str(probe))}": spec(
            curves(heads.comparison, part.drop(columns="probe"), "step", "step", PROBES[str(probe)]), 200
        )
        for probe, part in data.groupby("probe", sort=False)
    }
    yield Figure(
        "heads-steps",
        "When heads begin to",
        "The largest head of any layer at the steps whose weights were kept: mean over seeds, band from the"
        " lowest to the highest; at step 0 that of the model before training.",
        charts,
        data,
    )


def _alike(heads: Heads) -> Iterator[Figure]:
    """How similar the outputs of heads are, in one run of each variant."""
    charts, tables = {}, []
    for name, maps in heads.maps.items():
        for layer, pairs in zip(map(layer_name, maps["layers"]), maps["likeness"], strict=True):
            H = len(pairs)
            if H < 2:
                continue
            rows = [(a + 1, b + 1, pairs[a][b]) for a in range(H) for b in range(H)]
            table = pd.DataFrame(rows, columns=["head", "other", "mean"])
            tables.append(table.assign(variant=name, layer=layer))
            cells, domain = table.assign(row=table["other"], column=table["head"]), (0.0, 1.0)
            charts[f"heads-alike-{slug(name)}-{slug(layer)}"] = heat_map(
                cells, "purples", "head", "head", title=f"{name}, {layer}", domain=domain
            )
    if charts:
        yield Figure(
            "heads-alike",
            "Heads that write alike",
            "Debiased CKA of what two heads write, on the text of --text, in one run of each variant: 1 for"
            " the same up to a rotation.",
            charts,
            pd.concat(tables, ignore_index=True),
        )


def _on_text(heads: Heads) -> Iterator[Figure]:
    """Attention maps, with the tokens on the axes."""
    charts, tables = {}, []
    axis = {"labelExpr": "split(datum.label, ' ')[1]", "labelFontSize": 9, "ticks": False}
    for name, maps in heads.maps.items():
        tokens, keys = _on_axis(maps["tokens"]), _on_axis(maps.get("keys", maps["tokens"]))
        layers, is_text = [*map(layer_name, maps["layers"])], "keys" not in maps
        for layer, head, what in _telling(maps["patterns"], is_text=is_text):
            rows = [
                (tokens[query], keys[key], maps["patterns"][layer][head][query][key])
                for query in range(len(tokens))
                for key in range(query + 1 if is_text else len(keys))
            ]
            table = pd.DataFrame(rows, columns=["query", "key", "weight"])
            charts[f"heads-text-{slug(name)}-{slug(layers[layer])}-{head + 1}"] = heat_map(
                table.assign(row=table["query"], column=table["key"]),
                *("blues", "looks at", "from"),
                value="weight",
                title=f"{name}, {layers[layer]}, head {head + 1}{what}",
                order=keys,
                domain=(0.0, 1.0),
                height=10,
                **axis,
            )
            top = table.sort_values("weight", ascending=False).head(20)
            tables.append(top.assign(variant=name, layer=layers[layer], head=head + 1))
    if charts:
        yield Figure(
            "heads-text",
            "Where heads look in the text",
            "Attention of the most telling heads of one run of each variant, the darker, the more; · is a"
            " space, ⏎ a line end. The table has the largest weights.",
            charts,
            pd.concat(tables, ignore_index=True),
        )


def _on_axis(tokens: Sequence[str]) -> list[str]:
    signs = str.maketrans({" ": "·", "\n": "⏎", "\t": "→"})
    return [f"{i} {token.translate(signs) or '∅'}" for i, token in enumerate(tokens[:LETTERS])]


def _telling(
    patterns: Sequence[Sequence[Sequence[Sequence[float]]]], *, is_text: bool
) -> list[tuple[int, int, str]]:
    """(layer, head, what this head does more than any other), for at most MAPS different heads. In
    cross-attention, the heads whose weight is on the fewest letters, without a description."""
    left = {(at, head): np.array(A) for at, layer in enumerate(patterns) for head, A in enumerate(layer)}
    if not is_text:
        sharpest = sorted(left, key=lambda place: -left[place].max(1).mean())
        return [(*place, "") for place in sharpest[:MAPS]]
    scores: Mapping[str, Callable[[Any], Any]] = {
        "looks at the position before": lambda A_TT: np.diag(A_TT, -1),
        "looks at the first position": lambda A_TT: A_TT[2:, 0],
        "looks at itself": lambda A_TT: np.diag(A_TT)[2:],
    }
    telling = []
    for what, score in [*scores.items()][: min(MAPS, len(left))]:
        best = max(left, key=lambda place: np.sum(score(left[place])))  # over equally many positions
        telling.append((*best, f": {what}"))
        del left[best]
    return telling


CHARTS = (_sorted, _ranked, _over_steps, _alike, _on_text)
