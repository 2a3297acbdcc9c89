"""A comparison for readers: captions, tables with few columns, closing sentences. Prints nothing."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import POWER, Comparison
from ablate.analysis.contrasts import EQUAL, names
from ablate.config.overrides import spelled
from ablate.phrases import counted, counted_between
from ablate.store.columns import column_named

PERHAPS = ", perhaps within the margin"
WORTH_SAYING = 0.01  # by how much an early look overstates a difference


def for_reading(comparison: Comparison, family: str, *, marginal: bool = False) -> pd.DataFrame:
    """One family for readers: the columns that distinguish the variants, and the numbers behind the
    verdict."""
    table = comparison.family(family)
    if comparison.ladder:  # which takes no more seeds
        table = table.assign(more_seeds=pd.array([pd.NA] * len(table), "Int64"))
    shown = [column for column in comparison.shown if comparison.table[column].nunique() > 1]
    read = table[shown or comparison.shown[:1]].copy()
    read["n"] = numbers_of_seeds(table)
    if "match_error" in table:  # the difference in cost that remains after matching
        read["params"] = table["params"]
        read["match_error"] = ["" if error != error else f"{error:+.1%}" for error in table["match_error"]]
    read["mean"] = table["mean"]
    if table["sd"].notna().any():
        read["sd"] = table["sd"]
    if table["diff"].notna().any():
        read["diff"] = ["" if diff != diff else f"{diff:+.4f}" for diff in table["diff"].tolist()]
    if table["diff"].notna().any() and comparison.table["n"].max() > 1:  # one seed decides nothing
        read["[low, high]"] = _intervals(table, "low", "high")
        if marginal:
            level = confidence(comparison)
            read[f"marginal {level}"] = _intervals(table, "low_marginal", "high_marginal")
        if table["controlled"].notna().any():
            read[f"with {spelled(comparison.placebo)}"] = [
                _interval(row, "controlled") for row in table.to_dict("records")
            ]
        if table["share"].notna().any():
            read["share"] = ["" if share != share else f"{share:.0%}" for share in table["share"].tolist()]
        read["p_holm"] = [_p(p) for p in table["p_holm"].tolist()]
        read["verdict"] = [_with_why(row) for row in table.to_dict("records")]
        if table["look"].notna().any():
            read["seeds"] = ["" if pd.isna(row["look"]) else _look(row) for row in table.to_dict("records")]
    if "step_ms" in table:
        read["step_ms"] = table["step_ms"]
        read["step_ratio"] = [step_ratio(row) for row in table.to_dict("records")]
    if table["best"].any():
        read["best"] = table["best"]
    return read


def numbers_of_seeds(table: pd.DataFrame) -> list[str]:
    """The number of seeds of each row, with those that ended without a number: 7 + 1 diverged."""
    counts = zip(table["n"], table["diverged"].astype(int), strict=True)
    return [f"{n} + {lost} diverged" if lost else str(n) for n, lost in counts]


def verdict(row: Mapping[Any, Any]) -> str:
    """The verdict of a row of a comparison in words; empty without one."""
    return f"{row['verdict'] or ''}{PERHAPS if is_perhaps_within(row) else ''}"


def is_perhaps_within(row: Mapping[Any, Any]) -> bool:
    """Whether a decided difference may be within the margin, as its interval reaches into it."""
    is_beyond = row["verdict"] in (stats.BETTER, stats.WORSE, stats.HIGHER, stats.LOWER)
    return is_beyond and min(abs(row["low"]), abs(row["high"])) < row["margin"]


def caption(comparison: Comparison, family: str) -> str:
    """The caption of a family: what its p-values and intervals are corrected for, in a line or two."""
    table = comparison.family(family)
    tested = table[table["p"].notna()]
    margin = f"margin {comparison.margin:g}{unit(comparison.metric)}"
    if comparison.margin != comparison.margin:
        margin = "without --margin, so none is called equivalent"
    if tested.empty:
        return f"{family} ({comparison.metric}): nothing tested"
    level = confidence(comparison)
    named = "named beforehand" if family == "primary" else "a lead to test, not a result"
    levels = [f"{100 * level:.4g} %" for level in sorted({*tested["level"]})]
    each = f"each at {' to '.join([*dict.fromkeys([levels[0], levels[-1]])])}"
    correlation = tested["correlation"].median()
    seeds = "" if correlation != correlation else f", seed correlation {correlation:.2f} (median)"
    repeated = "repeated " if tested["look"].notna().any() else ""
    return (
        f"{family} ({comparison.metric}; {named}): {counted(len(tested), 'comparison')},"
        f" p_holm by Holm over them,\n{repeated}simultaneous {level} intervals ({each}), {margin}{seeds}"
    )


def sentences(comparison: Comparison) -> list[str]:
    """The findings: one sentence per primary contrast or, without any, per contrast that was tested."""
    primary = comparison.family("primary")
    table = comparison.table
    compared = table[table["p"].notna() | (table["verdict"] == stats.IDENTICAL)]
    if len(primary):
        compared = primary[primary["baseline"].notna()]
    voice = PAPER if comparison.higher_is_better is not None else replace(PAPER, verbs=("higher", "lower"))
    return [
        *(
            f"{finding(row, comparison, voice)}{parametrization(row, comparison)}."
            for row in compared.to_dict("records")
        ),
        *interactions(comparison),
    ]


def interactions(comparison: Comparison) -> list[str]:
    """Sentences on the interaction of projection and number of heads, if a study asks about it."""
    rows = comparison.interaction.to_dict("records")
    return [_interaction(row, comparison) for row in rows if row["p"] == row["p"]]


def _interaction(row: Mapping[Any, Any], comparison: Comparison) -> str:
    decided = "" if row["low"] > 0 or row["high"] < 0 else "undecided, "
    if lost := row["more_diverged"]:
        decided = f"undecided, since one variant diverged on {counted(lost, 'more seed')} than another, "
    few = row["effect"].rpartition(" − ")[2]
    remains = _interval(row, "controlled")
    under = spelled(comparison.placebo)
    at_few = _interval(row, "at_few")
    assumed = f"; off − on with {few}{f' and {under}' if remains else ''} is {at_few}" if at_few else ""
    if at_few and few == "heads=1":
        assumed += ", which is parametrization, and is taken to be as large with more heads"
    return (
        f"{row['effect']}, without the projection less the same with it: {decided}{signed(row['diff'])}"
        f"{unit(comparison.metric)} [{number(row['low'])}, {number(row['high'])}], n = {row['n']} paired"
        f" seeds, Holm p {_is(row['p_holm'])}{f'; with {under} {remains}' if remains else ''}{assumed}."
    )


def _interval(row: Mapping[Any, Any], name: str) -> str:
    """A difference with its interval; empty if there is none."""
    diff, low, high = (row[column] for column in (name, f"{name}_low", f"{name}_high"))
    interval = f" [{number(low)}, {number(high)}]" if low == low else ""
    return "" if diff != diff else f"{signed(diff)}{interval}"


def step_ratio(row: Mapping[Any, Any]) -> str:
    """The relative time of a training step with its range; empty if it was not measured."""
    ratio, low, high = (row[f"step_ratio{end}"] for end in ("", "_low", "_high"))
    return "" if ratio != ratio else f"{ratio:.2f} [{low:.2f}, {high:.2f}]"


def share_of_attention(share: float) -> str:
    """The words for a difference as a share of what attention is worth; empty if that is not known."""
    return f", {percent(share)} of what attention is worth" if math.isfinite(share) else ""


def percent(share: float) -> str:
    """A share without its sign: 0.62 %, 3.2 %, 116 %."""
    percent = 100 * abs(share)
    return f"{percent:,.0f} %" if percent >= 10 else f"{percent:.2g} %"


def parametrization(row: Mapping[Any, Any], comparison: Comparison) -> str:
    """The end of a sentence on a difference: how much of it is parametrization, as far as that is known;
    empty for one that was not tested."""
    remains, words = _interval(row, "controlled"), []
    if row["p"] != row["p"]:
        return ""
    if row["same_class"]:
        words.append("both can learn the same functions, so all of it is parametrization")
    if remains:
        words.append(f"with {spelled(comparison.placebo)}, {remains} remains of {signed(row['diff'])}")
    return "".join(f"; {part}" for part in words)


@dataclass(frozen=True)
class Voice:
    """How a contrast is put into a sentence, without its full stop: a template for each kind of verdict, with
    the fields of `fields`. verbs: {verb} for better and for worse, or for higher and for lower. within,
    perhaps, beyond: {weight} of a difference within the margin, perhaps within it, and of any other."""

    untested: str
    undecided: str
    equivalent: str
    decided: str
    verbs: tuple[str, str]
    within: str
    perhaps: str
    beyond: str = ""


PAPER = Voice(
    untested="{one} against {other}{at}: undecided, {why}",
    undecided="{one} against {other}{at} is undecided: difference {diff}{of} [{low}, {high}],"
    " n = {seeds}, Holm p {p}{reason}{more}{look}",
    equivalent="{one} and {other}{at} are equivalent within {margin}{of}: difference {diff} [{low}, {high}],"
    " n = {seeds}, Holm TOST p {p_tost}{family}{look}",
    decided="{one} is {verb} than {other}{at} by {size}{of} [{least}, {most}]{weight},"
    " n = {seeds}, Holm p {p}{family}{look}",
    verbs=("better", "worse"),
    within=", but within the margin of {margin}",
    perhaps=", perhaps within the margin of {margin}",
)


def finding(
    row: Mapping[Any, Any],
    comparison: Comparison,
    voice: Voice,
    terms: Mapping[str, str] | None = None,
    **given: str,
) -> str:
    """The sentence on one contrast, without its full stop. row: of the comparison. terms: as of `names`.
    given: fields to use in place of the row's."""
    known = {**fields(row, comparison, terms), **given}
    found = row["verdict"]
    if found == EQUAL:
        return f"{known['one']} is {row['why']}: nothing to test"
    if found == stats.IDENTICAL:
        return f"{known['one']} and {known['other']}{known['at']} are {row['why']}"
    if row["p"] != row["p"]:
        return voice.untested.format(**known)
    weight = voice.within if found in stats.WITHIN else voice.beyond
    weight = f"{weight}{voice.perhaps}" if is_perhaps_within(row) else weight
    first = (stats.BETTER, stats.BETTER_WITHIN, stats.HIGHER, stats.HIGHER_WITHIN)
    verb = voice.verbs[found not in first]
    by_verdict = {stats.UNDECIDED: voice.undecided, stats.EQUIVALENT: voice.equivalent}
    return by_verdict.get(found, voice.decided).format(**known, verb=verb, weight=weight.format(**known))


