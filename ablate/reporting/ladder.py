"""The answer of a ladder: what each arm costs at each size, as predicted or not, and how it came about."""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from ablate.analysis import stats
from ablate.analysis.compare import Comparison
from ablate.analysis.finding import Finding
from ablate.analysis.ladder import Arm, LadderResult, shapes
from ablate.phrases import counted, joined, lines_if
from ablate.reporting.words import interval, number, signed, unit, with_interval
from ablate.store.record import LEVEL, Predicted, name_at

MOST = 3  # sentences, if each arm has one
COSTS, SAVES, WITHIN, OPEN = "costs", "saves", "within", "open"
KINDS = {
    **{verdict: SAVES for verdict in (stats.BETTER, stats.BETTER_WITHIN)},
    **{verdict: COSTS for verdict in (stats.WORSE, stats.WORSE_WITHIN)},
    stats.EQUIVALENT: WITHIN,
}
DIRECTIONS = {COSTS: 1, SAVES: -1}
GROWS = {"heads": "heads", "key_width": "queries and keys of", "value_width": "values of"}


def findings(comparison: Comparison, ladder: LadderResult) -> list[str]:
    """A sentence for each arm, or of many arms their verdicts, what was predicted, and the largest. While the
    ladder is under way, also how far it is."""
    in_words = _Words(comparison, ladder)
    arms, under_way = [arm for arm in ladder.arms if len(arm.steps)], in_words.under_way()
    each = len(arms) + len(under_way) <= MOST
    lines = [in_words.sentence(arm) for arm in arms] if each else in_words.together(arms)
    return [f"{line[:1].upper()}{line[1:]}" for line in (*lines, *under_way)]


def sizes(ladder: LadderResult) -> list[str]:
    """The parameters of each rung in millions, with as few digits as tell them apart: 0.1, 0.2, 1.6."""
    for digits in itertools.count(1):
        texts = [f"{rung.size / 1e6:.{digits}f}" for rung in ladder.rungs]
        if len({*texts}) == len(texts) and float(texts[0]) > 0:
            return texts
    raise AssertionError


