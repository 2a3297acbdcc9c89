"""The charts of a comparison, each a function from the page to its figures, with its own numbers. A new chart
is a function that is named in CHARTS."""

import textwrap
from collections.abc import Iterator, Sequence, Sized
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import Comparison
from ablate.analysis.findings import Finding
from ablate.analysis.variants import USABLE, Variant, names
from ablate.phrases import counted, counted_between, joined, lines_if
from ablate.reporting.cells import brief, called, levels_in_words
from ablate.reporting.figures import COLORS, GREY, MEASURED, SPARSE, TICKS, Figure, colours, spec
from ablate.reporting.page import Page
from ablate.reporting.words import DIFFERS, in_words, setting_apart, units_in_words
from ablate.store.columns import column_named
from ablate.store.run_files import read_metrics

ALONE = "each level"
VERDICTS = {  # their colours, their shapes, and where their intervals lie
    ALONE: ("#3b82c4", "circle", ""),
    stats.EQUIVALENT: ("#9467bd", "square", "in the shade"),
    stats.BETTER: ("#2e9e6b", "diamond", "clear of 0"),
    stats.WORSE: ("#d64550", "cross", "clear of 0"),
    "higher": ("#d9730d", "triangle-up", "clear of 0"),  # of two levels, none of which is better
    "lower": ("#178f9e", "triangle-down", "clear of 0"),
    stats.UNDECIDED: (GREY, "circle", "any other"),
}
NEGLIGIBLE = "#d9a441"  # of the band of the margin
ROW, ROOM = 13, 21  # height of a line of labels, and of the room around all
LETTERS = 28  # of a line of a label
IN_PAIRS = alt.Legend(columns=2)
POINTS = 40  # the most of a curve
BESIDE = 0.01  # how far curves stand beside each other, of their length


def _differences(page: Page) -> Iterator[Figure]:
    """The difference of each variant to its baseline, one row per contrast; of the planned ones or, without
    any, of all; of contrasts of contrasts after those at each level. Then the same with each pair."""
    comparison, margin = page.comparison, page.comparison.margin
    tested = _contrasts(comparison)
    if not tested:
        return
    numbers = [
        (of, diff, one.low, one.high, _verdict(one))
        for of, one in tested.items()
        for _, diff in one.kinds or [(0, one.diff)]
    ]
    alone = _at_levels(comparison)
    data = pd.DataFrame([*alone, *numbers], columns=["label", "diff", "low", "high", "verdict"])
    drawn = [verdict for verdict in VERDICTS if verdict in {*data["verdict"]}]
    colors, shapes = (alt.Scale(domain=drawn, range=[VERDICTS[of][at] for of in drawn]) for at in (0, 1))
    y = alt.Y("label:N", sort=[*data["label"]], title=None, axis=alt.Axis(grid=False))
    base = alt.Chart(data).encode(y=y, color=alt.Color("verdict:N", scale=colors, legend=IN_PAIRS))
    points = base.mark_point(filled=True, size=30, opacity=1)
    points = points.encode(x="diff:Q", shape=alt.Shape("verdict:N", scale=shapes, legend=IN_PAIRS))
    to = f"difference to {_baseline(comparison) or 'the baseline'}" if len(alone) == 0 else "differences"
    title = _title(comparison.metric, to, comparison.arrays.higher_is_better)
    x = alt.X("low:Q", title=title, axis=SPARSE, scale=alt.Scale(padding=6))
    rules = base.mark_rule(strokeWidth=1.5).encode(x=x, x2="high:Q")
    means, is_planned = f"Means over {units_in_words([*tested.values()])}", comparison.tested[0].is_planned
    together = f" each, {100 * (1 - stats.ALPHA):g} % together" * (len(tested) > 1)
    said = [
        f"{means}, intervals at {levels_in_words(one.level for one in tested.values())}{together}",
        *lines_if(alone, f"{ALONE} at {levels_in_words([_level(alone)])}"),
        *lines_if(data["low"].isna().any(), "a point each where seeds are in two groups"),
        *lines_if(not is_planned, "exploratory"),
        *lines_if(margin > 0, f"shaded: ±{margin:g}, too small to matter"),
        *(f"{of}: {where}" for of in drawn if (where := VERDICTS[of][2])),
    ]
    key = f"intervals-{'planned' if is_planned else 'exploratory'}"
    behind, lines = [*_band(margin), _zero()], 1 + data["label"].str.count("\n").max()
    height = ROOM + ROW * data["label"].nunique() * int(lines)
    chart = spec(alt.layer(*behind, rules, points), height)
    yield Figure(key, "Differences to the baseline", f"{'; '.join(said)}.", chart, data)
    paired = [(of, _verdict(one), one.differences) for of, one in tested.items() if one.pairs is not None]
    pairs = [(of, word, value) for of, word, values in paired for value in values.tolist()]
    if len(each := pd.DataFrame(pairs, columns=["label", "verdict", "of pair"]).dropna()):
        seeds = base.properties(data=each).mark_point(filled=True, size=8, opacity=0.7, yOffset=5)
        chart = spec(alt.layer(*behind, rules, points, seeds.encode(x="of pair:Q")), height)
        about = f"{'; '.join([*said, 'dots: single seeds'])}."
        yield Figure("seeds", "Differences of pairs", about, chart, each)


