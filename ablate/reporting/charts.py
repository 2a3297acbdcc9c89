"""The charts of a comparison, each a function from the page to its figures, with its own numbers. A new chart
is a function that is named in CHARTS."""

import functools
import textwrap
from collections.abc import Iterator, Sequence

import altair as alt
import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import Comparison
from ablate.analysis.findings import Finding
from ablate.phrases import capital, counted, counted_between, joined, lines_if
from ablate.reporting.cells import brief, called, each_and_together, percent
from ablate.reporting.figures import COLORS, GREY, MEASURED, SPARSE, TICKS, Figure, colours, spec
from ablate.reporting.page import Page
from ablate.reporting.words import in_words, setting_apart, units_in_words
from ablate.store.columns import column_named
from ablate.store.run_files import read_metrics

ALONE = "each level"
VERDICTS = {  # their colours and shapes
    ALONE: ("#3b82c4", "circle"),
    stats.EQUIVALENT: ("#9467bd", "square"),
    stats.BETTER: ("#2e9e6b", "diamond"),
    stats.WORSE: ("#d64550", "cross"),
    stats.HIGHER: ("#d9730d", "triangle-up"),  # of two levels, none of which is better
    stats.LOWER: ("#178f9e", "triangle-down"),
    stats.UNDECIDED: (GREY, "circle"),
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
    comparison, tested = page.comparison, page.comparison.tested
    if not tested:
        return
    wrap = functools.partial(textwrap.fill, width=LETTERS)
    named = [*_at_levels(comparison), *_contrasts(comparison)]
    rows = [("\n".join(map(wrap, label)), one) for label, one in named]
    numbers = [
        (label, diff, one.low, one.high, one.word or ALONE)
        for label, one in rows
        for _, diff in one.kinds or [(0, one.diff)]
    ]
    data = pd.DataFrame(numbers, columns=["label", "diff", "low", "high", "verdict"])
    drawn = [verdict for verdict in VERDICTS if verdict in {*data["verdict"]}]
    colors, shapes = (alt.Scale(domain=drawn, range=[VERDICTS[of][at] for of in drawn]) for at in (0, 1))
    y = alt.Y("label:N", sort=[*data["label"]], title=None, axis=alt.Axis(grid=False))
    base = alt.Chart(data).encode(y=y, color=alt.Color("verdict:N", scale=colors, legend=IN_PAIRS))
    points = base.mark_point(filled=True, size=30, opacity=1)
    points = points.encode(x="diff:Q", shape=alt.Shape("verdict:N", scale=shapes, legend=IN_PAIRS))
    x = alt.X("low:Q", title=_title(comparison, comparison.metric), axis=SPARSE, scale=alt.Scale(padding=6))
    rules = base.mark_rule(strokeWidth=1.5).encode(x=x, x2="high:Q")
    is_planned, said = tested[0].is_planned, _said([one for _, one in rows], comparison)
    key = f"intervals-{'planned' if is_planned else 'exploratory'}"
    behind, most = [*_band(comparison.margin), _zero()], 1 + int(data["label"].str.count("\n").max())
    height = ROOM + ROW * data["label"].nunique() * most
    chart = spec(alt.layer(*behind, rules, points), height)
    yield Figure(key, "Differences to the baseline", _sentences(said), chart, data)
    paired = [(label, one) for label, one in rows if one.pairs is not None]
    pairs = [(label, one.word or ALONE, value) for label, one in paired for value in one.differences.tolist()]
    if len(each := pd.DataFrame(pairs, columns=["label", "verdict", "of pair"]).dropna()):
        seeds = base.properties(data=each).mark_point(filled=True, size=8, opacity=0.7, yOffset=5)
        chart = spec(alt.layer(*behind, rules, points, seeds.encode(x="of pair:Q")), height)
        about = _sentences([*said, f"dots: single {tested[0].unit}s"])
        yield Figure("seeds", "Differences of pairs", about, chart, each)


def _said(rows: Sequence[Finding], comparison: Comparison) -> list[str]:
    """What rows show."""
    tested, verdicts = comparison.tested, {one.word for one in rows}
    alone, groups = [one.level for one in rows if not one.verdict], any(one.kinds for one in rows)
    clear = [of for of in VERDICTS if of in verdicts - {stats.EQUIVALENT, stats.UNDECIDED}]
    whys = dict.fromkeys(one.why.partition(",")[0].partition(":")[0] for one in tested if one.is_undecided)
    return [
        f"Means over {units_in_words(tested)}, intervals at {each_and_together(tested)}",
        *lines_if(alone, f"{ALONE} at {percent(alone)}"),
        *lines_if(groups, "a point each where seeds are in two groups"),
        *lines_if(not tested[0].is_planned, "exploratory"),
        *_shaded(comparison.margin),
        *lines_if(stats.EQUIVALENT in verdicts, "equivalent: an interval in the shade"),
        *lines_if(clear and not groups, f"{' or '.join(clear)}: an interval clear of 0"),
        *lines_if(whys, f"undecided: {joined([*whys])}"),
    ]


def _sentences(said: Sequence[str]) -> str:
    return " ".join(f"{capital(one)}." for one in said)


def _at_levels(comparison: Comparison) -> list[tuple[list[str], Finding]]:
    """The differences that contrasts of contrasts compare, but for those that have a verdict of their own."""
    crossed = [one for one in comparison.tested if one.variant.difference]
    judged = {one.variant.minus(one.baseline).name for one in comparison.tested if not one.is_sum}
    levels = comparison.levels.items()
    return [(_of_levels(one, crossed), one) for name, one in levels if name not in judged]


def _contrasts(comparison: Comparison) -> list[tuple[list[str], Finding]]:
    """The contrasts as the table calls their variants, in lines, with baselines that differ in more than what
    they share with these, and in its order."""
    names, tested, several = called(comparison), comparison.tested, not _baseline(comparison)
    order = {name: at for at, name in enumerate(names)}
    each = sorted(tested, key=lambda one: order[one.name if one.is_sum else one.variant.name])
    is_uneven = len({one.seeds for one in tested}) > 1

    def lines(one: Finding, *, whole: bool) -> list[str]:
        name = names[one.name if one.is_sum else one.variant.name]
        name, has_two = name if whole else brief(name), (several or whole) and not one.is_sum
        pair = [name, *lines_if(has_two, f"− {names.get(one.baseline.name)}")]
        return [
            *(_of_levels(one, tested) if one.variant.difference else pair),
            *lines_if(one.kinds, "(two groups of seeds)"),
            *lines_if(is_uneven, f"({counted(one.seeds, one.unit)})"),
        ]

    short = [lines(one, whole=False) for one in each]
    whole = [lines(one, whole=short.count(label) > 1) for label, one in zip(short, each, strict=True)]
    return [*zip(whole, each, strict=True)]


def _of_levels(one: Finding, among: Sequence[Finding]) -> list[str]:
    """What a contrast of contrasts is called, in lines: mine − concat, and heads=4 − heads=2; or a difference
    at one level."""
    sides = one.both if one.verdict else [one.variant]
    apart = [column for column in one.variant.place or one.apart if column not in one.variant.difference]
    places = [side.label(apart) for side in sides]
    of = [(side.arm or side.label(side.difference)).replace(" - ", " − ") for side in sides]
    setting = f" ({where})" if (where := setting_apart(one, among, None)) else ""
    if len({*of}) > 1:
        return [f"{of[0]} {places[0]}".rstrip(), f"− ({f'{of[1]} {places[1]}'.rstrip()})"]
    return [f"{of[0]}{setting}:", " − ".join(places)] if places[0] else [f"{of[0]}{setting}"]


def _baseline(comparison: Comparison) -> str:
    """The baseline of all contrasts or, of several, the arm that all are or what tells each from its
    variants, and what it shares with them; empty if that differs, too."""
    pairs = [one for one in comparison.tested if not (one.is_sum or one.variant.difference)]
    bases, apart = {one.baseline.name for one in pairs}, {one.baseline.arm or one.sides()[1] for one in pairs}
    if len(bases) == 1 or len(apart) != 1:
        return called(comparison)[bases.pop()] if len(bases) == 1 else ""
    equal = {of.partition("=")[0] for one in pairs for of in setting_apart(one, pairs, None).split(", ")}
    return apart.pop() + f" at equal {joined(sorted(equal - {''}))}" * any(equal)


def _title(comparison: Comparison, metric: str) -> list[str]:
    """The title of an axis of differences, in lines."""
    better = comparison.arrays.higher_is_better if metric == comparison.metric else False
    words, _, more = in_words(metric, better).partition(" (")
    is_crossed = any(one.variant.difference for one in comparison.tested)
    of = "differences" if is_crossed else f"difference to {_baseline(comparison) or 'the baseline'}"
    return [f"{words}: {of}", *lines_if(more, f"({more}")]


def _band(margin: float, axis: str = "x") -> list[alt.Chart]:
    """The differences that are too small to matter, if there is a margin."""
    band = alt.Chart(pd.DataFrame([{"from": -margin, "to": margin}])).mark_rect(opacity=0.2, color=NEGLIGIBLE)
    return lines_if(margin > 0, band.encode(**{axis: "from:Q", f"{axis}2": "to:Q"}))


def _shaded(margin: float) -> list[str]:
    return lines_if(margin > 0, f"shaded: ±{margin:g}, too small to matter")


def _zero(axis: str = "x") -> alt.Chart:
    rule = alt.Chart(pd.DataFrame([{"zero": 0}])).mark_rule(color=GREY, strokeDash=[3, 3])
    return rule.encode(**{axis: "zero:Q"})


def _curves(page: Page) -> Iterator[Figure]:
    """The validation loss over the second half of the training, with intervals: differences of what pairs or,
    without any, the loss itself."""
    comparison, arrays = page.comparison, page.comparison.arrays
    place = {
        run_id: (name, unit)
        for name, ids, values in zip(arrays.names, arrays.run_ids.tolist(), arrays.values, strict=True)
        for unit, (run_id, value) in enumerate(zip(ids, values, strict=True))
        if run_id and np.isfinite(value)
    }
    points = [
        (row["step"], *place[run_id], row["val_loss"])
        for run_id, directory in page.subject.directories.items()
        for row in read_metrics(directory)
        if "val_loss" in row and run_id in place
    ]
    losses = pd.DataFrame(points, columns=["step", "variant", "unit", "val_loss"])
    loss = losses.set_index(["step", "unit", "variant"])["val_loss"].unstack("variant")
    paired = [(label, one) for label, one in _contrasts(comparison) if one.pairs and not one.is_sum]
    sides = [(" ".join(label), one, *(side.name for side in one.both)) for label, one in paired]
    curves = [(of, _late(loss[a] - loss[b], one)) for of, one, a, b in sides if a in loss and b in loss]
    apart = bool(curves)
    curves = curves or [(of, _late(loss[name])) for name, of in called(comparison).items() if name in loss]
    labels = [of for of, _ in curves[: len(COLORS)]]
    if not labels:
        return
    data = pd.concat([table.assign(label=of) for of, table in curves[: len(COLORS)]], ignore_index=True)
    is_shaded = apart and comparison.metric == "val_loss"
    behind = [*(_band(comparison.margin, "y") if is_shaded else []), *lines_if(apart, _zero("y"))]
    title = _title(comparison, "val_loss") if apart else [column_named("val_loss").label]
    n, at, beside_one_another = data["n"], percent(data["level"]), ", side by side" * (len(labels) > 1)
    said = [
        f"Means over {counted_between(int(n.min()), int(n.max()), arrays.unit)}",
        *lines_if(data["low"].notna().any(), f"intervals at {at} at each step{beside_one_another}"),
        *(_shaded(comparison.margin) if is_shaded else []),
        *lines_if(len(labels) < len(curves), f"the first {len(labels)} of {len(curves)}"),
    ]
    if losses["step"].min() < data["step"].min():
        said.append("the second half of the training")
    if (tokens := comparison.rows["eval_tokens"].dropna()).nunique() == 1:  # as the table is not
        said.append(f"on at most {float(tokens.max()):,.0f} tokens")
    beside = data["label"].map(labels.index) - (len(labels) - 1) / 2
    data["at"] = data["step"] + beside * BESIDE * (data["step"].max() - data["step"].min())
    x = alt.X("at:Q", title="step", scale=MEASURED, axis=alt.Axis(tickMinStep=1, tickCount=TICKS))
    base = alt.Chart(data.round(6)).encode(x, colours("label", labels))
    mean, low = (alt.Y(f"{end}:Q", title=title, scale=MEASURED) for end in ("mean", "low"))
    rules = base.mark_rule(strokeWidth=0.75).encode(y=low, y2="high:Q")
    lines = base.mark_line(strokeWidth=1, point={"size": 14, "filled": True}).encode(y=mean)
    chart = spec(alt.layer(*behind, rules, lines), 170)
    yield Figure("curves", "Over the training", _sentences(said), chart, data)


def _late(values: pd.Series, of: Finding | None = None) -> pd.DataFrame:
    """step, n, mean, low, high, level of values by step and unit, at steps that all units have, of the second
    half or, if that has one, of all of the training. of: the contrast of the intervals."""
    table = values.dropna().groupby("step").agg(["count", "mean", "std"]).reset_index()
    n, mean, sd = table[["count", "mean", "std"]].to_numpy(float).T
    level = of.level if of else 1 - stats.ALPHA
    half = stats.half_width(n, np.full(len(sd), np.nan) if of and of.kinds else sd, level)
    table = table.assign(n=n.astype(int), low=mean - half, high=mean + half, level=level)
    table = table[n == n.max(initial=0)]
    late = table[table["step"] >= table["step"].max() / 2]
    late = late if len(late) > 1 else table
    return late.iloc[np.unique(np.linspace(0, len(late) - 1, POINTS).round().astype(int))[: len(late)]]


CHARTS = (_differences, _curves)  # in reading order