class _Words:
    """Sentences on the arms of one ladder. Numbers are costs: above 0, an arm is worse than the baseline."""

    def __init__(self, comparison: Comparison, ladder: LadderResult) -> None:
        self.comparison, self.ladder, self.sizes = comparison, ladder, sizes(ladder)
        self.sign = -1 if comparison.higher_is_better else 1
        self.unit = unit(comparison.metric) or f" of {comparison.metric}"
        self.margin = f"{comparison.margin:g}"

    def called(self, arm: str) -> str:
        return self.ladder.record.answer.get(arm, arm)

    def steps(self, arm: Arm) -> list[tuple[int, Finding]]:
        """Each rung with a result, and what was found there."""
        found = self.comparison.findings_of(arm.steps)
        return [(int(at), one) for at, one in zip(arm.steps["rung"], found, strict=True) if one]

    def at_top(self, arm: Arm) -> Finding | None:
        return dict(self.steps(arm)).get(len(self.sizes) - 1)

    def sentence(self, arm: Arm) -> str:
        top, steps = self.at_top(arm), self.steps(arm)
        if arm.predicted and top:
            steps = [(at, one) for at, one in steps if at < len(self.sizes) - 1]
        groups = [(kind, [*of]) for kind, of in itertools.groupby(steps, lambda step: _kind(step[1]))]
        clauses = [
            f"at {joined([self.sizes[rung] for rung, _ in of])} M{'' if at else ' parameters'}"
            f" {self._clause(kind, [one for _, one in of], '' if at else self.called(arm.name))}"
            for at, (kind, of) in enumerate(groups)
        ]
        return f"{'; '.join([*clauses, *self._prediction(arm, top)])}."

    def together(self, arms: Sequence[Arm]) -> list[str]:
        """Three sentences: verdicts at the highest rung, predictions, and the largest difference."""
        last = max(at for arm in arms for at, _ in self.steps(arm))
        reached = {arm.name: one for arm in arms if (one := dict(self.steps(arm)).get(last))}
        counts = Counter(one.verdict for one in reached.values()).most_common()
        base = self.called(self.ladder.baseline)
        lines = [
            f"of {counted(len(reached), 'arm')} against {base} at {self.sizes[last]} M parameters:"
            f" {', '.join(f'{count} {verdict}' for verdict, count in counts)}."
        ]
        predictions = [(arm, arm.predicted, self.at_top(arm)) for arm in arms if arm.predicted]
        tried = [(arm, predicted, top) for arm, predicted, top in predictions if top]
        missed = [
            f"{self.called(arm.name)}, {self._interval(top.diff, top.low, top.high, 0)} where"
            f" {self._interval(predicted.difference, predicted.low, predicted.high, 0)} was predicted"
            for arm, predicted, top in tried
            if not _covers(predicted, top)
        ]
        if tried:
            held = f"{len(tried) - len(missed)} of {len(tried)} lie in the intervals predicted for them"
            lines += [f"{'; missed: '.join([held, *lines_if(missed, '; '.join(missed))])}."]
        elif predictions:
            many = counted(len(predictions), "difference")
            lines += [f"for {self.sizes[-1]} M {many} are predicted, and not seen yet."]
        decided = [arm for arm in arms if arm.name in reached and _kind(reached[arm.name]) != OPEN]
        largest = max(decided or arms, key=lambda arm: abs(arm.steps["diff"].iloc[-1]))
        return [*lines, f"the largest: {self.sentence(largest)}"]

    def under_way(self) -> list[str]:
        """Which rungs have results, as long as the top is not predicted."""
        ladder = self.ladder
        if ladder.record.prediction:
            return []
        reached = sorted({int(at) for arm in ladder.arms for at in arm.steps["rung"]})
        return [
            f"so far {joined([ladder.rungs[at].name for at in reached])} of {len(ladder.rungs)} rungs;"
            f" {ladder.top.name} ({self.sizes[-1]} M) is predicted once every run below it has ended."
        ]

    def _clause(self, kind: str, found: Sequence[Finding], subject: str) -> str:
        """What was found at some rungs. subject: empty if it was named before."""
        costs = [self.sign * one.diff for one in found]
        against = f" against {self.called(self.ladder.baseline)}" if subject else ""
        if kind == OPEN:
            which = f"whether {subject} costs or saves anything{against}" if subject else "that"
            return f"{which} is undecided ({_between(costs, signed)}{self.unit})"
        if kind == WITHIN:
            other = against.removeprefix(" against ") or "it"
            differ = f"{subject} and {other} differ" if subject else "they differ"
            return f"{differ} by less than {self.margin} ({_between(costs, signed)}{self.unit})"
        size = _between([abs(cost) for cost in costs], number)
        weak = [one.verdict in stats.WITHIN for one in found]
        weight = f", less than the {self.margin} that would matter" if all(weak) else ""
        if not weight and (any(weak) or any(one.is_perhaps_within for one in found)):
            weight = f", perhaps within the margin of {self.margin}"
        return f"{subject or 'it'} {kind} {size}{self.unit}{against}{weight}"

    def _prediction(self, arm: Arm, top: Finding | None) -> Iterator[str]:
        if not (predicted := arm.predicted):
            return
        sign = self._direction(predicted)
        verb = {1: "to cost", -1: "to save"}.get(sign, "to differ by")
        ends = predicted.difference, predicted.low, predicted.high
        before = f"for {self.sizes[-1]} M it {{}} predicted {verb} {self._interval(*ends, sign)}"
        if not top:
            yield f"{before.format('is')}, and not seen yet"
            return
        before, kind, seen = before.format("was"), _kind(top), (top.diff, top.low, top.high)
        if not _covers(predicted, top):
            direction = DIRECTIONS.get(kind, 0)
            does = f"it {kind} " if direction else ""
            yield f"{before}, and missed: {does}{self._interval(*seen, direction)}{_unless_decided(kind)}"
        elif kind in (COSTS, SAVES) and sign:  # the same one, as the interval holds what was seen
            yield f"{before}, and does: {self._interval(*seen, sign)}"
        elif kind in (COSTS, SAVES):
            yield f"{before}, and {kind} {self._interval(*seen, DIRECTIONS[kind])}, within that"
        else:
            yield f"{before}, and {self._interval(*seen, sign)} was seen, within that{_unless_decided(kind)}"

    def _direction(self, predicted: Predicted) -> int:
        """1 if an arm is predicted to cost something, −1 to save, 0 if the interval holds 0."""
        return self.sign * ((predicted.low > 0) - (predicted.high < 0))

    def _interval(self, diff: float, low: float, high: float, direction: int) -> str:
        """A difference with its interval: as a cost, as what is saved (−1), or with its sign (0)."""
        turned = self.sign * (direction or 1)
        value, *ends = (turned * one for one in (diff, low, high))
        return f"{(number if direction else signed)(value)} {interval(min(ends), max(ends))}".rstrip()