def _verdict(one: Finding) -> str:
    is_signed = one.variant.difference and one.verdict in DIFFERS
    return ("higher" if one.diff > 0 else "lower") if is_signed else one.verdict


def _contrasts(comparison: Comparison) -> dict[str, Finding]:
    """The contrasts as the table calls their variants, and in its order; with their baselines, if these
    differ in more than what they share with their variants."""
    names, several = called(comparison), not _baseline(comparison)
    each = [(one.name if one.is_sum else one.variant.name, one) for one in comparison.tested]
    each.sort(key=lambda pair: [*names].index(pair[0]))
    minus = {one: [f"− {names[one.baseline.name]}"] for _, one in each if several and not one.is_sum}
    is_uneven = len({one.seeds for _, one in each}) > 1
    lines = (
        [
            *(_of_levels(one, comparison.tested) or [brief(names[of]), *minus.get(one, [])]),
            *lines_if(one.kinds, "(two groups of seeds)"),
            *lines_if(is_uneven, f"({counted(one.seeds, one.unit)})"),
        ]
        for of, one in each
    )
    labels = ("\n".join(line for part in of for line in textwrap.wrap(part, LETTERS)) for of in lines)
    return dict(zip(labels, (one for _, one in each), strict=True))


def _at_levels(comparison: Comparison) -> list[tuple[Any, ...]]:
    """The differences that contrasts of contrasts compare, but for those that have a verdict, with intervals
    that hold together: label, mean, low, high, verdict."""
    crossed = [one for one in comparison.tested if one.variant.difference]
    judged = {one.variant.minus(one.baseline).name for one in comparison.tested if not one.is_sum}
    sides = {
        side.name: (one, side) for one in crossed for side in reversed(one.both) if side.name not in judged
    }
    table = comparison.summary.set_index("variant").loc[[*sides], ["n", "mean", "sd"]]
    n, mean, sd = table.to_numpy(float).T
    half = stats.half_width(n, sd, _level(sides))
    labels = ["\n".join(_of_levels(one, crossed, side)) for one, side in sides.values()]
    return [*zip(labels, mean, mean - half, mean + half, [ALONE] * len(sides), strict=True)]


def _level(of: Sized) -> float:
    """That of intervals which hold together."""
    return 1 - stats.ALPHA / max(len(of), 1)


def _of_levels(one: Finding, among: Sequence[Finding], *sides: Variant) -> list[str]:
    """What a contrast of contrasts is called, in lines: mine − concat, and heads=4 − heads=2; or, of one of
    its sides, heads=4; empty for any other."""
    of = one.variant.difference
    apart = [column for column in one.variant.place or one.apart if column not in of]
    name = (one.variant.arm or one.variant.label(of)).replace(" - ", " − ")
    setting = f" ({where})" if (where := setting_apart(one, among, None)) else ""
    places = " − ".join(side.label(apart) for side in sides or one.both)
    return [f"{name}{setting}:", places] if of else []


def _baseline(comparison: Comparison) -> str:
    """The baseline of all contrasts or, of several, the arm that all are or what tells each from its
    variants, and what it shares with them; empty if that differs, too."""
    pairs = [one for one in comparison.tested if not (one.is_sum or one.variant.difference)]
    bases, apart = {one.baseline.name for one in pairs}, {one.baseline.arm or one.sides()[1] for one in pairs}
    if len(bases) == 1 or len(apart) != 1:
        return called(comparison)[bases.pop()] if len(bases) == 1 else ""
    equal = {of.partition("=")[0] for one in pairs for of in setting_apart(one, pairs, None).split(", ")}
    return apart.pop() + f" at equal {joined(sorted(equal - {''}))}" * any(equal)


def _title(metric: str, of: str, higher_is_better: bool | None) -> list[str]:
    """The title of an axis of differences, in lines."""
    words, _, more = in_words(metric, higher_is_better).partition(" (")
    return [f"{words}: {of}", *lines_if(more, f"({more}")]


