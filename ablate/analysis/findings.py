"""From contrasts to findings: each judged by its interval, those of a study as one family and all others as
another; its verdict, and why it has none or is undecided."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ablate.analysis import stats
from ablate.analysis.contrasts import Weighed, differing, is_same_class
from ablate.analysis.looks import Case, stand
from ablate.analysis.stats import Array
from ablate.analysis.variants import Variant, Variants, varying
from ablate.config.contrast import FEWEST
from ablate.phrases import counted
from ablate.store.record import NO_STUDY, PlannedLooks, StudyRecord

BY_FLIPS = "by sign flips"
Kinds = Sequence[tuple[int, float]]  # groups, for which no interval is valid, the larger first: count, mean
UNTRAINED = "untrained, as both are nearer to guessing than to counting"


@dataclass(frozen=True, kw_only=True, eq=False)
class Finding:
    """The contrast variant − baseline, or a weighted sum of more variants, whose name says which.

    study: of the study that planned it; empty for an unplanned one. pairs: how many values pair, None where
    none do (Welch). diff, low, high, sd (of a difference): in the metric's unit, NaN if not known. level: of
    the interval. p: of no difference, by itself; p_adjusted: in its family and look. verdict: one of
    stats.VERDICTS; empty if there is nothing to judge. why: it has none, or is undecided. differs: the
    columns in which the two differ. same_class: whether both represent the same functions. look, last_look:
    of a study with looks, the number of seeds at which it stands, and at most. more_seeds: about how many
    more would decide it. unit: what is counted. case: its weights and values, by unit. twin: (P, S) of its
    variants, by unit, the same metric on validation. kinds: of differences in two groups; else empty.
    """

    name: str
    variant: Variant
    baseline: Variant
    study: str
    metric: str
    margin: float
    higher_is_better: bool | None
    pairs: int | None
    diff: float
    low: float
    high: float
    sd: float
    level: float
    p: float
    p_adjusted: float
    verdict: str
    why: str
    differs: str
    same_class: bool
    look: int | None
    last_look: int | None
    more_seeds: float | None
    unit: str
    case: Case = field(repr=False)
    twin: stats.Array | None = field(repr=False)
    kinds: Kinds

    @property
    def is_tested(self) -> bool:
        return self.p == self.p and bool(self.verdict)

    @property
    def differences(self) -> stats.Array:
        """(S,) of each unit."""
        return self.case.difference

    @property
    def both(self) -> tuple[Variant, Variant]:
        return self.variant, self.baseline

    @property
    def is_planned(self) -> bool:
        return bool(self.study)

    @property
    def is_sum(self) -> bool:
        """Whether more arms are in it than a variant and a baseline."""
        return len(self.case.weights) > 2 and not self.variant.difference

    @property
    def is_undecided(self) -> bool:
        return self.verdict == stats.UNDECIDED

    @property
    def word(self) -> str:
        """The verdict in words."""
        is_of_two = self.variant.difference and self.verdict in (stats.BETTER, stats.WORSE)
        return (stats.HIGHER if self.diff > 0 else stats.LOWER) if is_of_two else self.verdict

    @property
    def seeds(self) -> int:
        """The number of pairs or, without pairs, that of the smaller of the two groups."""
        return int(self.case.counts.min()) if self.pairs is None else self.pairs

    @property
    def apart(self) -> list[str]:
        """The columns in which its variant and its baseline differ."""
        return [*self.variant.difference, *self.variant.differing(self.baseline)]

    def sides(self, terms: Mapping[str, str] | None = None) -> tuple[str, str]:
        """What tells the variant from its baseline, and the other way round; of a sum of arms the whole, and
        nothing. terms: words for levels, unless they would call both the same."""
        if self.is_sum:
            return self.name, ""
        sides, called = self.both, Variant.label
        if self.variant.difference:  # where else they are is told as their setting
            place = [column for column in self.variant.place if column in self.apart]
            sides, called = [replace(side, place=place) for side in self.both], Variant.title
        one, other = (called(side, self.apart, terms=terms or {}) for side in sides)
        return (one, other) if one != other or not terms else self.sides()

    def otherwise(self) -> dict[str, str]:
        """The verdict by other ways to judge it: another split, one seed less, a test that takes no
        distribution for granted. Without those that can't tell: sign flips of a few seeds, or of what is not
        decided."""
        if self.pairs is None or not self.is_tested or self.is_undecided:
            return {}
        others = {f"without the farthest {self.unit}": stats.without_farthest(self.differences[None])}
        if self.twin is not None:
            others = {"on validation": (self.case.weights @ self.twin)[None], **others}
        how = {"margin": self.margin, "higher_is_better": self.higher_is_better}
        verdicts = {
            name: str(stats.judge(stats.paired(of), self.level, **how).verdict[0])
            for name, of in others.items()
        }
        p, least = stats.by_sign_flips(self.differences)
        if self.verdict in (stats.BETTER, stats.WORSE) and least < 1 - self.level:
            verdicts[BY_FLIPS] = self.verdict if p < 1 - self.level else stats.UNDECIDED
        return verdicts


def findings_of(
    variants: Variants, contrasts: Sequence[Weighed], records: Sequence[StudyRecord], before: int
) -> list[Finding]:
    """The finding of each contrast, in order; those of studies come first. A family is as large as the record
    of its study says, that of all others at least as large. before: how many of the others there were before
    rows were chosen."""
    findings = list[Finding]()
    for record in (*records, None):
        of_family = [one for one in contrasts if one.record is record]
        if record:
            k = record.family
        else:
            there = (np.isfinite(variants.judged).sum(1) >= 2).tolist()
            tested = [one for one in of_family if one.equal is None and all(there[c] for _, c in one.sides)]
            k = sum(one.family for one in records) + max(len(tested), before)
        only = record or (records[0] if len(records) == 1 else NO_STUDY)
        looks = only.looks if "seed" in variants.seeds and not variants.crossed else None
        if of_family:
            findings += _family(variants, of_family, looks, k)
    return findings


def at_levels(variants: Variants, crossed: Sequence[Finding]) -> list[Finding]:
    """Each difference that contrasts of contrasts compare, by the one with the most units: without a verdict,
    with intervals that hold together."""
    found = dict[str, Finding]()
    for one in crossed:
        half, case = len(one.case.weights) // 2, one.case
        values = np.where(case.is_grouped | np.isfinite(one.differences), case.values, np.nan)
        for sides, at, sign in ((one.both[::-1], slice(half, None), -1), (one.both, slice(half), 1)):
            of = replace(case, weights=sign * case.weights[at], values=values[at], lost=case.lost[at])
            if sides[0].name not in found or one.seeds > found[sides[0].name].seeds:
                found[sides[0].name] = replace(one, variant=sides[0], baseline=sides[1], case=of, verdict="")
    for name, one in found.items():
        at, kinds = [one.case.values.shape[1]], _kinds(variants, one.case, len(found))
        judged = vars(stand([one.case], at=at, k=len(found), margin=one.margin, waits=False))
        numbers = {of: float(judged[of][0]) for of in ("diff", "sd", "low", "high", "level")}
        numbers |= dict.fromkeys(("low", "high") if kinds else (), np.nan)
        found[name] = replace(one, **numbers, kinds=kinds)
    return [*found.values()]


def _family(
    variants: Variants, contrasts: Sequence[Weighed], looks: PlannedLooks | None, k: int
) -> list[Finding]:
    """The contrasts judged at the looks of their study or, without any, on all their values at once; there,
    values that do not pair are judged as groups."""
    S = variants.values.shape[1]
    order, at = np.arange(S), [S]
    if looks:
        places = {seed: place for place, seed in enumerate(variants.seeds["seed"])}
        order = np.array([places.get(str(seed), -1) for seed in looks.seeds[: looks.at[-1]]], int)
        at = looks.at
    cases = [_case(variants, one, order, may_group=not looks) for one in contrasts]
    how: dict[str, Any] = {name: getattr(variants, name) for name in ("margin", "higher_is_better")}
    judged = stand(cases, at=at, k=k, waits=bool(looks), **how)  # else what is missing is missing for good
    apart = differing(variants, [(one.variant, one.baseline) for one in contrasts])
    findings, open_ = list[Finding](), list[int]()
    for i, (contrast, of) in enumerate(zip(contrasts, cases, strict=True)):
        n = int(judged.seeds[i])
        of = replace(of, values=of.values[:, :n], lost=of.lost[:, :n])
        numbers = {name: one[i] for name, one in vars(judged).items()}
        twin = None if variants.twin is None else _taken(variants, contrast, order, variants.twin)[:, :n]
        kinds = _kinds(variants, of, len(contrasts))
        one = _finding(variants, contrast, of, numbers, looks, apart[i], twin, kinds)
        findings.append(one)
        is_open = one.is_undecided and one.is_tested and one.look is None and not of.more.sum()
        is_still = variants.constant[[c for _, c in contrast.sides]].any()
        open_ += [i] if is_open and one.why != UNTRAINED and not is_still else []
    known = variants.higher_is_better is not None and not (variants.crossed or variants.together)
    if open_ and known and not variants.waiting:
        names = ("seeds", "diff", "sd", "level")
        n, diff, sd, level = (np.array([getattr(findings[i], name) for i in open_]) for name in names)
        needed = stats.seeds_to_claim(diff, sd, 1 - level, power=stats.POWER, margin=variants.margin)
        for i, more in zip(open_, np.maximum(np.maximum(needed, FEWEST) - n, 1), strict=True):
            findings[i] = replace(findings[i], more_seeds=float(more))
    return findings


def _taken(variants: Variants, one: Weighed, order: Array, of_CS: Array) -> Array:
    """(P, S) of the sides of a contrast, in the order of its units, what of its runs counts. order: the
    places of units, −1 for one that has none."""
    places = [c for _, c in one.sides]
    ids = variants.run_ids[places][:, order]
    counts = (order >= 0) & (True if one.runs is None else np.isin(ids, [*one.runs]))
    return np.where(counts, of_CS[places][:, order], np.nan if of_CS.dtype == float else False)


def _case(variants: Variants, one: Weighed, order: Array, *, may_group: bool) -> Case:
    values, lost = (_taken(variants, one, order, of) for of in (variants.judged, variants.diverged))
    case = Case(np.array([weight for weight, _ in one.sides]), values, lost)
    is_paired = variants.paired and np.isfinite(case.difference).sum() >= 2
    is_grouped = bool(may_group and case.counts.min() >= 2 and not is_paired)
    return replace(case, is_equal=one.equal is not None, is_grouped=is_grouped)


def _finding(
    variants: Variants,
    contrast: Weighed,
    one: Case,
    judged: Mapping[str, Any],
    looks: PlannedLooks | None,
    differs: str,
    twin: Array | None,
    kinds: Kinds,
) -> Finding:
    verdict, why = _verdict(variants, contrast, one, judged, looks, differs)
    numbers = {name: float(judged[name]) for name in ("low", "high", "level", "p", "p_adjusted")}
    is_tested = numbers["p"] == numbers["p"] and bool(verdict)
    numbers |= dict.fromkeys(("low", "high") if kinds else (), np.nan)
    variant, baseline = _as_variants(variants, contrast)
    return Finding(
        name=contrast.name,
        variant=variant,
        baseline=baseline,
        study=contrast.record.name if contrast.record else "",
        metric=variants.metric,
        margin=variants.margin,
        higher_is_better=variants.higher_is_better,
        pairs=None if one.is_grouped else int(np.isfinite(one.difference).sum()),
        diff=float(judged["diff"]),
        sd=float(judged["sd"]),
        **(numbers if is_tested else dict.fromkeys(numbers, np.nan)),
        verdict=verdict,
        why=why,
        differs=differs,
        same_class=is_same_class(variants, contrast, differs),
        look=int(judged["seeds"]) if looks else None,
        last_look=looks.at[-1] if looks else None,
        more_seeds=None,
        unit=variants.unit,
        case=one,
        twin=twin,
        kinds=kinds if is_tested else (),
    )


def _kinds(variants: Variants, one: Case, contrasts: int) -> Kinds:
    """As a Finding has them, among so many contrasts; none of sums, nor of one seed apart. Values that do not
    pair stand against the mean of the other side, and one side alone may be in two groups."""
    means, rows = one.weights * stats.moments(one.values)[1], one.difference[None]
    if one.is_grouped:
        rows = one.weights[:, None] * one.values + means[::-1, None]
    minor = variants.minor(rows, len(rows) * contrasts)
    if minor.any(1).sum() != 1 or len(means) > 2:
        return ()
    row, few = rows[minor.any(1)][0], minor.any(0)
    if few.sum() == 1:  # with it an interval is too wide rather than too narrow
        return ()
    return tuple((len(of), float(of.mean())) for of in (row[np.isfinite(row) & ~few], row[few]))


def _as_variants(variants: Variants, one: Weighed) -> tuple[Variant, Variant]:
    """What stands in words for the two sides of a contrast: its variants or, of a contrast of contrasts, the
    two differences."""
    if not one.is_crossed:
        return variants.each[one.variant], variants.each[one.baseline]
    each, n = variants.each, len(one.sides) // 2
    high, low = Weighed("", one.sides[:n]), Weighed("", [(-weight, c) for weight, c in one.sides[n:]])
    return each[high.variant].minus(each[high.baseline]), each[low.variant].minus(each[low.baseline])


def _verdict(
    variants: Variants,
    contrast: Weighed,
    one: Case,
    judged: Mapping[str, Any],
    looks: PlannedLooks | None,
    differs: str,
) -> tuple[str, str]:
    """The verdict, empty where there is nothing to judge, and why there is none or why it is undecided, in a
    few words before a comma."""
    unit, more = variants.unit, int(one.more.sum())
    places, margin, waiting = [c for _, c in contrast.sides], variants.margin, variants.waiting
    count = one.counts.min() if one.is_grouped else np.isfinite(one.difference).sum()
    low, high, verdict = judged["low"], judged["high"], str(judged["verdict"])
    decides = not low <= 0 <= high or (-margin < low and high < margin)
    if contrast.equal is not None:  # at one head a learned weight changes the training, but not the function
        return "", f"the same function as {variants.each[contrast.equal].label(varying(variants.each))}"
    if len(places) == 2 and len({variants.texts[c] for c in places}) > 1:
        return "", "losses of different texts, which do not compare"
    if why := _identical(variants, one, differs):
        return "", why
    study = contrast.record.name if contrast.record else next(iter(waiting), "")
    reaches = "" if margin != margin else " and reaches beyond the margin"
    side, other = ("it", "its baseline") if more > 0 else ("its baseline", "it")
    still = next((variants.names[c] for c in places if variants.constant[c]), "")
    reasons = (
        (looks and not judged["seeds"], f"the first interim analysis is at {looks and looks.at[0]} seeds"),
        (study in waiting, f"the study is not finished: {waiting.get(study)}"),
        (
            more and decides and low == low and verdict == stats.UNDECIDED,
            f"diverged, as {side} did on {counted(abs(more), 'more seed')} than {other}",
        ),
        (count < 2, f"{'one' if count else 'no'} paired {unit}"),
        (
            variants.crossed or variants.together,
            f"{variants.together or 'its seeds are crossed'}, so they are not independent",
        ),
        (
            still and unit == "seed",
            f"{still} is the same at every seed: perhaps the seed never reached it;"
            f" --fixed {shlex.quote(still)} takes it as a known value",
        ),
        (
            low != low,
            f"{'the same' if judged['diff'] else 'no'} difference"
            f" {f'at every {unit}' if variants.paired else 'in every run'}",
        ),
        (count < FEWEST, f"{count} of {FEWEST} {unit}s, too few for a verdict"),
        (verdict == stats.EQUIVALENT and variants.untrained[places].all(), UNTRAINED),
        (verdict != stats.UNDECIDED, ""),
        (decides, "say which way is better: --lower-is-better or --higher-is-better"),
        (True, f"noise, as its interval holds 0{reaches}"),
    )
    why = next(why for holds, why in reasons if holds)
    return (stats.UNDECIDED, why) if why else (verdict, "")


def _identical(variants: Variants, one: Case, differs: str) -> str:
    """The words for two variants that agree to the last digit at every unit; empty if they do not. Values
    that are all one agree by themselves, as where both solve a task wholly."""
    paired_PS = one.values[:, np.isfinite(one.values).all(0)]
    if len(paired_PS) != 2 or one.is_grouped or one.more.any() or len({*paired_PS[0]}) < 2:
        return ""
    if (paired_PS[0] != paired_PS[1]).any():
        return ""
    perhaps = "; perhaps the option never reached the program" if variants.is_foreign else ""
    changes = "change" if " " in differs else "changes"
    runs = f"at all {paired_PS.shape[1]} {variants.unit}s"
    return f"identical {runs}: {differs} {changes} nothing here{perhaps}"