def fields(
    row: Mapping[Any, Any], comparison: Comparison, terms: Mapping[str, str] | None = None
) -> dict[str, str]:
    """What sentences say of a contrast: one and other, as called by `terms`, and at, the setting that they
    share; the difference with its interval as it is (diff, low, high), and as a size above 0 (size, least,
    most); of, the unit; seeds, how many there are."""
    one, other, setting = names(row["variant"], row["baseline"] or "", terms)
    diff, low, high = (row[name] for name in ("diff", "low", "high"))
    as_it_is, turned = (diff, low, high), (-diff, -high, -low)
    size = as_it_is if diff > 0 else turned
    called = ("diff", "low", "high", "size", "least", "most")
    numbers = dict(zip(called, (*as_it_is, *size), strict=True))
    why = row["why"] or ""
    return {
        **{name: number(value) for name, value in numbers.items() if value == value},
        **{"one": one, "other": other, "at": f" ({setting})" if setting else ""},
        **{"of": unit(comparison.metric), "margin": f"{comparison.margin:g}"},
        "seeds": seeds_in_words(pd.DataFrame([row])),
        **{"p": _is(row["p_holm"]), "p_tost": _is(row["p_tost_holm"])},
        **{"why": why, "reason": f"; {why}" if why else ""},
        "more": "" if comparison.ladder else more_seeds(row["more_seeds"]),
        "look": at_look(row),
        "family": "" if row["family"] == "primary" else " (exploratory)",
        "share": share_of_attention(row["share"]),
        "perplexity": perplexity(row["ratio"]),
    }


