"""The charts of a comparison, each a function from the page to its figures, with its own numbers. A new chart
is a function that is named in CHARTS."""

import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import Comparison
from ablate.analysis.findings import Finding
from ablate.analysis.variants import USABLE, names
from ablate.phrases import joined, lines_if
from ablate.reporting.cells import brief, called, levels_in_words
from ablate.reporting.figures import COLORS, GREY, MEASURED, SPARSE, TICKS, Figure, colours, spec
from ablate.reporting.page import Page
from ablate.reporting.words import in_words, setting_apart
from ablate.store.columns import column_named
from ablate.store.run_files import read_metrics

VERDICTS = {  # their colours and shapes
    stats.BETTER: ("#2e9e6b", "diamond"),
    stats.EQUIVALENT: ("#3b82c4", "square"),
    stats.UNDECIDED: (GREY, "circle"),
    stats.WORSE: ("#d64550", "cross"),
}
ROW, ROOM = 13, 21  # height of a line of labels, and of the room around all
LETTERS = 28  # of a line of a label
POINTS, FEW = 40, 2  # the most of a curve; curves whose bands can be told apart


def _intervals(page: Page) -> Iterator[Figure]:
    """The difference of each variant to its baseline, one row per contrast; of the planned ones or, without
    any, of all."""
    comparison, margin = page.comparison, page.comparison.margin
    tested = _contrasts(comparison)
    if not tested:
        return
    numbers = [
        (of, diff, one.low, one.high, one.verdict)
        for of, one in tested.items()
        for _, diff in one.kinds or [(0, one.diff)]
    ]
    data = pd.DataFrame(numbers, columns=["label", "diff", "low", "high", "verdict"])
    verdicts = [verdict for verdict in VERDICTS if verdict in {*data["verdict"]}]
    colors, shapes = (
        alt.Scale(domain=verdicts, range=[VERDICTS[verdict][at] for verdict in verdicts]) for at in (0, 1)
    )
    y = alt.Y("label:N", sort=[*tested], title=None, axis=alt.Axis(grid=False))
    base = alt.Chart(data).encode(y=y, color=alt.Color("verdict:N", scale=colors))
    points, shape = base.mark_point(filled=True, size=30, opacity=1), alt.Shape("verdict:N", scale=shapes)
    to = f"to {_baseline(comparison) or 'the baseline'}"
    said = lines_if(margin > 0, f"grey: ±{margin:g}, too small to matter")
    x = alt.X("low:Q", title=[*_title(comparison, to), *said], axis=SPARSE)
    band = pd.DataFrame([{"from": -margin, "to": margin}] if margin > 0 else [], columns=["from", "to"])
    chart = alt.layer(
        alt.Chart(band).mark_rect(opacity=0.18, color=GREY).encode(x="from:Q", x2="to:Q"),
        _zero(),
        base.mark_rule(strokeWidth=1.5).encode(x=x, x2="high:Q"),
        points.encode(x="diff:Q", shape=shape),
    )
    key = f"intervals-{'planned' if comparison.tested[0].is_planned else 'exploratory'}"
    none = lines_if(data["low"].isna().any(), "a point each where seeds are in two groups")
    about = [f"Points: differences {to}", "lines: their intervals, which hold together", *none, *said]
    about[-1] += "."
    yield Figure(key, "Differences to the baseline", "; ".join(about), spec(chart, _height(tested)), data)


def _contrasts(comparison: Comparison) -> dict[str, Finding]:
    """The contrasts as the table calls their variants, and in its order; with their baselines, if these
    differ in more than what they share with their variants."""
    names, several = called(comparison), not _baseline(comparison)
    each = [(one.name if one.is_sum else one.variant.name, one) for one in comparison.tested]
    each.sort(key=lambda pair: [*names].index(pair[0]))
    minus = {one: [f"− {names[one.baseline.name]}"] for _, one in each if several and not one.is_sum}
    sides = (
        [brief(names[of]), *minus.get(one, []), *lines_if(one.kinds, "(two groups of seeds)")]
        for of, one in each
    )
    lines = ([line for side in of for line in textwrap.wrap(side, LETTERS)] for of in sides)
    return {"\n".join(of): one for of, (_, one) in zip(lines, each, strict=True)}


