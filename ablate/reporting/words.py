"""A comparison for readers: captions, tables with few columns, closing sentences. Prints nothing."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import Comparison
from ablate.analysis.contrasts import EQUAL
from ablate.analysis.controls import CONTROLLED
from ablate.analysis.finding import Finding
from ablate.analysis.verdicts import POWER
from ablate.config.overrides import spelled
from ablate.phrases import counted, counted_between, lines_if
from ablate.store.columns import column_named

PERHAPS = ", perhaps within the margin"
WORTH_SAYING = 0.01  # by how much an early look overstates a difference


def for_reading(comparison: Comparison, family: str, *, marginal: bool = False) -> pd.DataFrame:
    """One family for readers: the columns that distinguish the variants, and the numbers behind the
    verdict."""
    table = comparison.family(family)
    found = comparison.findings_of(table)
    read = table[comparison.varying or comparison.shown[:1]].copy()
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
        read["[low, high]"] = intervals(table, "low", "high")
        if marginal:
            level = confidence(comparison)
            read[f"marginal {level}"] = intervals(table, "low_marginal", "high_marginal")
        if table["controlled"].notna().any():
            ends = zip(*(table[name].tolist() for name in CONTROLLED), strict=True)
            read[f"with {spelled(comparison.placebo)}"] = [_remaining(*each) for each in ends]
        if table["share"].notna().any():
            read["share"] = ["" if share != share else f"{share:.0%}" for share in table["share"].tolist()]
        read["p_holm"] = [_p(p) for p in table["p_holm"].tolist()]
        read["verdict"] = verdicts(table, found, with_why=True)
        if table["look"].notna().any():
            read["seeds"] = [_look(one) if one else "" for one in found]
    if "step_ms" in table:
        read["step_ms"] = table["step_ms"]
        read["step_ratio"] = [step_ratio(row) for row in table.to_dict("records")]
    if table["best"].any():
        read["best"] = table["best"]
    return read


def verdicts(table: pd.DataFrame, found: Sequence[Finding | None], *, with_why: bool = False) -> list[str]:
    """The verdict of each row in words, or that it is a baseline. found: from each row. with_why: and, where
    there is no verdict, why."""
    tell = _with_why if with_why else verdict
    return [tell(one) if one else text or "" for one, text in zip(found, table["verdict"], strict=True)]


def intervals(table: pd.DataFrame, low: str, high: str, digits: str = ".4f") -> list[str]:
    """The interval of each row, from these columns."""
    return [interval(*ends, digits) for ends in zip(table[low].tolist(), table[high].tolist(), strict=True)]


def differences(table: pd.DataFrame, digits: str) -> list[str]:
    """The difference of each row with its interval; empty for a row without."""
    each = zip(table["diff"].tolist(), intervals(table, "low", "high", digits), strict=True)
    return ["" if diff != diff else f"{diff:+{digits}} {ends}".rstrip() for diff, ends in each]


def numbers_of_seeds(table: pd.DataFrame) -> list[str]:
    """The number of seeds of each row, with those that ended without a number: 7 + 1 diverged."""
    counts = zip(table["n"], table["diverged"].astype(int), strict=True)
    return [f"{n} + {lost} diverged" if lost else str(n) for n, lost in counts]


def verdict(one: Finding) -> str:
    """The verdict in words; empty without one."""
    return f"{one.verdict or ''}{PERHAPS if one.is_perhaps_within else ''}"


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
    primary = [one for one in comparison.findings if one.is_primary]
    told = primary or [one for one in comparison.findings if one.is_tested or one.verdict == stats.IDENTICAL]
    voice = PAPER if comparison.higher_is_better is not None else replace(PAPER, verbs=("higher", "lower"))
    return [
        *(f"{sentence(one, voice)}{parametrization(one, comparison.placebo)}." for one in told),
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
    remains, at_few = (
        _remaining(*(row[f"{name}{end}"] for end in ("", "_low", "_high")))
        for name in ("controlled", "at_few")
    )
    under, few = spelled(comparison.placebo), f"heads={row['few']}"
    assumed = f"; off − on with {few}{f' and {under}' if remains else ''} is {at_few}" if at_few else ""
    if at_few and few == "heads=1":
        assumed += ", which is parametrization, and is taken to be as large with more heads"
    return (
        f"{row['effect']}, without the projection less the same with it: {decided}{signed(row['diff'])}"
        f"{unit(comparison.metric)} {interval(row['low'], row['high'])}, n = {row['n']} paired"
        f" seeds, Holm p {_is(row['p_holm'])}{f'; with {under} {remains}' if remains else ''}{assumed}."
    )


def _remaining(diff: float, low: float, high: float) -> str:
    """A difference with its interval; empty if there is none."""
    return "" if diff != diff else f"{signed(diff)} {interval(low, high)}".rstrip()


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


def parametrization(one: Finding, placebo: Mapping[str, Any]) -> str:
    """The end of a sentence on a difference: how much of it is parametrization, as far as that is known;
    empty for one that was not tested. placebo: of the study."""
    if not one.is_tested:
        return ""
    words = lines_if(one.same_class, "both can learn the same functions, so all of it is parametrization")
    if remains := _remaining(one.controlled, one.controlled_low, one.controlled_high):
        words.append(f"with {spelled(placebo)}, {remains} remains of {signed(one.diff)}")
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


def sentence(found: Finding, voice: Voice, terms: Mapping[str, str] | None = None, **instead: str) -> str:
    """The sentence on one contrast, without its full stop. terms: words for levels. instead: fields to use in
    place of the finding's."""
    told = {**fields(found, terms), **instead}
    if found.verdict == EQUAL:
        return f"{told['one']} is {found.why}: nothing to test"
    if found.verdict == stats.IDENTICAL:
        return f"{told['one']} and {told['other']}{told['at']} are {found.why}"
    if not found.is_tested:
        return voice.untested.format(**told)
    weight = voice.within if found.verdict in stats.WITHIN else voice.beyond
    weight = f"{weight}{voice.perhaps}" if found.is_perhaps_within else weight
    first = (stats.BETTER, stats.BETTER_WITHIN, stats.HIGHER, stats.HIGHER_WITHIN)
    verb = voice.verbs[found.verdict not in first]
    by_verdict = {stats.UNDECIDED: voice.undecided, stats.EQUIVALENT: voice.equivalent}
    template = by_verdict.get(found.verdict or "", voice.decided)
    return template.format(**told, verb=verb, weight=weight.format(**told))


