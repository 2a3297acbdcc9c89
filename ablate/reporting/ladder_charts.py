"""The charts of a ladder, each a function from the page to its figures."""

import itertools
from collections.abc import Iterator

import altair as alt
import pandas as pd

from ablate.analysis.ladder import Arm, LadderResult, places_of
from ablate.analysis.variants import USABLE
from ablate.reporting.figures import (
    COLORS,
    GREY,
    SPARSE,
    Figure,
    colours,
    graded,
    measured,
    over_runs,
    ranges,
    slug,
    spec,
    tooltips,
)
from ablate.reporting.page import Page
from ablate.reporting.words import confidence
from ablate.store.record import LEVEL

TRAINING = 3  # times the FLOPs of a forward pass
BELOW, TOP, PREDICTED = "rung", "top", "predicted"


def _differences(page: Page) -> Iterator[Figure]:
    """The difference of each arm to the baseline against parameters, with what was predicted of the top."""
    comparison, ladder = page.comparison, page.comparison.ladder
    if not ladder:
        return
    data = pd.concat([_of_arm(arm, ladder) for arm in ladder.arms], ignore_index=True)
    ends = [*data["low"].dropna(), *data["high"].dropna(), *data["diff"], 0.0]
    y = alt.Scale(domain=[min(ends), max(ends)], nice=True)  # the same for all arms
    title = f"difference in {comparison.metric} to {ladder.baseline}"
    levels = [float(rung.size) for rung in ladder.rungs]
    axes = {
        "x": graded("parameters", levels, "parameters", log=True, format=".2~s"),
        "y": alt.Y("diff:Q", title=title, scale=y, axis=SPARSE),
    }
    charts = {}
    for color, arm in zip(itertools.cycle([*COLORS[1:], COLORS[0]]), ladder.arms, strict=False):
        drawn = data[data["arm"] == arm.name]
        if drawn.empty:
            continue
        seen, about = drawn[drawn["what"] != PREDICTED], ("arm", "parameters", "n", "diff", "low", "high")
        base = alt.Chart(seen).encode(
            **axes, tooltip=tooltips(seen, *about, "verdict"), color=alt.value(color)
        )
        zero = alt.Chart(pd.DataFrame([{"zero": 0}])).mark_rule(color=GREY, strokeDash=[3, 3])
        shape = alt.Shape(
            "what:N", scale=alt.Scale(domain=[BELOW, TOP], range=["circle", "diamond"]), legend=None
        )
        layers = [
            zero.encode(y=alt.Y("zero:Q", title=title)),
            *_band(drawn, ladder, axes["x"]),
            base.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", title=title), y2="high:Q"),
            base.mark_point(filled=True, opacity=1, size=70).encode(shape=shape),
        ]
        stem = f"ladder-{slug(arm.name)}"
        charts[stem] = spec(alt.layer(*layers), 200, arm.name)
    yield Figure(
        "ladder-differences",
        "Differences against parameters",
        f"Points: differences to {ladder.baseline} at each rung, a diamond for the one that was held"
        f" out; lines: simultaneous {confidence(comparison)} intervals; band: from the rung below the top to"
        f" the {100 * LEVEL:g} % interval that was predicted there before a run of the top began.",
        charts,
        data,
        first=True,
    )


def _of_arm(arm: Arm, ladder: LadderResult) -> pd.DataFrame:
    """What was seen of an arm and, in the last row, what was predicted."""
    top = len(ladder.rungs) - 1
    seen = arm.steps[["rung", "pairs", "diff", "low", "high", "verdict"]].rename(columns={"pairs": "n"})
    seen = seen.assign(what=[TOP if at == top else BELOW for at in seen["rung"]])
    if predicted := arm.predicted:
        of_top = {"rung": top, "diff": predicted.difference, "low": predicted.low, "high": predicted.high}
        seen = pd.concat([seen, pd.DataFrame([{**of_top, "what": PREDICTED}])], ignore_index=True)
    sizes = [ladder.rungs[int(at)].size for at in seen["rung"]]
    seen = seen.assign(
        arm=arm.name, parameters=sizes, rung=[ladder.rungs[int(at)].name for at in seen["rung"]]
    )
    return seen[["arm", "rung", "parameters", "what", "n", "diff", "low", "high", "verdict"]]


def _band(drawn: pd.DataFrame, ladder: LadderResult, x: alt.X) -> list[alt.Chart]:
    """A band from the difference at the highest rung below the top to the interval predicted at the top."""
    predicted, below = (drawn[drawn["what"] == what] for what in (PREDICTED, BELOW))
    if predicted.empty or below.empty:
        return []
    start = below.tail(1).assign(low=lambda row: row["diff"], high=lambda row: row["diff"])
    band = pd.concat([start, predicted], ignore_index=True)[["parameters", "diff", "low", "high"]]
    base = alt.Chart(band).encode(x=x)
    return [
        base.mark_area(opacity=0.3, color=GREY).encode(y="low:Q", y2="high:Q"),
        base.mark_line(strokeDash=[4, 3], color=GREY).encode(y="diff:Q"),
    ]


def _losses(page: Page) -> Iterator[Figure]:
    """The loss of each arm against the FLOPs of a training run."""
    comparison, ladder = page.comparison, page.comparison.ladder
    if not ladder:
        return
    metric, places = comparison.metric, places_of(ladder.record)
    rows = page.reported[page.reported["status"].isin(USABLE) & page.reported[metric].notna()]
    rows = rows.dropna(subset=["flops_per_token", "tokens"])
    runs = [
        (
            arm,
            ladder.rungs[at].name,
            TRAINING * float(row["flops_per_token"]) * float(row["tokens"]),
            row[metric],
        )
        for row in rows.to_dict("records")
        for at, arm in places.get(row["run_id"], ())
    ]
    if not runs:
        return
    table = pd.DataFrame(runs, columns=["arm", "rung", "flops", "value"])
    data = over_runs(table, ["arm", "rung", "flops"]).sort_values(["arm", "flops"], ignore_index=True)
    order = [ladder.baseline, *(arm.name for arm in ladder.arms)]
    base = alt.Chart(data.round({"mean": 5, "low": 5, "high": 5})).encode(
        x=alt.X(
            "flops:Q",
            title="FLOPs of a training run",
            scale=alt.Scale(type="log", nice=False),
            axis=alt.Axis(format=".0e", labelOverlap="greedy"),
        ),
        color=colours("arm", order),
        tooltip=tooltips(data, "arm", "rung", "flops", "mean", "low", "high", "n"),
    )
    y = measured(alt.Y, "mean", metric)
    layers = [
        *ranges(base, data, alt.Y, metric),
        base.mark_line().encode(y=y),
        base.mark_point(filled=True, size=45, opacity=1).encode(y=y),
    ]
    yield Figure(
        "ladder-losses",
        "Loss against training FLOPs",
        f"Mean {metric} over seeds at each rung, line from the lowest to the highest seed, against the"
        f" FLOPs of a training run (logarithmic): {TRAINING} times those of a forward pass, for each token.",
        {"ladder-losses": spec(alt.layer(*layers), 280)},
        data,
        first=True,
    )


CHARTS = (_differences, _losses)