def _height(labels: Collection[str]) -> int:
    return ROOM + ROW * len(labels) * max(1 + label.count("\n") for label in labels)


def _baseline(comparison: Comparison) -> str:
    """The baseline of all contrasts or, of several, the arm that all are or what tells each from its
    variants, and what it shares with them; empty if that differs, too."""
    pairs = [one for one in comparison.tested if not one.is_sum]
    bases, apart = {one.baseline.name for one in pairs}, {one.baseline.arm or one.sides()[1] for one in pairs}
    if len(bases) == 1 or len(apart) != 1:
        return called(comparison)[bases.pop()] if len(bases) == 1 else ""
    equal = {of.partition("=")[0] for one in pairs for of in setting_apart(one, pairs, None).split(", ")}
    return apart.pop() + f" at equal {joined(sorted(equal - {''}))}" * any(equal)


def _title(comparison: Comparison, of: str) -> list[str]:
    """The title of an axis of differences, in lines."""
    words, _, more = in_words(comparison.metric, comparison.arrays.higher_is_better).partition(" (")
    return [f"{words}: difference {of}", *lines_if(more, f"({more}")]


def _seeds(page: Page) -> Iterator[Figure]:
    """The difference of each pair, one row per contrast."""
    tested = {of: one for of, one in _contrasts(page.comparison).items() if one.pairs is not None}
    pairs = [
        (of, value) for of, one in tested.items() for value in one.differences.tolist() if value == value
    ]
    data = pd.DataFrame(pairs, columns=["label", "difference"])
    if data.empty:
        return
    points = alt.Chart(data).mark_point(filled=True, size=15, opacity=0.6, color=COLORS[0])
    title, room = _title(page.comparison, "of each pair"), alt.Scale(padding=6)
    x = alt.X("difference:Q", title=title, axis=SPARSE, scale=room)
    points = points.encode(y=alt.Y("label:N", sort=[*tested], title=None), x=x)
    about = "A point for each pair of runs of one seed: how far differences scatter."
    chart = spec(alt.layer(_zero(), points), _height(tested))
    yield Figure("seeds", "Differences of pairs", about, chart, data)


def _zero(axis: str = "x") -> alt.Chart:
    rule = alt.Chart(pd.DataFrame([{"zero": 0}])).mark_rule(color=GREY, strokeDash=[3, 3])
    return rule.encode(**{axis: "zero:Q"})


def _levels(page: Page) -> Iterator[Figure]:
    """Each difference at the levels between which contrasts of contrasts compare it, with the interval that
    the table has of it; where it has none, of all of these together."""
    crossed = [one for one in page.comparison.tested if one.variant.difference]
    sides = {side.name: (side, one) for one in crossed for side in reversed(one.both)}
    if not sides:
        return
    level = 1 - stats.ALPHA / len(sides)
    own = {column for one in crossed for column in one.variant.difference}
    pairs = (one for one in page.comparison.findings if one.is_tested and not one.is_sum)
    alone = {one.variant.minus(one.baseline).name: one for one in pairs}
    points, means = list[tuple[Any, ...]](), page.comparison.summary.set_index("variant")[["n", "mean", "sd"]]
    for name, (side, of) in sides.items():
        n, mean, sd = means.loc[name].to_numpy(float)
        half, one = stats.half_width(n, sd, level), alone.get(name)
        ends = (one.diff, one.low, one.high) if one else (mean, mean - half, mean + half)
        apart = [c for c in side.place or of.variant.differing(of.baseline) if c not in own]
        points.append((*ends, side.label(apart, between="\n"), side.arm or side.label(side.difference)))
    data = pd.DataFrame(points, columns=["mean", "low", "high", "level", "difference"])
    at = levels_in_words([alone.get(name, replace(of, level=level)) for name, (_, of) in sides.items()])
    title = [column_named(page.comparison.metric).label, f"difference, intervals at {at} each"]
    mean, low = (alt.Y(f"{end}:Q", title=title, scale=MEASURED) for end in ("mean", "low"))
    base = alt.Chart(data).encode(
        x=alt.X("level:N", sort=None, title=None, axis=alt.Axis(labelAngle=0, labelOverlap=False)),
        color=colours("difference", [*dict.fromkeys(data["difference"])]),
        xOffset="difference:N",
    )
    points = base.mark_point(filled=True, size=30, opacity=1).encode(y=mean)
    about = f"Each difference at each level: mean over seeds, with its interval at {at}."
    lines = base.mark_rule(opacity=0.6).encode(y=low, y2="high:Q")
    chart = spec(alt.layer(_zero("y"), lines, points), 140)
    yield Figure("levels", "Is a difference the same?", about, chart, data)