def fields(one: Finding, terms: Mapping[str, str] | None = None) -> dict[str, str]:
    """What sentences say of a contrast: one and other, as called by `terms`, and at, the setting that they
    share; the difference with its interval as it is (diff, low, high), and as a size above 0 (size, least,
    most); of, the unit; seeds, how many there are."""
    first, second = one.sides(terms)
    setting = ", ".join(setting_of(one))
    as_it_is, turned = (one.diff, one.low, one.high), (-one.diff, -one.high, -one.low)
    size = as_it_is if one.diff > 0 else turned
    called = ("diff", "low", "high", "size", "least", "most")
    numbers = dict(zip(called, (*as_it_is, *size), strict=True))
    why = one.why or ""
    return {
        **{name: number(value) for name, value in numbers.items() if value == value},
        **{"one": first, "other": second, "at": f" ({setting})" if setting else ""},
        **{"of": unit(one.metric), "margin": f"{one.margin:g}"},
        "seeds": seeds_in_words([one]),
        **{"p": _is(one.p_holm), "p_tost": _is(one.p_tost_holm)},
        **{"why": why, "reason": f"; {why}" if why else ""},
        **{"more": more_seeds(one.more_seeds), "look": at_look(one)},
        "family": "" if one.is_primary else " (exploratory)",
        "share": share_of_attention(one.share),
        "perplexity": perplexity(one.ratio),
    }


def setting_of(one: Finding, columns: Collection[str] | None = None) -> list[str]:
    """What the two variants of a contrast share, as K=V each. columns: among these."""
    shared = [column for column in one.shared if columns is None or column in columns]
    return [one.variant.label([column], bare=()) for column in shared]


def seeds_in_words(tested: Sequence[Finding]) -> str:
    """How many seeds some contrasts have: 8 paired seeds, or 5 to 8 seeds a variant, not paired."""
    pairs = [one.seeds for one in tested if one.n_baseline is None]
    parts = [counted_between(min(pairs), max(pairs), "paired seed")] if pairs else []
    if runs := [n for one in tested if one.n_baseline is not None for n in (one.n, one.n_baseline)]:
        parts.append(f"{counted_between(min(runs), max(runs), 'run')} a variant, not paired")
    return "; ".join(parts)


def perplexity(ratio: float) -> str:
    """The words for a ratio of perplexities, which is exp of a difference in nats; empty if unknown."""
    if not math.isfinite(ratio):
        return ""
    return f", about {percent(ratio - 1)} {'more' if ratio > 1 else 'less'} perplexity"


def more_seeds(count: int | None) -> str:
    """Words on how many more seeds would decide, if the true difference is the one observed."""
    if count is None:
        return ""
    return f"; about {counted(count, 'more seed')} would decide it (power {100 * POWER:g} %)"


def at_look(one: Finding) -> str:
    """Words on the look at which a contrast was decided or stands; empty for a fixed number of seeds."""
    if one.look is None:
        return ""
    larger = f", where such differences come out {percent(one.overstated)} too large on average"
    when = "so far" if one.is_undecided else "decided at"
    return f"; {when} {_look(one, 'of at most')} seeds{larger if one.overstated >= WORTH_SAYING else ''}"


def _look(one: Finding, of: str = "of") -> str:
    return "" if one.look is None else f"{one.look} {of} {one.last_look}"


def _with_why(one: Finding) -> str:
    """The verdict and, where there is none, what would bring one or why there is none."""
    if one.is_undecided and one.more_seeds is not None:
        return f"undecided: {counted(one.more_seeds, 'more seed')}"
    return f"undecided: {one.why}" if one.is_undecided and one.why else verdict(one)


def number(value: float) -> str:
    """The number with three digits after the point, or four if it is small, and a true minus sign."""
    text = f"{value:.{3 if abs(value) >= 0.0095 else 4}f}"
    return "0.000" if float(text) == 0 else text.replace("-", "−")


def signed(value: float) -> str:
    """The number with its sign, for a difference that no word tells the direction of."""
    return f"{'+' if value > 0 else ''}{number(value)}"


def interval(low: float, high: float, digits: str = "") -> str:
    """[low, high], formatted so or, for sentences, by `number`; empty without one."""
    ends = [f"{end:{digits}}" if digits else number(end) for end in (low, high)]
    return "" if low != low else f"[{', '.join(ends)}]"


def digits(metric: str) -> str:
    """How tables format numbers of this metric: steps with one digit after the point, all else with four."""
    return ",.1f" if column_named(metric).unit == "steps" else ".4f"


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
