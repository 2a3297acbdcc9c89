"""From judged contrasts to findings: the verdict of each, and why it has none or is undecided."""

import shlex
from collections.abc import Mapping, Sequence, Set

import numpy as np

from ablate.analysis import notes, stats
from ablate.analysis.contrasts import differing, same_classes
from ablate.analysis.finding import Finding
from ablate.analysis.judging import Case
from ablate.analysis.variant import Variant, varying
from ablate.analysis.variants import Variants
from ablate.analysis.within import as_variants, halves, is_crossed
from ablate.config.contrast import FEWEST
from ablate.phrases import counted
from ablate.store.record import StudyRecord

POWER = 0.8
UNTRAINED = "untrained, as both are nearer to guessing than to counting"


def findings_of(
    variants: Variants,
    cases: Sequence[Case],
    margin: float,
    waiting: Mapping[str, str],
    records: Sequence[StudyRecord],
) -> list[Finding]:
    pairs = [(one.contrast.variant, one.contrast.baseline) for one in cases]
    apart, alike = differing(variants, pairs), same_classes(variants, pairs)
    untrained = {*np.flatnonzero(notes.untrained(variants)).tolist()}
    verdicts = [
        _verdict(variants, one, differs, margin, waiting, records, untrained)
        for one, differs in zip(cases, apart, strict=True)
    ]
    findings, more_seeds = [], _more_seeds(variants, cases, verdicts, margin) if not waiting else {}
    for at, (one, differs, same) in enumerate(zip(cases, apart, alike, strict=True)):
        contrast, (verdict, why), p = one.contrast, verdicts[at], one.number("p")
        variant, baseline = as_variants(variants, contrast)
        is_tested = p == p and bool(verdict)
        of = {
            above: [np.isfinite(v).sum() for w, v in one.sides if (w > 0) == above] for above in (True, False)
        }
        numbers = {name: one.number(name) for name in ("low", "high", "level", "p", "p_adjusted")}
        findings.append(
            Finding(
                name=contrast.name,
                variant=variant,
                baseline=baseline,
                study=contrast.record.name if contrast.record else "",
                metric=variants.metric,
                margin=margin,
                higher_is_better=variants.higher_is_better,
                n=int(min(of[True])),
                n_baseline=int(min(of[False])),
                pairs=None if one.groups else int(np.isfinite(one.difference).sum()),
                diff=one.number("diff"),
                sd=one.number("sd"),
                **(numbers if is_tested else dict.fromkeys(numbers, np.nan)),
                verdict=verdict,
                why=why,
                differs=differs,
                same_class=same,
                look=int(one.number("seeds")) if one.last else None,
                last_look=one.last or None,
                more_seeds=more_seeds.get(at),
                unit=variants.unit,
                is_sum=len(one.sides) > 2 and not is_crossed(contrast),
                differences=one.difference,
                on_validation=one.twin,
            )
        )
    return findings


def differences_of(
    cases: Sequence[Case], findings: Sequence[Finding]
) -> dict[str, tuple[Variant, stats.Array]]:
    """The differences of contrasts of contrasts, each by its name with what stands for it, and its values."""
    found = dict[str, tuple[Variant, stats.Array]]()
    for case, one in zip(cases, findings, strict=True):
        if is_crossed(case.contrast):
            for side, of, sign in zip(one.both, halves(case.sides), (1, -1), strict=True):
                values = sign * np.sum([weight * values for weight, values in of], 0)
                found[side.name] = side, np.where(np.isfinite(one.differences), values, np.nan)
    return found


def _more_seeds(
    variants: Variants, cases: Sequence[Case], verdicts: Sequence[tuple[str, str]], margin: float
) -> dict[int, int]:
    """How many more seeds would decide each contrast that is open, as far as seeds would, by its place."""
    open_ = [
        at
        for at, one in enumerate(cases)
        if verdicts[at][0] == stats.UNDECIDED and not (one.last or one.more.sum()) and one.number("p") >= 0
        if verdicts[at][1] != UNTRAINED
        and not variants.constant[[side for _, side in one.contrast.sides]].any()
    ]
    if variants.higher_is_better is None or not open_ or variants.crossed or variants.together:
        return {}
    n, diff, sd, level = (
        np.array([cases[at].number(name) for at in open_]) for name in ("n", "diff", "sd", "level")
    )
    needed = stats.seeds_to_claim(diff, sd, 1 - level, power=POWER, margin=margin)
    more = np.maximum(np.maximum(needed, FEWEST) - n, 1)
    return {at: int(seeds) for at, seeds in zip(open_, more, strict=True) if np.isfinite(seeds)}