def seeds_in_words(tested: pd.DataFrame) -> str:
    """How many seeds some contrasts have: 8 paired seeds, or 5 to 8 seeds a variant, not paired."""
    of_groups, pairs = tested[tested["n_baseline"].notna()], tested[tested["n_baseline"].isna()]["pairs"]
    parts = [counted_between(int(pairs.min()), int(pairs.max()), "paired seed")] if len(pairs) else []
    if len(of_groups):
        n = of_groups[["n", "n_baseline"]].astype(int)
        parts.append(
            f"{counted_between(int(n.min().min()), int(n.max().max()), 'run')} a variant, not paired"
        )
    return "; ".join(parts)


def perplexity(ratio: float) -> str:
    """The words for a ratio of perplexities, which is exp of a difference in nats; empty if unknown."""
    if not math.isfinite(ratio):
        return ""
    return f", about {percent(ratio - 1)} {'more' if ratio > 1 else 'less'} perplexity"


def more_seeds(count: Any) -> str:
    """Words on how many more seeds would decide, if the true difference is the one observed."""
    if pd.isna(count):
        return ""
    return f"; about {counted(count, 'more seed')} would decide it (power {100 * POWER:g} %)"


def at_look(row: Mapping[Any, Any]) -> str:
    """Words on the look at which a contrast was decided or stands; empty for a fixed number of seeds."""
    if pd.isna(row["look"]):
        return ""
    is_decided = row["verdict"] != stats.UNDECIDED
    larger = f", where such differences come out {percent(row['overstated'])} too large on average"
    overstated = row["overstated"] >= WORTH_SAYING
    when = "decided at" if is_decided else "so far"
    return f"; {when} {_look(row, 'of at most')} seeds{larger if overstated else ''}"


