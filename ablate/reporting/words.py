"""What a finding says in a sentence, in one of several voices, and how its numbers are written."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ablate.analysis import stats
from ablate.analysis.compare import Comparison
from ablate.analysis.contrasts import EQUAL
from ablate.analysis.finding import Finding
from ablate.analysis.verdicts import POWER
from ablate.config.contrast import FEWEST
from ablate.phrases import counted, counted_between, lines_if
from ablate.store.columns import column_named


def verdict(one: Finding) -> str:
    """The verdict in words; empty without one."""
    return f"{one.verdict or ''}{perhaps(one)}"


def perhaps(one: Finding, margin: str = "the margin") -> str:
    """That a decided difference is perhaps within the margin; empty if its interval lies beyond it."""
    return f", perhaps within {margin}" if one.is_perhaps_within else ""


def sentences(comparison: Comparison) -> list[str]:
    """The findings: one sentence per primary contrast or, without any, per contrast that was tested."""
    primary = [one for one in comparison.findings if one.is_primary]
    told = primary or [one for one in comparison.findings if one.is_tested or one.verdict == stats.IDENTICAL]
    voice = PAPER if comparison.higher_is_better is not None else replace(PAPER, verbs=("higher", "lower"))
    return [f"{sentence(one, voice)}{remarks(one)}." for one in told]


def percent(share: float) -> str:
    """A share without its sign: 0.62 %, 3.2 %, 116 %."""
    percent = 100 * abs(share)
    return f"{percent:,.0f} %" if percent >= 10 else f"{percent:.2g} %"


def remarks(one: Finding) -> str:
    """The end of a sentence on a difference: whether all of it is parametrization; empty for one that
    was not tested."""
    is_same = one.is_tested and one.same_class
    return "; both can learn the same functions, so all of it is parametrization" if is_same else ""


@dataclass(frozen=True)
class Voice:
    """How a contrast is put into a sentence, without its full stop: a template for each kind of verdict, with
    the fields of `fields`. verbs: {verb} for better and for worse, or for higher and for lower. within,
    beyond: {weight} of a difference within the margin, and of any other."""

    untested: str
    undecided: str
    equivalent: str
    decided: str
    verbs: tuple[str, str]
    within: str
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
    weight += perhaps(found, "the margin of {margin}")
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
    setting = ", ".join(setting_of(one, terms))
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
        **{"p": equals(one.p_holm), "p_tost": equals(one.p_tost_holm)},
        **{"why": why, "reason": f"; {why}" if why else ""},
        **{"more": more_seeds(one.more_seeds), "look": at_look(one)},
        "family": "" if one.is_primary else " (exploratory)",
        "perplexity": perplexity(one.ratio),
    }


def setting_of(
    one: Finding, terms: Mapping[str, str] | None = None, columns: Collection[str] | None = None
) -> list[str]:
    """What the two variants of a contrast share, as K=V each; nothing if both arms are called by `terms`.
    columns: among these."""
    if terms and all(terms.get(side.arm) for side in (one.variant, one.baseline)):
        return []
    shared = [column for column in one.shared if columns is None or column in columns]
    return [one.variant.label([column], bare=()) for column in shared]


def seeds_in_words(tested: Sequence[Finding]) -> str:
    """How many seeds some contrasts have: 8 paired seeds, or 5 to 8 runs a variant, not paired; and whether
    these are too few."""
    pairs = [one.seeds for one in tested if one.n_baseline is None]
    parts = [counted_between(min(pairs), max(pairs), "paired seed")] if pairs else []
    if runs := [n for one in tested if one.n_baseline is not None for n in (one.n, one.n_baseline)]:
        parts.append(f"{counted_between(min(runs), max(runs), 'run')} a variant, not paired")
    few = lines_if(any(one.is_too_few for one in tested), f", too few for a verdict (at least {FEWEST})")
    return "".join(["; ".join(parts), *few])


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


def look(one: Finding, of: str = "of") -> str:
    """6 of 16: the look at which a contrast stands, and the last one; empty for a fixed number of seeds."""
    return "" if one.look is None else f"{one.look} {of} {one.last_look}"


def at_look(one: Finding) -> str:
    """Words on the look at which a contrast was decided or stands; empty for a fixed number of seeds."""
    if one.look is None:
        return ""
    when = "so far" if one.is_undecided else "decided at"
    return f"; {when} {look(one, 'of at most')} seeds"


def number(value: float) -> str:
    """The number with three digits after the point, or four if it is small, and a true minus sign."""
    text = f"{value:.{3 if abs(value) >= 0.0095 else 4}f}"
    return "0.000" if float(text) == 0 else text.replace("-", "−")


def interval(low: float, high: float, digits: str) -> str:
    """[low, high], formatted so; empty without one."""
    return "" if low != low else f"[{low:{digits}}, {high:{digits}}]"


def p_value(value: float) -> str:
    if value != value:
        return ""
    return "< 0.001" if value < 0.001 else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def equals(p: float) -> str:
    return p_value(p) if p < 0.001 else f"= {p_value(p)}"


def unit(metric: str) -> str:
    """The unit of a metric, to follow a number."""
    return f" {unit}" if (unit := column_named(metric).unit) else ""


def confidence(comparison: Comparison) -> str:
    """The level at which the intervals of a family hold together, as in `95 %`."""
    return f"{100 * (1 - comparison.alpha):g} %"