def _verdict(
    variants: Variants,
    one: Case,
    differs: str,
    margin: float,
    waiting: Mapping[str, str],
    records: Sequence[StudyRecord],
    untrained: Set[int],
) -> tuple[str, str]:
    """The verdict, empty where there is nothing to judge, and why there is none or why it is undecided, in a
    few words before a comma. untrained: variants, by their indices."""
    contrast, unit, more = one.contrast, variants.unit, int(one.more.sum())
    sides = [values for _, values in one.sides]
    count = min(np.isfinite(v).sum() for v in sides) if one.groups else np.isfinite(one.difference).sum()
    low, high = one.number("low"), one.number("high")
    decides = not low <= 0 <= high or (-margin < low and high < margin)
    if contrast.equal is not None:  # at one head a learned weight changes the training, but not the function
        return "", f"the same function as {variants.each[contrast.equal].label(varying(variants.each))}"
    if why := _identical(variants, one, differs):
        return "", why
    study = contrast.record.name if contrast.record else next(iter(waiting), "")
    first = next((record.looks.at[0] for record in records if record.looks), 0)
    reaches = "" if margin != margin else " and reaches beyond the margin"
    side, other = ("it", "its baseline") if more > 0 else ("its baseline", "it")
    shared = variants.together or "its seeds are crossed"
    still = next((variants.names[at] for _, at in contrast.sides if variants.constant[at]), "")
    constant = f"{'the same' if one.number('diff') else 'no'} difference"
    for holds, why in (
        (one.last and not one.number("seeds"), f"the first interim analysis is at {first} seeds"),
        (study in waiting, f"the study is not finished: {waiting.get(study)}"),
        (
            more and decides and low == low and one.verdict == stats.UNDECIDED,
            f"diverged, as {side} did on {counted(abs(more), 'more seed')} than {other}",
        ),
        (count < 2, f"{'one' if count else 'no'} paired {unit}"),
        (variants.crossed or variants.together, f"{shared}, so they are not independent"),
        (
            still and variants.unit == "seed",
            f"{still} is the same at every seed: perhaps the seed never reached it;"
            f" --fixed {shlex.quote(still)} takes it as a known value",
        ),
        (low != low, f"{constant} {f'at every {unit}' if variants.paired else 'in every run'}"),
        (count < FEWEST, f"{count} of {FEWEST} {unit}s, too few for a verdict"),
        (
            one.verdict not in (stats.BETTER, stats.WORSE) and untrained >= {at for _, at in contrast.sides},
            UNTRAINED,
        ),
        (one.verdict != stats.UNDECIDED, ""),
        (decides, "say which way is better: --lower-is-better or --higher-is-better"),
        (True, f"noise, as its interval holds 0{reaches}"),
    ):
        if holds:
            return (stats.UNDECIDED, why) if why else (one.verdict, "")
    raise AssertionError("the last one holds")


def _identical(variants: Variants, one: Case, differs: str) -> str:
    """The words for two variants that agree to the last digit, in every metric; empty if they do not. Values
    that are all one agree by themselves, as where both solve a task wholly."""
    (_, v), (_, b) = one.sides[0], one.sides[-1]
    if len(one.sides) != 2 or one.more.sum():
        return ""
    if one.groups:
        v, b = (np.sort(side[np.isfinite(side)]) for side in (v, b))
    both = np.isfinite(v) & np.isfinite(b) if len(v) == len(b) else np.zeros(len(v), bool)
    if both.sum() < 2 or not np.array_equal(v[both], b[both]) or len({*v[both]}) < 2:
        return ""
    c, base = one.contrast.variant, one.contrast.baseline
    of = variants.ran[c] & variants.ran[base]
    if not one.groups and any(
        not np.array_equal(other[c][of], other[base][of], equal_nan=True) for other in variants.measures
    ):
        return ""
    runs = f"at all {both.sum()} {variants.unit}s" if not one.groups else "in every run"
    perhaps = "; perhaps the option never reached the program" if variants.is_foreign else ""
    changes = "change" if " " in differs else "changes"
    return f"identical {runs}: {differs} {changes} nothing here{perhaps}"
