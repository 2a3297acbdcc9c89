"""What a finding says in a sentence, and how its numbers are written."""

from collections.abc import Mapping, Sequence

from ablate.analysis import stats
from ablate.analysis.findings import Finding
from ablate.config.contrast import FEWEST
from ablate.phrases import counted_between, lines_if
from ablate.store.columns import column_named

Terms = Mapping[str, str] | None  # what a study calls its arms or levels
TRAINING = "; {} represent the same functions, so what differs is training"
BETTER = {True: "higher is better", False: "lower is better", None: ""}
# By whether more is better, or that is not known: what a variant does that is better, or worse.
VERBS = {False: ("saves", "costs"), True: ("gains", "loses"), None: ("is higher by", "is lower by")}


def sentence(one: Finding, terms: Terms = None, at: str | None = None, *, long: bool = True) -> str:
    """The sentence on one contrast, without its full stop. at: the setting that both share, in place of all
    of it. long: with its interval, the look, and what a difference amounts to."""
    first, second = one.sides(terms)
    against = f" against {second}" if second else ""
    apart = f"{first} and {second} differ" if second else f"{first} differs from 0"
    setting = ", ".join(setting_of(one, terms)) if at is None else at
    where = f" ({setting})" if setting else ""
    of = unit(one.metric) or f" of {one.metric}"
    if not one.verdict:
        is_same = one.why.startswith("the same function")
        return f"{first} is {one.why}" if is_same else f"{first} and {second}{where} are {one.why}"
    better, worse = VERBS[one.higher_is_better]
    look = ""
    if long and one.look is not None:
        when = "so far" if one.is_undecided else "decided at"
        look = f"; {when} {one.look} of at most {one.last_look} seeds"
    training = TRAINING.format("both" if second else "all") if long and one.same_class else ""
    if one.verdict == stats.EQUIVALENT:
        found = f": {number(one.diff)} ({number(one.low)} to {number(one.high)})" if long else ""
        return f"{apart} by less than {one.margin:g}{of}{where}{found}{training}{look}"
    if one.verdict in (stats.BETTER, stats.WORSE):
        least, most = sorted((abs(one.low), abs(one.high)))
        size = f"{better if one.verdict == stats.BETTER else worse} {number(abs(one.diff))}{of}"
        return f"{first} {size} ({number(least)} to {number(most)}){against}{where}{training}{look}"
    either = f"{worse} or {better}" if better == "saves" else f"{better} or {worse}"
    open_ = f"{first} {either} anything{against}" if one.higher_is_better is not None else apart
    found = f" ({number(one.low)} to {number(one.high)}{of})" if long and one.low == one.low else ""
    return f"whether {open_}{where} is undecided{found}: {one.why}{look}"


def setting_of(one: Finding, terms: Terms = None) -> list[str]:
    """What the two variants of a contrast share, as K=V each; nothing if both arms are called by `terms`."""
    if terms and all(terms.get(side.arm) for side in (one.variant, one.baseline)):
        return []
    return [one.variant.label([column], bare=()) for column in one.shared]


def paired_in_words(tested: Sequence[Finding]) -> str:
    """How many paired seeds some contrasts have; empty if none pairs."""
    pairs = [one.seeds for one in tested if one.pairs is not None]
    return counted_between(min(pairs), max(pairs), f"paired {tested[0].unit}") if pairs else ""


def units_in_words(tested: Sequence[Finding], items: str = "") -> str:
    """How many seeds some contrasts have: 8 paired seeds, or 5 to 8 runs a variant, not paired; and whether
    these are too few. items: what each is a mean over."""
    parts = [*filter(None, [paired_in_words(tested)])]
    if runs := [n for one in tested if one.pairs is None for n in (one.n, one.n_baseline)]:
        parts.append(f"{counted_between(min(runs), max(runs), 'run')} a variant, not paired")
    few = lines_if(any(one.seeds < FEWEST for one in tested), f", too few for a verdict (at least {FEWEST})")
    return "".join(["; ".join(parts), *lines_if(items, f", {items} each"), *few])


def number(value: float) -> str:
    """The number with three digits after the point, or four if it is small, and a true minus sign."""
    text = f"{value:.{3 if abs(value) >= 0.0095 else 4}f}"
    return "0.000" if float(text) == 0 else text.replace("-", "−")


def interval(low: float, high: float, digits: str) -> str:
    """[low, high], formatted so; empty without one."""
    return "" if low != low else f"[{low:{digits}}, {high:{digits}}]"


def unit(metric: str) -> str:
    """The unit of a metric, to follow a number."""
    return f" {unit}" if (unit := column_named(metric).unit) else ""


def in_words(metric: str, higher_is_better: bool | None) -> str:
    """What a metric is, with its unit and which way is better, as far as that is known."""
    words, _, of = column_named(metric).label.partition(" (")
    known = "; ".join(filter(None, (of.removesuffix(")"), BETTER[higher_is_better])))
    return f"{words} ({known})" if known else words


def confidence(tested: Sequence[Finding]) -> str:
    """How sure intervals are, and of what: those of one study hold together."""
    level = f"{100 * (1 - stats.ALPHA):g} % confidence"
    studies = {one.study for one in tested}
    if len(studies) > 1:
        return f"{level} for those of each study together"
    together = {1: "", 2: " for both together"}.get(len(tested), f" for all {len(tested)} together")
    return f"{level}{together}"