def _kind(one: Finding) -> str:
    return KINDS.get(one.verdict or "", OPEN)


def _unless_decided(kind: str) -> str:
    return {OPEN: ", undecided", WITHIN: ", less than would matter"}.get(kind, "")


def _covers(predicted: Predicted, top: Finding) -> bool:
    return predicted.low <= top.diff <= predicted.high


def _between(values: Sequence[float], write: Any) -> str:
    low, high = write(min(values)), write(max(values))
    return low if low == high else f"{low} to {high}"


# --- how its results came about ---------------------------------------------------------------------------


def details(comparison: Comparison, ladder: LadderResult) -> list[str]:
    """A line each; differences are arm − baseline."""
    return [
        *_rates(ladder),
        *(line for arm in ladder.arms for line in _details_of(arm, unit(comparison.metric))),
        *_frozen(ladder),
        "Intervals of slopes are of 95 %, each by itself.",
        *_growth(comparison, ladder),
    ]


def _rates(ladder: LadderResult) -> list[str]:
    """The value of each arm at each rung, and how it was chosen."""
    record, lines = ladder.record, []
    for arm in record.arms:
        chosen = [(rung.name, record.chosen.get(name_at(rung, arm))) for rung in ladder.rungs]
        each = [
            f"{choice.value} at {rung} ({choice.how})" for rung, choice in chosen if choice and choice.value
        ]
        lines += lines_if(each, f"{arm}: {record.tuned_key} {', '.join(each)}.")
    return lines


def _details_of(arm: Arm, nats: str) -> list[str]:
    """How its difference changes with size; none before two rungs."""
    if not (slope := arm.slope):
        return []
    change = with_interval(slope.value, slope.low, slope.high)
    return [f"{arm.name}: with twice the parameters its difference changes by {change}{nats}."]


def _frozen(ladder: LadderResult) -> list[str]:
    if not (prediction := ladder.record.prediction) or not prediction.is_intact:
        return []
    return [
        f"{prediction.rung} was predicted on {prediction.date}, before a run of it began: intervals of"
        f" {100 * LEVEL:g} % for the differences seen there."
    ]


def _growth(comparison: Comparison, ladder: LadderResult) -> list[str]:
    """What else changes from the lowest rung with results to the highest."""
    found = shapes(comparison.rows, ladder.record)
    if found.empty:
        return []
    first, last = (ladder.rungs[int(at)] for at in (found["rung"].min(), found["rung"].max()))
    if first == last:
        return []
    by_rung = found.sort_values("rung", kind="stable")
    lines = [
        f"From {first.name} to {last.name}, by construction: width {_grown(by_rung, 'd_model')}, layers"
        f" {_grown(by_rung, 'layers')}, training tokens {first.tokens:,} to {last.tokens:,}."
    ]
    for arm, rows in found.groupby("arm", sort=False):
        parts = [f"{what} {_grown(rows, column)}" for column, what in GROWS.items() if _grown(rows, column)]
        ranks = rows["write_rank"]
        if (ranks.gt(0) & (ranks < rows["d_model"])).any():
            stays = _grown(rows, "write_rank") or f"{ranks.iloc[0]} at every rung"
            parts.append(
                f"its heads together write into a space of rank {stays}, of the {_grown(rows, 'd_model')}"
                " dimensions of the model"
            )
        lines += lines_if(parts, f"{arm}: {'; '.join(parts)}.")
    return lines


def _grown(rows: pd.DataFrame, column: str) -> str:
    """From what to what a number grows; empty if it does not."""
    low, high = rows[column].iloc[0], rows[column].iloc[-1]
    return f"{low} to {high}" if low != high else ""
