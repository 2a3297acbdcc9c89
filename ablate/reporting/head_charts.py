"""Charts of what heads do, from the numbers that `ablate probe` wrote. No statistics, no torch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from ablate.analysis.probes import PROBES, SORTED, at_the_end
from ablate.reporting.figures import COLORS, GREY, Figure, curves, heat_map, intervals, slug, spec, tooltips
from ablate.reporting.heads import ATTENTION, Heads
from ablate.reporting.labels import Labels

SHAPES = ("triangle-right", "circle", "triangle-left")
MAPS = 3  # the most attention maps per run
LETTERS = 32  # how many tokens of a text an axis shows
Label = Callable[[str], str]


def figures(heads: Heads, label: Labels, chosen: Sequence[str]) -> Iterator[Figure]:
    """The figures about heads. label: gives the names of variants. chosen: the variants drawn in colour."""
    if heads.summary.empty:
        return
    last = at_the_end(heads.summary, by="variant")
    parts = (
        _shares(last, label),
        _attention(heads, last, label),
        _needed(last, label),
        _ranked(heads, label),
        _pruned(heads, label.full, chosen),
        _over_steps(heads, label.full, chosen),
        _alike(heads),
        _on_text(heads),
    )
    for part in parts:
        yield from part


def _shares(last: pd.DataFrame, label: Label) -> Iterator[Figure]:
    data = last[last["probe"] == "kept"]
    if len(data) and data["smallest"].min() < 0.999:  # concatenated heads are kept in full, by algebra
        yield Figure(
            "heads-kept",
            "What of a head is kept",
            "The share of a head that can be computed back from what attention writes, on held-out text: the"
            " largest, the median and the smallest head of a layer, mean over seeds and 95 % interval. Tick:"
            " the same with each head shuffled over tokens by itself.",
            {"heads-kept": spec(_sorted(data, label, PROBES["kept"], tick="null"), _height(data))},
            _told(data),
        )


def _attention(heads: Heads, last: pd.DataFrame, label: Label) -> Iterator[Figure]:
    data = last[last["probe"].isin(ATTENTION)]
    shown = [probe for probe in ATTENTION if probe in set(data["probe"]) and probe not in heads.silent]
    quiet = [f"{probe} ({beyond} of {runs} runs)" for probe, (beyond, runs) in heads.silent.items()]
    about = (
        "The largest, the median and the smallest head of a layer, mean over seeds and 95 % interval. Tick:"
        " the largest head of the same model before training."
    )
    if quiet:
        about += f" As by chance, but for so many runs, and not drawn: {', '.join(quiet)}."
    if shown or quiet:
        charts = {
            f"heads-{probe}": spec(
                _sorted(part := data[data["probe"] == probe], label, PROBES[probe], tick="untrained"),
                _height(part),
            )
            for probe in shown
        }
        yield Figure("heads-attention", "Where heads look", about, charts, _told(data))


def _needed(last: pd.DataFrame, label: Label) -> Iterator[Figure]:
    data = last[last["probe"] == "loss_added"]
    if len(data):
        yield Figure(
            "heads-needed",
            "What heads are needed for",
            "The loss that is added when what a head writes is put at its mean: the largest, the median and"
            " the smallest head of a layer, mean over seeds and 95 % interval. Two heads that do the same can"
            " each be spared.",
            {"heads-needed": spec(_sorted(data, label, PROBES["loss_added"], tick=""), _height(data))},
            _told(data),
        )


def _sorted(data: pd.DataFrame, label: Label, title: str, *, tick: str) -> Any:
    """One row per variant and layer, with a point for the largest, the median and the smallest head."""
    named = data.assign(row=_rows(data, label))
    parts = []
    for which in SORTED:
        part = named[["row", "variant", "layer", "n"]].assign(
            head=which, mean=named[which], low=named[f"{which}_low"], high=named[f"{which}_high"]
        )
        parts.append(part)
    drawn = pd.concat(parts, ignore_index=True).round({"mean": 5, "low": 5, "high": 5})
    y = alt.Y("row:N", sort=None, title=None, axis=alt.Axis(grid=False))
    color = alt.Color("head:N", sort=[*SORTED], scale=alt.Scale(domain=[*SORTED], range=list(COLORS)))
    shape = alt.Shape("head:N", scale=alt.Scale(domain=[*SORTED], range=list(SHAPES)))
    base = alt.Chart(drawn).encode(
        y=y,
        yOffset=alt.YOffset("head:N", sort=[*SORTED]),
        color=color,
        tooltip=tooltips(drawn, "variant", "layer", "head", "mean", "n"),
    )
    x = alt.X("mean:Q", title=title, scale=alt.Scale(zero=False))
    layers = [
        *intervals(base, drawn, "x", title),
        base.mark_point(filled=True, size=60, opacity=1).encode(x=x, shape=shape),
    ]
    if tick and named[tick].notna().any():
        marks = alt.Chart(named[["row", tick]].round({tick: 5})).mark_tick(color=GREY, thickness=2)
        layers.insert(0, marks.encode(x=alt.X(f"{tick}:Q", title=title), y=y))
    return alt.layer(*layers)


def _ranked(heads: Heads, label: Label) -> Iterator[Figure]:
    """Heads by rank, so that they can be averaged over seeds."""
    data = heads.ranked("loss_added")
    if data.empty or data["rank"].max() < 2:
        return
    drawn = data.assign(row=_rows(data, label), text=[f"{value:.2f}" for value in data["mean"]])
    base = alt.Chart(drawn.round({"mean": 5})).encode(
        x=alt.X("rank:O", title="head, the most needed first", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("row:N", sort=None, title=None),
    )
    yield Figure(
        "heads-map",
        "How many heads matter",
        "The loss that is added without a head, heads sorted within a layer and run, mean over seeds; the"
        " darker, the more.",
        {"heads-map": heat_map(base, drawn, "oranges", drawn["rank"].nunique())},
        data,
    )


def _pruned(heads: Heads, label: Label, chosen: Sequence[str]) -> Iterator[Figure]:
    data = heads.prune_curve()
    if data.empty:
        return
    x = "heads taken away, the cheapest first"
    yield Figure(
        "heads-pruned",
        "Without one head after the other",
        "Loss on 32 rows with heads put at their means, each time the one that costs least: mean over seeds,"
        " band from the lowest to the highest.",
        {
            slug(f"heads-pruned {kind}".strip()): spec(
                curves(part.drop(columns="kind"), label, chosen, "removed", x, "loss, nats"), 280, str(kind)
            )
            for kind, part in data.groupby("kind", sort=False)
        },
        data,
    )


def _over_steps(heads: Heads, label: Label, chosen: Sequence[str]) -> Iterator[Figure]:
    """The largest head of any layer by step, if the runs kept intermediate weights."""
    data = heads.by_step()
    if data.empty:
        return
    charts = {
        f"heads-steps-{slug(str(probe))}": spec(
            curves(part.drop(columns="probe"), label, chosen, "step", "step", PROBES[str(probe)]), 200
        )
        for probe, part in data.groupby("probe", sort=False)
    }
    yield Figure(
        "heads-steps",
        "When heads begin to",
        "The largest head of any layer at the steps whose weights were kept, mean over seeds; at step 0 that"
        " of the model before training.",
        charts,
        data,
    )


def _alike(heads: Heads) -> Iterator[Figure]:
    """How similar the outputs of heads are, in one run of each variant."""
    charts, tables = {}, []
    for name, maps in heads.maps.items():
        for layer, pairs in zip(_layers(maps), maps["likeness"], strict=True):
            H = len(pairs)
            if H < 2:
                continue
            rows = [(a + 1, b + 1, pairs[a][b]) for a in range(H) for b in range(H)]
            drawn = pd.DataFrame(rows, columns=["head", "other", "mean"])
            drawn["text"] = [f"{value:.2f}" for value in drawn["mean"]]
            tables.append(drawn[["head", "other", "mean"]].assign(variant=name, layer=layer))
            base = alt.Chart(drawn).encode(
                x=alt.X("head:O", axis=alt.Axis(labelAngle=0)), y=alt.Y("other:O", title="head")
            )
            charts[f"heads-alike-{slug(name)}-{slug(layer)}"] = heat_map(
                base, drawn, "purples", H, title=f"{name}, {layer}", domain=(0.0, 1.0)
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
    for name, maps in heads.maps.items():
        tokens, keys = _on_axis(maps["tokens"]), _on_axis(maps.get("keys", maps["tokens"]))
        names, is_text = _layers(maps), "keys" not in maps
        for layer, head, what in _telling(maps["patterns"], is_text=is_text):
            pattern = maps["patterns"][layer][head]
            rows = [
                (tokens[query], keys[key], pattern[query][key])
                for query in range(len(tokens))
                for key in range(query + 1 if is_text else len(keys))
            ]
            drawn = pd.DataFrame(rows, columns=["query", "key", "weight"])
            axis = alt.Axis(labelExpr="split(datum.label, ' ')[1]", labelFontSize=9, ticks=False)
            chart = (
                alt.Chart(drawn)
                .mark_rect()
                .encode(
                    x=alt.X("key:N", sort=keys, title="looks at", axis=axis),
                    y=alt.Y("query:N", sort=tokens, title="from", axis=axis),
                    color=alt.Color("weight:Q", scale=alt.Scale(scheme="blues", domain=[0, 1]), legend=None),
                    tooltip=tooltips(drawn, "query", "key", "weight"),
                )
            )
            title = f"{name}, {names[layer]}, head {head + 1}{what}"
            charts[f"heads-text-{slug(name)}-{slug(names[layer])}-{head + 1}"] = spec(
                chart, 9 * len(tokens) + 40, title
            )
            top = drawn.sort_values("weight", ascending=False).head(20)
            tables.append(top.assign(variant=name, layer=names[layer], head=head + 1))
    if charts:
        yield Figure(
            "heads-text",
            "Where heads look in the text",
            "Attention of the most telling heads of one run of each variant, the darker, the more; · is a"
            " space, ⏎ a line end. The table has the largest weights.",
            charts,
            pd.concat(tables, ignore_index=True),
        )


def _layers(maps: Mapping[str, Any]) -> list[str]:
    """The names of the layers."""
    return [_layer(layer) for layer in maps.get("layers", range(1, len(maps["patterns"]) + 1))]


def _layer(name: object) -> str:
    """The name of a layer in charts, as `layer 1` or `cross 1`."""
    return f"layer {name}" if str(name).isdecimal() else str(name)


def _on_axis(tokens: Sequence[str]) -> list[str]:
    return [f"{i} {_visible(token)}" for i, token in enumerate(tokens[:LETTERS])]


def _telling(
    patterns: Sequence[Sequence[Sequence[Sequence[float]]]], *, is_text: bool
) -> list[tuple[int, int, str]]:
    """(layer, head, what this head does more than any other), for at most MAPS different heads. In
    cross-attention, the heads whose weight is on the fewest letters, without a description."""
    places = [(layer, head) for layer, heads in enumerate(patterns) for head in range(len(heads))]
    if not is_text:
        sharpest = sorted(places, key=lambda at: -mean([max(row) for row in patterns[at[0]][at[1]]]))
        return [(layer, head, "") for layer, head in sharpest[:MAPS]]
    scores: Mapping[str, Callable[[Any], float]] = {
        "looks at the position before": lambda A: mean([A[t][t - 1] for t in range(1, len(A))]),
        "looks at the first position": lambda A: mean([A[t][0] for t in range(2, len(A))]),
        "looks at itself": lambda A: mean([A[t][t] for t in range(2, len(A))]),
        "looks far back": lambda A: mean(
            [sum(A[t][s] * (t - s) for s in range(t)) / t for t in range(1, len(A))]
        ),
    }
    found: dict[tuple[int, int], str] = {}
    for what, score in scores.items():
        left = [place for place in places if place not in found]
        if left:
            best = max(left, key=lambda place: score(patterns[place[0]][place[1]]))
            found[best] = f": {what}"
    return [(layer, head, what) for (layer, head), what in found.items()][:MAPS]


def mean(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


def _rows(data: pd.DataFrame, label: Label) -> list[str]:
    pairs = zip(data["variant"], data["layer"], strict=True)
    return [" · ".join(part for part in (label(name), _layer(layer)) if part) for name, layer in pairs]


def _height(data: pd.DataFrame) -> int:
    return 8 * len(SORTED) * len(data)


def _told(data: pd.DataFrame) -> pd.DataFrame:
    return data.drop(columns=["step"]).dropna(axis=1, how="all")


def _visible(token: str) -> str:
    return token.replace(" ", "·").replace("\n", "⏎").replace("\t", "→") or "∅"