def _band(margin: float, axis: str = "x") -> list[alt.Chart]:
    """The differences that are too small to matter, if there is a margin."""
    band = alt.Chart(pd.DataFrame([{"from": -margin, "to": margin}])).mark_rect(opacity=0.2, color=NEGLIGIBLE)
    return lines_if(margin > 0, band.encode(**{axis: "from:Q", f"{axis}2": "to:Q"}))


def _zero(axis: str = "x") -> alt.Chart:
    rule = alt.Chart(pd.DataFrame([{"zero": 0}])).mark_rule(color=GREY, strokeDash=[3, 3])
    return rule.encode(**{axis: "zero:Q"})


def _curves(page: Page) -> Iterator[Figure]:
    """Differences in validation loss over the second half of the training or, if nothing is compared,
    the loss itself, with their intervals."""
    comparison = page.comparison
    rows = comparison.rows[comparison.rows["status"].isin(USABLE)]
    variant, seeds = names(rows, comparison.shown), rows.set_index("run_id")["seed"]
    points = [
        (row["step"], seeds[run_id], variant[run_id], row["val_loss"])
        for run_id, directory in page.subject.directories.items()
        for row in read_metrics(directory)
        if "val_loss" in row and run_id in variant
    ]
    losses = pd.DataFrame(points, columns=["step", "seed", "variant", "val_loss"])
    loss = losses.groupby(["step", "seed", "variant"])["val_loss"].mean().unstack("variant")
    pairs = {
        of: [side.name for side in one.both] for of, one in _contrasts(comparison).items() if not one.is_sum
    }
    apart = {of: loss[a] - loss[b] for of, (a, b) in pairs.items() if a in loss and b in loss}
    alone = {of: loss[name] for name, of in called(comparison).items() if name in loss}
    level = comparison.tested[0].level if apart else _level([])
    parts = [_late(each, level).assign(label=of.replace("\n", " ")) for of, each in (apart or alone).items()]
    data = pd.concat([*parts[: len(COLORS)], pd.DataFrame(columns=["label"])], ignore_index=True)
    if data.empty:
        return
    title, behind, labels = [column_named("val_loss").label], list[alt.Chart](), [*data["label"].unique()]
    if apart:
        title = _title("val_loss", f"difference to {_baseline(comparison) or 'the baseline'}", False)
        behind = [*_band(comparison.margin, "y"), _zero("y")]
    said = [f"Means over {counted_between(int(data['n'].min()), int(data['n'].max()), 'seed')}"]
    at = f"intervals at {levels_in_words([level])} at each step, side by side"
    said += lines_if(data["low"].notna().any(), at)
    if rows["eval_tokens"].nunique() == 1:  # what curves are of, and the table is not
        said.append(f"on at most {rows['eval_tokens'].max():,.0f} tokens")
    beside = data["label"].map(labels.index) - (len(labels) - 1) / 2
    data["at"] = data["step"] + beside * BESIDE * (data["step"].max() - data["step"].min())
    x = alt.X("at:Q", title="step", scale=MEASURED, axis=alt.Axis(tickMinStep=1, tickCount=TICKS))
    base = alt.Chart(data.round(6)).encode(x, colours("label", labels))
    mean, low = (alt.Y(f"{end}:Q", title=title, scale=MEASURED) for end in ("mean", "low"))
    rules = base.mark_rule(strokeWidth=0.75).encode(y=low, y2="high:Q")
    lines = base.mark_line(strokeWidth=1, point={"size": 14, "filled": True}).encode(y=mean)
    chart = spec(alt.layer(*behind, rules, lines), 170)
    yield Figure("curves", "Over the training", f"{'; '.join(said)}.", chart, data)


def _late(values: pd.Series, level: float) -> pd.DataFrame:
    """step, n, mean, low, high of values by step and seed, at steps that all seeds have, of the second half
    or, if that has one, of all of the training. level: of the intervals."""
    table = values.dropna().groupby("step").agg(["count", "mean", "std"]).reset_index()
    n, mean, sd = table[["count", "mean", "std"]].to_numpy(float).T
    half = stats.half_width(n, sd, level)
    table = table.assign(n=n.astype(int), low=mean - half, high=mean + half)[n == n.max(initial=0)]
    late = table[table["step"] >= table["step"].max() / 2]
    late = late if len(late) > 1 else table
    return late.iloc[np.unique(np.linspace(0, len(late) - 1, POINTS).round().astype(int))[: len(late)]]


CHARTS = (_differences, _curves)  # in reading order
