"""From rows to findings: project the rows, look up or make the contrasts, judge them, and say what weakens
the result."""

import contextlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from ablate.analysis import notes, stats
from ablate.analysis.contrasts import (
    Weighed,
    differing,
    pair_up,
    planned,
    same_classes,
    tuned_columns,
    unplanned,
    usual_baseline,
    why_nothing,
)
from ablate.analysis.finding import Finding
from ablate.analysis.foreseen import foreseen
from ablate.analysis.looks import stand
from ablate.analysis.question import NOTHING_ASKED, Question, direction, margin_of, settled
from ablate.analysis.variant import Variant, varying
from ablate.analysis.variants import Variants, project, settings_of
from ablate.analysis.within import as_variants, crossed, halves, is_crossed
from ablate.analysis.within import rows as rows_of_differences
from ablate.config.contrast import FEWEST
from ablate.config.rules import ConfigError
from ablate.config.schema import STANDARD_FUSION
from ablate.phrases import Note, counted
from ablate.store.columns import RESULTS, Status
from ablate.store.frames import column_of, reported, select
from ablate.store.record import NO_STUDY, StudyRecord

POWER = 0.8
NUMBERS = (
    *("pairs", "diff", "low", "high", "level", "p", "p_adjusted", "sd_diff", "more_seeds"),
    *("look", "last_look", "verdict", "why", "differs", "same_class"),
)
WHOLE = ("pairs", "more_seeds", "look", "last_look")
UNTRAINED = "untrained, as both are nearer to guessing than to counting"
BASELINE, NO_BASELINE = "baseline", "no baseline"  # why a row has no verdict
PLANNED, EXPLORATORY = "planned", "exploratory"  # the two families


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`. rows: those that were compared. variants: by name. summary: a row each, with
    n, diverged, mean and sd, best first. findings: planned ones first. runs: for each variant the run_id of
    one of its runs. nothing: why nothing is compared; empty if anything is. notes: what weakens the result,
    and what was taken for what. higher_is_better: None if that is not known of the metric; margin: NaN if it
    has none. waits: whether runs of the study are missing. items: what each value is a mean over; empty for
    single rows.
    """

    rows: pd.DataFrame
    variants: Mapping[str, Variant]
    summary: pd.DataFrame
    findings: Sequence[Finding]
    metric: str
    higher_is_better: bool | None
    margin: float
    runs: Mapping[str, str]
    nothing: str
    notes: list[Note]
    waits: bool
    items: str

    @property
    def shown(self) -> list[str]:
        """The columns that tell the variants apart."""
        return [*next(iter(self.variants.values())).levels]

    @cached_property
    def varying(self) -> list[str]:
        """The shown columns in which variants differ."""
        return varying(self.variants.values())

    @cached_property
    def tested(self) -> list[Finding]:
        """The findings that an answer is about: the planned ones that were tested or, without any, all."""
        tested = [one for one in self.findings if one.is_tested]
        return [one for one in tested if one.is_planned] or tested

    def family(self, name: str) -> list[Finding]:
        return [one for one in self.findings if one.is_planned == (name == PLANNED)]

    @property
    def families(self) -> list[str]:
        """The names of those that have any finding; the second, if nothing is compared."""
        return [name for name in (PLANNED, EXPLORATORY) if self.family(name)] or [EXPLORATORY]

    @cached_property
    def table(self) -> pd.DataFrame:
        """A view of the findings: one row per variant and family, best first: the summary, family, baseline,
        then NUMBERS, metric, margin; docs/compare_columns.csv explains them. Baselines, and variants that are
        compared with nothing, have rows of their own."""
        return pd.concat([self.table_of(family) for family in self.families], ignore_index=True)

    def table_of(self, family: str) -> pd.DataFrame:
        """The rows of one family."""
        findings = self.family(family)
        compared = {side.name for one in self.findings for side in (one.variant, one.baseline)}
        bases = dict.fromkeys(one.baseline.name for one in findings)
        alone = [name for name in self.variants if name not in compared]
        rows = [(name, _row(None, BASELINE)) for name in bases]
        rows += [(name, _row(None, NO_BASELINE)) for name in alone if family == self.families[-1]]
        rows += [(one.variant.name, _row(one)) for one in findings]
        summary = self.summary.set_index("variant", drop=False).loc[[name for name, _ in rows]]
        columns = ["baseline", *NUMBERS]
        table = summary.reset_index(drop=True).join(pd.DataFrame([row for _, row in rows], columns=columns))
        table = table.assign(family=family, metric=self.metric, margin=self.margin)
        table = table.astype(dict.fromkeys(WHOLE, "Int64"))
        table["baseline"] = table["baseline"].astype(object).where(table["baseline"].notna(), None)
        order = {name: at for at, name in enumerate(self.summary["variant"])}
        table = table.iloc[np.argsort([order[name] for name, _ in rows], kind="stable")]
        columns = [*summary.columns, "family", "baseline", *NUMBERS, "metric", "margin"]
        return table[columns].reset_index(drop=True)


def _row(one: Finding | None, why: str = "") -> dict[str, Any]:
    """The cells of a finding, or of a row without one."""
    if one is None:
        numbers = dict.fromkeys(NUMBERS, np.nan) | dict.fromkeys(WHOLE)
        return numbers | {"baseline": None, "verdict": "", "why": why, "differs": "", "same_class": False}
    of = {name: getattr(one, "sd" if name == "sd_diff" else name) for name in NUMBERS}
    return of | {"baseline": one.baseline.name}


def compare(
    rows: pd.DataFrame, question: Question = NOTHING_ASKED, records: Sequence[StudyRecord] = ()
) -> Comparison:
    """Compare variants: as the studies declared, and each with the one that has the values of the baseline
    (by default fusion=concat) and is otherwise equal. records: of the studies. Raises ConfigError."""
    every, left_out = reported(rows)
    chosen = select(every, question.where)
    question, taken = settled(question, chosen, records)
    metric = question.metric or ""
    margin = margin_of(records, question.margin, metric)
    variants = project(chosen, metric, question, better=direction(metric, question.higher_is_better))
    if clash := [name for name in variants.shown if name in (*NUMBERS, "n", "mean", "sd", "baseline")]:
        raise ConfigError(f"--by {clash[0]}: the answer has a column of this name; give yours another")
    several = {*variants.table["fusion"]} > {STANDARD_FUSION}
    baseline = question.baseline or ({"fusion": STANDARD_FUSION} if several else None)
    contrasts, missing = _contrasts(variants, question, baseline, records, chosen, every)
    if not (contrasts or baseline) and (baseline := usual_baseline(variants)):
        contrasts = unplanned(variants, baseline, [])
    if question.within:
        contrasts = crossed(variants, contrasts, column_of(question.within, variants.columns, "--within"))
    waiting = _waiting(every, records)
    before = _unplanned_before(every, question, baseline, variants)
    judged = _judged(variants, contrasts, records, margin, before)
    counted_ones = _that_count(variants, judged, records)
    findings = _findings(variants, judged, margin, waiting, records)
    nothing = "" if contrasts else why_nothing(variants, baseline)
    names, runs = variants.names, dict(zip(variants.names, variants.table["run_id"], strict=True))
    arms = {run_id: name for record in records for run_id, name in record.arm_of.items()}
    of_run = {c: arms[run] for c, ids in enumerate(variants.run_ids) for run in ids if run in arms}
    called = [replace(one, arm=of_run.get(c, "")) for c, one in enumerate(variants.each)]
    each, summary = dict(zip(names, called, strict=True)), counted_ones.best_first()
    if apart := _differences(judged, findings):
        rows_apart = rows_of_differences(apart, summary)
        each = {**({} if question.within else each), **{name: side for name, (side, _) in apart.items()}}
        summary = rows_apart if question.within else pd.concat([summary, rows_apart], ignore_index=True)
    findings = [
        replace(one, variant=each[one.variant.name], baseline=each[one.baseline.name]) for one in findings
    ]
    comparison = Comparison(
        rows=chosen,
        variants=each,
        summary=summary,
        findings=findings,
        metric=metric,
        higher_is_better=variants.higher_is_better,
        margin=margin,
        runs=runs,
        nothing=nothing,
        notes=[],
        waits=bool(waiting),
        items=variants.items,
    )
    sides = [[at for _, at in one.sides] for one in contrasts]
    lines = [
        *foreseen(
            counted_ones,
            sorted({at for of in sides for at in of}),
            int(counted_ones.ran.sum(1).max()),
            records,
        ),
        *notes.weak_models(counted_ones, sorted({one.baseline for one in contrasts})),
        *notes.chosen_rows(question.where, chosen, metric),
        *taken,
        *left_out,
        *notes.of_studies(records, missing, every),
        *notes.mixed_marks(counted_ones, sides, mixed=question.mixed),
        *notes.of_units(counted_ones, findings, nothing),
        *notes.of_values(counted_ones),
        *notes.of_rows(chosen, metric, variants.shown),
        *([] if any(record.looks for record in records) else notes.missing_units(variants)),
    ]
    return replace(comparison, notes=lines)


# --- which contrasts ----------------------------------------------------------------------------------------


def _contrasts(
    variants: Variants,
    question: Question,
    baseline: Mapping[str, Any] | None,
    records: Sequence[StudyRecord],
    chosen: pd.DataFrame,
    every: pd.DataFrame,
) -> tuple[list[Weighed], list[str]]:
    """The contrasts that are asked about, and the names of planned ones without results."""
    found, missing = list[Weighed](), list[str]()
    for record in records:
        of_study, lacking = planned(variants, record, chosen["run_id"].dropna(), every["run_id"].dropna())
        found, missing = found + of_study, missing + lacking
    if asked := question.baseline:
        pairs = pair_up(variants, asked, free=tuned_columns(variants))
        found, missing = [one for one in found if (one.variant, one.baseline) in pairs], []
    # Two studies may have declared the same: then each has its own.
    return [*found, *unplanned(variants, baseline, found)], missing


def _unplanned_before(
    every: pd.DataFrame, question: Question, baseline: Mapping[str, Any] | None, variants: Variants
) -> int:
    """How many pairs the baseline makes among all rows, where some were chosen: choosing rows makes no family
    smaller."""
    if not question.where or variants.is_foreign or not baseline:
        return 0
    with contextlib.suppress(ConfigError):
        return len(pair_up(settings_of(every), baseline))
    return 0


def _waiting(every: pd.DataFrame, records: Sequence[StudyRecord]) -> dict[str, str]:
    """Of each study with a fixed number of seeds some of whose runs have not ended: how many have."""
    ended = {*every.loc[every["status"].isin((*RESULTS, Status.FAILED)), "run_id"]}
    waiting = {}
    for record in records:
        runs = record.reporting_runs
        if runs - ended and record.metric is not None and not record.looks and not record.is_one_by_one:
            waiting[record.name] = f"{len(runs & ended)} of {counted(len(runs), 'run')}"
    return waiting


# --- what they come to ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Case:
    """A contrast with what counts for it. sides: weights and (S,) values. (S,) each: difference; twin, of the
    metric on validation; more, on how many more arms of the variant's side a run diverged; ended. judged:
    what it comes to, at its place `at` there; groups: of values that do not pair. last: the look at which it
    ends; 0 without looks."""

    contrast: Weighed
    sides: list[tuple[float, stats.Array]]
    difference: stats.Array
    twin: stats.Array | None
    more: stats.Array
    ended: stats.Array
    judged: stats.Judged | None = None
    at: int = 0
    groups: bool = False
    last: int = 0

    def number(self, name: str) -> float:
        return float(getattr(self.judged, name)[self.at])

    @property
    def verdict(self) -> str:
        assert self.judged is not None
        return str(self.judged.verdict[self.at])

    @property
    def scale(self) -> float:
        return max(float(np.nanmax(np.abs(values), initial=0)) for _, values in self.sides)


def _case(variants: Variants, one: Weighed, order: stats.Array) -> _Case:
    """order: the places of units to take, −1 for one that has none."""

    def of_sides(of_CS: stats.Array, missing: Any) -> list[stats.Array]:
        each = zip(one.sides, one.counts(variants), strict=True)
        values = [np.where(counts_S, of_CS[at], missing) for (_, at), counts_S in each]
        return [np.where(order >= 0, of[order], missing) for of in values]

    weights = [weight for weight, _ in one.sides]
    values, lost = of_sides(variants.values, np.nan), of_sides(variants.diverged, False)

    def weighed(values: Sequence[stats.Array]) -> stats.Array:
        return np.sum([weight * of for weight, of in zip(weights, values, strict=True)], 0)

    return _Case(
        one,
        [*zip(weights, values, strict=True)],
        weighed(values),
        None if variants.twin is None else weighed(of_sides(variants.twin, np.nan)),
        np.sum([np.sign(weight) * of for weight, of in zip(weights, lost, strict=True)], 0),
        np.all([np.isfinite(of) | gone for of, gone in zip(values, lost, strict=True)], 0),
    )


def _judged(
    variants: Variants,
    contrasts: Sequence[Weighed],
    records: Sequence[StudyRecord],
    margin: float,
    before: int,
) -> list[_Case]:
    """Each contrast with its interval: those of a study as one family, whose size its record says, all others
    as one that is at least as large. before: how many of the others there were before rows were chosen."""
    family = sum(record.family for record in records)
    only = records[0] if len(records) == 1 else NO_STUDY
    cases = []
    for record in (*records, None):
        of_family = [one for one in contrasts if one.record is record]
        k = record.family if record else 0
        if record is None:
            there = [one for one in of_family if one.equal is None and _has_values(variants, one)]
            k = family + max(len(there), before)
        if of_family:
            cases += _family(variants, of_family, record or only, k, margin)
    return cases


def _has_values(variants: Variants, one: Weighed) -> bool:
    return all((np.isfinite(variants.values[at])).sum() >= 2 for _, at in one.sides)


def _family(
    variants: Variants, contrasts: Sequence[Weighed], record: StudyRecord, k: int, margin: float
) -> list[_Case]:
    """The contrasts judged at the looks of their study or, without any, on all their values at once; there,
    values that do not pair are judged as groups."""
    looks = record.looks if "seed" in variants.seeds and not variants.crossed else None
    S = variants.values.shape[1]
    order, at, once = np.arange(S), [S], [False] * len(contrasts)
    if looks:
        places = {seed: place for place, seed in enumerate(variants.seeds["seed"])}
        order = np.array([places.get(str(seed), -1) for seed in looks.seeds[: looks.at[-1]]], int)
        at, compared = looks.at, {run_id for one in record.contrasts for run_id in one.runs}
        alone = {c for c, ids in enumerate(variants.run_ids) if compared and not compared & {*ids}}
        once = [any(c in alone for _, c in one.sides) for one in contrasts]
    cases = [_case(variants, one, order) for one in contrasts]
    difference_KS, ended_KS, more_KS = (
        np.array([getattr(of, name) for of in cases]) for name in ("difference", "ended", "more")
    )
    judged = stand(
        difference_KS,
        ended_KS if looks else np.ones_like(ended_KS),  # what is missing is missing for good
        more_KS,
        at=at,
        k=k,
        margin=margin,
        higher_is_better=variants.higher_is_better,
        scale=np.array([of.scale for of in cases]),
        untested=np.array([one.equal is not None for one in contrasts]),
        once=np.array(once),
    )
    groups = np.zeros(len(cases), bool)
    if not looks:
        pairs = np.isfinite(difference_KS).sum(1)
        fewest = np.array([min(np.isfinite(values).sum() for _, values in of.sides) for of in cases])
        groups = (fewest >= 2) & ((pairs < 2) | (not variants.paired))
    for i in np.flatnonzero(groups):
        welch = stats.of_groups([(weight, values[None]) for weight, values in cases[i].sides])
        alone_1 = stats.judge(welch, 1 - stats.ALPHA / max(k, 1), margin, variants.higher_is_better)
        for name, of in vars(alone_1).items():
            getattr(judged, name)[i] = of[0]
        judged.verdict[i] = stats.withheld(alone_1.verdict, more_KS[i].sum())[0]
    return [
        replace(
            of,
            sides=[(weight, values[:n]) for weight, values in of.sides],
            difference=of.difference[:n],
            twin=None if of.twin is None else of.twin[:n],
            more=of.more[:n],
            judged=judged,
            at=i,
            groups=bool(groups[i]),
            last=0 if not looks else at[0] if once[i] else at[-1],
        )
        for i, (of, n) in enumerate(zip(cases, np.where(groups, S, judged.seeds).tolist(), strict=True))
    ]


def _that_count(variants: Variants, cases: Sequence[_Case], records: Sequence[StudyRecord]) -> Variants:
    """The variants without results beyond the last look at which a contrast of each stands or, of one without
    a contrast, at which any does; before the first look, beyond that one."""
    looks = records[0].looks if len(records) == 1 else None
    if looks is None or not any(one.last for one in cases):
        return variants
    reach = np.zeros(len(variants.table), int)
    for one in cases:
        for _, c in one.contrast.sides:
            reach[c] = max(reach[c], int(one.number("seeds")), looks.at[0])
    places = {str(seed): at for at, seed in enumerate(looks.seeds)}
    place_S = np.array([places.get(seed, looks.at[-1]) for seed in variants.seeds["seed"]])
    counts_CS = place_S < np.where(reach, reach, reach.max(initial=looks.at[0]))[:, None]
    values, lost = np.where(counts_CS, variants.values, np.nan), variants.diverged & counts_CS
    return replace(variants, values=values, diverged=lost)


def _findings(
    variants: Variants,
    cases: Sequence[_Case],
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
                differences=one.difference,
                on_validation=one.twin,
            )
        )
    return findings


def _differences(
    cases: Sequence[_Case], findings: Sequence[Finding]
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
    variants: Variants, cases: Sequence[_Case], verdicts: Sequence[tuple[str, str]], margin: float
) -> dict[int, int]:
    """How many more seeds would decide each contrast that is open, as far as seeds would, by its place."""
    open_ = [
        at
        for at, one in enumerate(cases)
        if verdicts[at][0] == stats.UNDECIDED and not (one.last or one.more.sum()) and one.number("p") >= 0
        if verdicts[at][1] != UNTRAINED
    ]
    if variants.higher_is_better is None or not open_:
        return {}
    n, diff, sd, level = (
        np.array([cases[at].number(name) for at in open_]) for name in ("n", "diff", "sd", "level")
    )
    needed = stats.seeds_to_claim(diff, sd, 1 - level, power=POWER, margin=margin)
    more = np.maximum(np.maximum(needed, FEWEST) - n, 1)
    return {at: int(seeds) for at, seeds in zip(open_, more, strict=True) if np.isfinite(seeds)}


def _verdict(
    variants: Variants,
    one: _Case,
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
        return "", f"the same function as {variants.names[contrast.equal]}"
    if why := _identical(variants, one, differs):
        return "", why
    study = contrast.record.name if contrast.record else next(iter(waiting), "")
    first = next((record.looks.at[0] for record in records if record.looks), 0)
    reaches = "" if margin != margin else " and reaches beyond the margin"
    side, other = ("it", "its baseline") if more > 0 else ("its baseline", "it")
    shared = f"{variants.folds}s share their training data" if variants.folds else "its seeds are crossed"
    constant = f"{'the same' if one.number('diff') else 'no'} difference"
    for holds, why in (
        (one.last and not one.number("seeds"), f"the first interim analysis is at {first} seeds"),
        (study in waiting, f"the study is not finished: {waiting.get(study)}"),
        (
            more and decides and low == low and one.verdict == stats.UNDECIDED,
            f"diverged, as {side} did on {counted(abs(more), 'more seed')} than {other}",
        ),
        (count < 2, f"{'one' if count else 'no'} paired {unit}"),
        (variants.crossed or variants.folds, f"{shared}, so they are not independent"),
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


def _identical(variants: Variants, one: _Case, differs: str) -> str:
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
    if not one.groups and (variants.learned[c] != variants.learned[base])[of].any():
        return ""
    runs = f"at all {both.sum()} {variants.unit}s" if not one.groups else "in every run"
    perhaps = "; perhaps the option never reached the program" if variants.is_foreign else ""
    changes = "change" if " " in differs else "changes"
    return f"identical {runs}: {differs} {changes} nothing here{perhaps}"
