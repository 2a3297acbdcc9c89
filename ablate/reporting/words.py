"""What a finding says in a sentence, and how its numbers are written."""

from collections.abc import Callable, Mapping, Sequence

from ablate.analysis import stats
from ablate.analysis.findings import UNTRAINED, Finding, Kinds
from ablate.phrases import counted_between, lines_if
from ablate.store.columns import column_named

Terms = Mapping[str, str] | None  # what a study calls its arms or levels
GROUPED = "Where differences are in two groups of seeds, no t-interval is valid, and frequencies are told."
TRAINING = "; {} represent the same functions, so what differs is training"
BETTER = {True: "higher is better", False: "lower is better", None: ""}
DECIDED = {False: "better or worse", True: "higher or lower"}  # and of differences between differences
DIFFERS = (stats.BETTER, stats.WORSE)
# By whether more is better, or that is not known: what a variant does that is better, or worse.
VERBS = {False: ("saves", "costs"), True: ("gains", "loses"), None: ("is higher by", "is lower by")}


def sentence(one: Finding, terms: Terms = None, among: Sequence[Finding] = (), *, long: bool = True) -> str:
    """The sentence on one contrast, without its full stop. among: contrasts whose common setting it does not
    name. long: with its interval, the look, and what a difference amounts to."""
    first, second = one.sides(terms)
    against = f" against {second}" if second else ""
    apart = f"{first} and {second} differ" if second else f"{first} differs from 0"
    where = f" ({setting})" if (setting := setting_apart(one, among, terms)) else ""
    of = unit(one.metric) or f" of {one.metric}"
    if not one.verdict:
        is_same = one.why.startswith("the same function")
        return f"{first} is {one.why}" if is_same else f"{first} and {second}{where} are {one.why}"
    better, worse = VERBS[one.higher_is_better]
    if one.variant.difference:
        better, worse = VERBS[None][:: 1 if one.higher_is_better else -1]
    look = ""
    if long and one.look is not None:
        when = "so far" if one.is_undecided else "decided at"
        look = f"; {when} {one.look} of at most {one.last_look} seeds"
    training = TRAINING.format("both sides" if second else "all arms") if long and one.same_class else ""
    if one.kinds:
        sign = 1 if next((diff for _, diff in one.kinds if number(diff) != "0.000"), 0) > 0 else -1
        verb = better if (sign > 0) != (one.higher_is_better is False) else worse
        groups = by_groups(one.kinds, lambda diff: number(sign * diff), of, " runs")
        found = f"undecided: {one.why}" if one.is_undecided else f"{one.verdict} on average"
        return f"{first} {verb} {groups}{against}{where} ({found}){training}{look}"
    if one.verdict == stats.EQUIVALENT:
        found = f": {number(one.diff)} ({number(one.low)} to {number(one.high)})" if long else ""
        return f"{apart} by less than {one.margin:g}{of}{where}{found}{training}{look}"
    if one.verdict in DIFFERS:
        least, most = sorted((abs(one.low), abs(one.high)))
        size = f"{better if one.verdict == stats.BETTER else worse} {number(abs(one.diff))}{of}"
        return f"{first} {size} ({number(least)} to {number(most)}){against}{where}{training}{look}"
    either = f"{worse} or {better}" if better == "saves" else f"{better} or {worse}"
    open_ = f"{first} {either} anything{against}" if better not in VERBS[None] else apart
    open_ = f"{first} {f'and {second} are' if second else 'is'} equivalent" if one.why == UNTRAINED else open_
    found = f" ({number(one.low)} to {number(one.high)}{of})" if long and one.low == one.low else ""
    return f"whether {open_}{where} is undecided{found}: {one.why}{training}{look}"


def by_groups(kinds: Kinds, write: Callable[[float], str], of: str = "", runs: str = "") -> str:
    """The difference in both groups of seeds: −0.401 nats in 4 of 6 runs, 0.003 in 2. of: its unit."""
    (n, diff), (few, other) = kinds
    return f"{write(diff)}{of} in {n} of {n + few}{runs}, {write(other)} in {few}"


def size_of(one: Finding) -> str:
    """The verdict, and how large a difference is, as far as one is found: worse by 0.402 nats."""
    if one.verdict not in DIFFERS:
        return one.verdict
    size = number(abs(one.diff)) + unit(one.metric)
    return f"{one.word} {f'on average: {by_groups(one.kinds, number)}' if one.kinds else f'by {size}'}"


def setting_of(one: Finding, terms: Terms = None) -> list[str]:
    """What the two variants of a contrast share, as K=V each: the place of an arm or, without one, levels;
    nothing of a sum of arms, or if both arms are called by `terms`."""
    of, place = one.variant, one.variant.place
    if one.is_sum or (terms and not place and all(terms.get(side.arm) for side in one.both)):
        return []
    shared = [column for column in place or of.levels if of.levels.get(column) and column not in one.apart]
    return [of.label([column], bare=()) for column in shared]


def setting_apart(one: Finding, among: Sequence[Finding], terms: Terms) -> str:
    """The setting of a contrast, without what all of these share."""
    settings = [{*setting_of(each, terms)} for each in among]
    shared = set[str]().union(*settings).intersection(*settings)
    return ", ".join(part for part in setting_of(one, terms) if part not in shared)


def contrast_in_words(
    one: Finding, among: Sequence[Finding], terms: Terms, end: str = "", *, against: bool = True
) -> str:
    """A contrast by its name among these, and what is said of it: sum against concat (heads=4, worse)."""
    first, second = one.sides(terms)
    name = f"{first} against {second}" if second and against else first
    more = ", ".join(filter(None, (setting_apart(one, among, terms), end)))
    return f"{name} ({more})" if more else name


def paired_in_words(tested: Sequence[Finding]) -> str:
    """How many paired seeds some contrasts have; empty if none pairs."""
    pairs = [one.seeds for one in tested if one.pairs is not None]
    return counted_between(min(pairs), max(pairs), f"paired {tested[0].unit}") if pairs else ""


def units_in_words(tested: Sequence[Finding], items: str = "") -> str:
    """How many seeds some contrasts have: 8 paired seeds, or 5 to 8 runs a variant, not paired. items: what
    each is a mean over."""
    parts = [*filter(None, [paired_in_words(tested)])]
    if runs := [n for one in tested if one.pairs is None for n in one.case.counts.tolist()]:
        parts.append(f"{counted_between(min(runs), max(runs), 'run')} a variant, not paired")
    return "".join(["; ".join(parts), *lines_if(items, f", {items} each")])


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
    if len({one.study for one in tested}) > 1:
        return f"{level} for those of each study together"
    n, one = len(tested), tested[0]
    k = n if one.look else round(stats.ALPHA / (1 - one.level))  # of the family, whatever rows are chosen
    if k > n:
        return f"{level} for {'this' if n == 1 else 'these'} and {k - n} more together"
    return level + {1: "", 2: " for both together"}.get(n, f" for all {n} together")
