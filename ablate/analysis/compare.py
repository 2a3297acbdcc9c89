"""From rows to findings: project the rows, look up or make the contrasts, judge them, and say what weakens
the result."""

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from ablate.analysis import notes
from ablate.analysis.contrasts import crossed, pairs_by, planned, unplanned, usual_baselines, why_nothing
from ablate.analysis.findings import Finding, at_levels, findings_of
from ablate.analysis.measures import settled
from ablate.analysis.projection import project
from ablate.analysis.question import NOTHING_ASKED, Question, direction, margin_of
from ablate.analysis.variants import Variant, Variants, as_pairs, settings_of, varying
from ablate.config.rules import ConfigError
from ablate.phrases import Note, advised, counted, lines_if
from ablate.store.columns import RESULTS, Status
from ablate.store.frames import at_own_value, column_of, is_foreign, select, with_options
from ablate.store.record import StudyRecord

NUMBERS = (
    *("pairs", "diff", "low", "high", "level", "p", "p_adjusted", "sd_diff", "more_seeds"),
    *("look", "last_look", "verdict", "why", "differs", "same_class"),
)
WHOLE = ("pairs", "more_seeds", "look", "last_look")
BASELINE, NO_BASELINE = "baseline", "no baseline"  # why a row has no verdict
PLANNED, EXPLORATORY = "planned", "exploratory"  # the two families


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`. rows: those that were compared. variants: by name. summary: a row each, with
    n, diverged, mean and sd, best first. findings: planned ones first. nothing: why nothing is compared;
    empty if anything is. notes: what weakens the result, and what was taken for what. arrays: the variants
    that were trained, with their values.
    """

    rows: pd.DataFrame
    variants: Mapping[str, Variant]
    summary: pd.DataFrame
    findings: Sequence[Finding]
    metric: str
    margin: float
    nothing: str
    notes: list[Note]
    arrays: Variants

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

    @cached_property
    def levels(self) -> dict[str, Finding]:
        """By name, the differences that contrasts of contrasts compare."""
        crossed = [one for one in self.tested or self.findings if one.variant.difference]
        return {one.variant.name: one for one in at_levels(self.arrays, crossed)}

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
        compared with nothing, have rows of their own; sums of arms stand last, by their names."""
        return pd.concat([self.table_of(family) for family in self.families], ignore_index=True)

    def table_of(self, family: str) -> pd.DataFrame:
        """The rows of one family."""
        findings = self.family(family)
        compared = {one.variant.name for one in self.findings if not one.is_sum}  # a sum has a row of its own
        compared |= {one.baseline.name for one in self.findings}
        alone = [name for name in self.variants if name not in compared and family == self.families[-1]]
        without = {one.baseline.name: BASELINE for one in findings}
        without |= dict.fromkeys(alone, NO_BASELINE)
        nothing = dict.fromkeys(("baseline", *WHOLE)) | {"verdict": "", "differs": "", "same_class": False}
        rows = [nothing | {"variant": name, "why": why} for name, why in without.items()]
        for one in findings:
            cells = {of: getattr(one, {"sd_diff": "sd", "verdict": "word"}.get(of, of)) for of in NUMBERS}
            variant, baseline = (one.name, None) if one.is_sum else (one.variant.name, one.baseline.name)
            rows.append({**cells, "variant": variant, "baseline": baseline})
        order = {name: at for at, name in enumerate(self.summary["variant"])}
        rows.sort(key=lambda row: order.get(row["variant"], len(order)))
        numbers = pd.DataFrame(rows, columns=["variant", "baseline", *NUMBERS]).replace(np.inf, np.nan)
        table = self.summary.set_index("variant").reindex(numbers["variant"]).reset_index()
        if sums := [(one.seeds, 0) for one in findings if one.is_sum]:
            table.loc[table["n"].isna(), ["n", "diverged"]] = sums
            table = table.astype({"n": int, "diverged": int})
        table = table.join(numbers.drop(columns="variant").astype(dict.fromkeys(WHOLE, "Int64")))
        table = table.assign(family=family, metric=self.metric, margin=self.margin)
        table["baseline"] = table["baseline"].astype(object).where(table["baseline"].notna(), None)
        return table[[*self.summary.columns, "family", "baseline", *NUMBERS, "metric", "margin"]]


def compare(
    rows: pd.DataFrame, question: Question = NOTHING_ASKED, records: Sequence[StudyRecord] = ()
) -> Comparison:
    """Compare variants: as the studies declared, and each with the one that has the values of the baseline
    (by default fusion=concat, then defaults of what else varies) and is otherwise equal. records: of the
    studies. Raises ConfigError."""
    for one in records if len(records) == 1 else ():
        has_results = (rows["status"].isin(RESULTS) & (rows["phase"] != "develop")).any()
        if not (has_results or one.is_copy or one.is_one_by_one) and (command := advised(one.words)):
            raise ConfigError(f"{one.name}: no run that reports has a result yet; `{command}` goes on")
    every, left_out = reported(rows)
    chosen = select(every, question.where)
    question, chosen, taken = settled(question, chosen, records)
    metric, declared = question.metric or "", [one for one in records if one.metric is not None]
    variants = replace(
        project(chosen, metric, question, better=direction(metric, question.higher_is_better)),
        margin=margin_of(records, question.margin, metric),
        arms={run_id: name for record in records for run_id, name in record.arm_of.items()},
        waiting=_unfinished(every, declared, *RESULTS, Status.FAILED),
        unfinished=_unfinished(every, records, *RESULTS),
    )
    if clash := [name for name in variants.shown if name in (*NUMBERS, "n", "mean", "sd", "baseline")]:
        raise ConfigError(f"--by {clash[0]}: the answer has a column of this name; give yours another")
    named = [variants.levels_of(of, "--baseline") for of in [question.baseline] if of]
    of_studies = [planned(variants, record, chosen["run_id"], every["run_id"]) for record in records]
    found = [one for contrasts, _ in of_studies for one in contrasts]
    missing = [name for _, lacking in of_studies for name in lacking]
    within = column_of(question.within, variants.columns, "--within") if question.within else ""
    baselines = named or [of for of in usual_baselines(variants, bool(found)) if within not in of]
    by_baseline = pairs_by(variants, baselines)
    pairs = [*itertools.chain.from_iterable(by_baseline)]
    if named:
        found, missing = [one for one in found if (one.variant, one.baseline) in pairs], []
    # Two studies may have declared the same: then each has its own.
    contrasts = [*found, *unplanned(variants, pairs, found)]
    others = [as_pairs(of) for of, made in zip(baselines, by_baseline, strict=True) if not made]
    taken_for_baseline = ""
    if others and contrasts and "fusion" not in baselines[0]:
        choices = f"--baseline {' or '.join(others)} compares otherwise"
        taken_for_baseline = f"{as_pairs(baselines[0])} is the baseline; {choices}"
    if within:
        contrasts = crossed(variants, contrasts, within)
    contrasts.sort(key=lambda one: one.record is None)  # those of studies first
    before = 0
    if question.where and not variants.is_foreign:  # choosing rows makes no family smaller
        with contextlib.suppress(ConfigError):
            there = settings_of(every)
            before = sum(map(len, pairs_by(there, named or usual_baselines(there, bool(found)))))
    findings = findings_of(variants, contrasts, records, before)
    nothing = "" if contrasts else why_nothing(variants, next(iter(baselines), {}))
    each, summary = dict(zip(variants.names, variants.each, strict=True)), variants.best_first()
    if crossed_ones := [one for one in findings if one.variant.difference]:
        each = {} if question.within else each
        each |= {side.name: side for one in crossed_ones for side in one.both}
        levels = [(one.variant, one.seeds, one.diff, one.sd) for one in at_levels(variants, crossed_ones)]
        numbers = [
            {**of.levels, "variant": of.name, "n": n, "mean": diff, "sd": sd} for of, n, diff, sd in levels
        ]
        apart = pd.DataFrame(numbers, columns=summary.columns).assign(diverged=0)
        summary = apart if question.within else pd.concat([summary, apart], ignore_index=True)
    sides = [[at for _, at in one.sides] for one in contrasts]
    asked = [one for one in contrasts if one.record]  # which the answer is about
    compared, ran = sorted({at for of in sides for at in of}), int(variants.ran.sum(1).max())
    seeds = max([ran, *(len(one.reporting_seeds) for one in records if one.name in variants.unfinished)])
    bases = {at for one in asked or contrasts for w, at in one.sides if one.is_crossed or w < 0}
    lines = [
        *notes.foreseen(variants, compared, seeds, records),
        *notes.weak_models(variants, bases, compared),
        *notes.chosen_rows(question.where, chosen, metric),
        *taken,
        *left_out,
        *notes.of_studies(records, missing, variants.unfinished),
        *notes.mixed_marks(variants, sides),
        *variants.notes,
        *notes.of_units(variants, contrasts, findings, nothing, taken_for_baseline),
        *notes.of_values(variants),
        *notes.of_rows(chosen, metric, variants.shown),
        *([] if any(record.looks for record in records) else notes.missing_units(variants)),
    ]
    return Comparison(
        rows=chosen,
        variants=each,
        summary=summary,
        findings=findings,
        metric=metric,
        margin=variants.margin,
        nothing=nothing,
        notes=lines,
        arrays=variants,
    )


def _unfinished(every: pd.DataFrame, records: Sequence[StudyRecord], *ended: Status) -> dict[str, str]:
    """Of each study with a fixed number of seeds some of whose runs have not `ended`: how many have."""
    there = {*every.loc[every["status"].isin(ended), "run_id"]}
    return {
        one.name: f"{len(one.reporting_runs & there)} of {counted(len(one.reporting_runs), 'run')}"
        for one in records
        if one.reporting_runs - there and not one.looks and not one.is_one_by_one
    }


def reported(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[Note]]:
    """The rows to report on, with_options, and a line on those left out: rows of development seeds, which
    were used to choose values, and rows at values that the study has since replaced. Raises ConfigError."""
    if rows.empty or is_foreign(rows):
        return with_options(rows), []
    kept = rows["phase"].isna() | rows["phase"].isin(["", "report"])
    if not kept.any():
        raise ConfigError("every row is of development seeds (phase); there is nothing to report on yet")
    own = at_own_value(rows[kept])
    gone = [(int((~kept).sum()), "of development seeds (phase)")]
    gone += [(int(kept.sum()) - len(own), "at values that are not an arm's own (role)")]
    parts = [f"{counted(count, 'row')} {of}" for count, of in gone if count]
    line = f"left out: {' and '.join(parts)}"
    return with_options(own), lines_if(parts, Note(line))