def _look(row: Mapping[Any, Any], of: str = "of") -> str:
    return f"{row['look']} {of} {row['last_look']}"


def _with_why(row: Mapping[Any, Any]) -> str:
    """The verdict and, where there is none, what would bring one or why there is none."""
    if row["verdict"] == stats.UNDECIDED and not pd.isna(row["more_seeds"]):
        return f"undecided: {counted(row['more_seeds'], 'more seed')}"
    if row["verdict"] == stats.UNDECIDED and row["why"]:
        return f"undecided: {row['why']}"
    return verdict(row)


def _intervals(table: pd.DataFrame, low: str, high: str) -> list[str]:
    ends = zip(table[low].tolist(), table[high].tolist(), strict=True)
    return ["" if a != a else f"[{a:.4f}, {b:.4f}]" for a, b in ends]


def number(value: float) -> str:
    """The number with three digits after the point, or four if it is small, and a true minus sign."""
    text = f"{value:.{3 if abs(value) >= 0.0095 else 4}f}"
    return "0.000" if float(text) == 0 else text.replace("-", "−")


def signed(value: float) -> str:
    """The number with its sign, for a difference that no word tells the direction of."""
    return f"{'+' if value > 0 else ''}{number(value)}"


def _p(value: float) -> str:
    if value != value:
        return ""
    return "< 0.001" if value < 0.001 else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def _is(p: float) -> str:
    return _p(p) if p < 0.001 else f"= {_p(p)}"


def unit(metric: str) -> str:
    """The unit of a metric, to follow a number."""
    return f" {unit}" if (unit := column_named(metric).unit) else ""


def confidence(comparison: Comparison) -> str:
    """The level at which the intervals of a family hold together, as in `95 %`."""
    return f"{100 * (1 - comparison.alpha):g} %"