def _curves(page: Page) -> Iterator[Figure]:
    """The validation loss in the second half of the training, of the first variants of the table."""
    rows = page.comparison.rows[page.comparison.rows["status"].isin(USABLE)]
    variant = names(rows, page.comparison.shown)
    points = [
        (variant[run_id], row["step"], row["val_loss"])
        for run_id, directory in page.subject.directories.items()
        for row in read_metrics(directory)
        if "val_loss" in row and run_id in variant
    ]
    losses = pd.DataFrame(points, columns=["variant", "step", "val_loss"])
    table = losses.groupby(["variant", "step"], sort=False)["val_loss"]
    table = table.agg(mean="mean", low="min", high="max", n="count").reset_index()
    every, drawn = called(page.comparison), {*table["variant"]}
    chosen = [name for name in every if name in drawn][: len(COLORS)]
    table = table[table["variant"].isin(chosen)].assign(label=table["variant"].map(every))
    complete = table[table["n"] == table.groupby("variant")["n"].transform("max")]
    if complete.empty:
        return
    late = complete[complete["step"] >= complete.groupby("variant")["step"].transform("max") / 2]
    complete, half = (late, ", second half of the training") if late["step"].nunique() > 1 else (complete, "")
    curves = [curve.sort_values("step") for _, curve in complete.groupby("variant", sort=False)]
    places = (np.unique(np.linspace(0, len(one) - 1, POINTS).round().astype(int)) for one in curves)
    data = pd.concat([one.iloc[at] for one, at in zip(curves, places, strict=True)], ignore_index=True)
    band = lines_if(len(chosen) <= FEW, "band from the lowest to the highest")
    about = f"{', '.join([f'Validation loss at each evaluation{half}: mean over seeds', *band])}."
    label, most = [column_named("val_loss").label], rows["eval_tokens"].unique()
    if len(most) == 1 and pd.notna(most[0]):  # what curves are of, and the table is not
        label.append(f"on at most {most[0]:,.0f} tokens")
    lines = _lines(data, [every[name] for name in chosen], [f"step{half}", *band], label)
    chart = spec(lines, 210)
    yield Figure("curves", "Loss over the training", about, chart, data)


def _lines(data: pd.DataFrame, labels: Sequence[str], step: list[str], loss: list[str]) -> Any:
    """A chart of `mean` over `step`, one line per label, of few with a band from low to high. step, loss:
    titles of the axes, in lines."""
    drawn = data.round({"mean": 4, "low": 4, "high": 4}).sort_values(["step", "variant"], kind="stable")
    x = alt.X("step:Q", title=step, scale=MEASURED, axis=alt.Axis(tickMinStep=1, tickCount=TICKS))
    y = alt.Y("mean:Q", title=loss, scale=MEASURED)
    parts = {label: label.partition(" ")[::2] for label in labels}
    drawn[["first", "rest"]] = [parts[label] for label in drawn["label"]]
    first, rest = ([*dict.fromkeys(of)] for of in zip(*parts.values(), strict=True))
    is_grid = 1 < len(rest) < len(labels) == len(first) * len(rest)  # as of methods by numbers of heads
    base = alt.Chart(drawn).encode(x, colours("first", first) if is_grid else colours("label", labels))
    bands = base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title=loss), y2="high:Q")
    lines = base.mark_line(strokeWidth=1).encode(y=y)
    points = base.mark_point(filled=True, size=14, opacity=1).encode(y=y)
    if is_grid:
        lines = lines.encode(strokeDash=alt.StrokeDash("rest:N", sort=rest, legend=None))
        points = points.encode(shape=alt.Shape("rest:N", sort=rest))
    return alt.layer(*lines_if(len(labels) <= FEW, bands), lines, points)


CHARTS = (_intervals, _levels, _curves, _seeds)  # in reading order
