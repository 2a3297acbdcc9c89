"""Compare variants with their baselines: families of comparisons with verdicts, as one table."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Unpack

import pandas as pd

from ablate.analysis import controls, notes, stats
from ablate.analysis.caveats import caveats
from ablate.analysis.contrasts import Pair, family_pairs, why_nothing
from ablate.analysis.finding import Finding, finding
from ablate.analysis.frames import reported
from ablate.analysis.incomparable import kinds_of_pairs, require_equal_settings
from ablate.analysis.looks import Decisions
from ablate.analysis.question import Question, direction, labelled, margin_of, metric_of, varied
from ablate.analysis.variant import Variant, varying
from ablate.analysis.variants import Variants, collect
from ablate.analysis.verdicts import (
    NUMBERS,
    WHOLE,
    contrast_table,
    decisions,
    that_count,
)
from ablate.config.contrast import Contrast
from ablate.config.rules import ConfigError
from ablate.config.schema import STANDARD_FUSION
from ablate.phrases import Note, first_few
from ablate.store.columns import RESULTS, Status, column_named
from ablate.store.record import NO_STUDY, StudyRecord

ALPHA = 0.05
BASELINE, NO_BASELINE = "baseline", "no baseline"
OF_ROWS = ("n", "mean", "sd", "best", "family", "baseline", "verdict", "why", "differs")


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`. table: one row per variant and family: variant, the `shown` columns, params,
    n, diverged, mean, sd, best, family, baseline, then the statistics of variant − baseline (NUMBERS; without
    pairs n_baseline is how many values the baseline has), verdict, why, differs, same_class
    (whether both can represent the same functions), metric, margin. look, last_look: of a study with looks,
    the numbers of seeds at which the contrast stands, and at most. owed: how many seeds each contrast of a
    fixed design is to have, while runs of it are missing; 0 for any other. variants: by name, as in the
    table. runs: for each variant the run_id of one of its runs. nothing: why nothing is compared; empty if
    anything is. notes: remarks about the rows, one line each. rows: those
    that were compared. caveats: whether their text and their budget can carry a verdict.
    higher_is_better: None if that is not known of the metric; margin: NaN if it has none.
    """

    rows: pd.DataFrame
    table: pd.DataFrame
    variants: Mapping[str, Variant]
    metric: str
    higher_is_better: bool | None
    margin: float
    alpha: float
    runs: Mapping[str, str]
    nothing: str
    notes: list[Note]
    owed: int
    caveats: list[Note]

    @property
    def shown(self) -> list[str]:
        """The columns that tell the variants apart."""
        return [*next(iter(self.variants.values())).levels]

    @cached_property
    def varying(self) -> list[str]:
        """The shown columns in which variants differ."""
        return varying(self.variants.values())

    def family(self, name: str) -> pd.DataFrame:
        return self.table[self.table["family"] == name]

    @property
    def families(self) -> list[str]:
        return list(dict.fromkeys(self.table["family"]))

    @cached_property
    def _by_contrast(self) -> dict[tuple[str, str, str], Finding]:
        """What each contrast came to, by family, variant and baseline, in the order of the table."""
        return {
            (row["family"], row["variant"], row["baseline"]): finding(row, self.variants)
            for row in self.table.to_dict("records")
            if row["baseline"] is not None
        }

    @property
    def findings(self) -> list[Finding]:
        """All contrasts, in the order of the table."""
        return [*self._by_contrast.values()]

    def findings_of(self, rows: pd.DataFrame) -> list[Finding | None]:
        """The finding of each of these rows of the table; None for a row without a baseline."""
        contrasts = zip(rows["family"], rows["variant"], rows["baseline"], strict=True)
        return [self._by_contrast.get(contrast) for contrast in contrasts]

    @property
    def identical(self) -> list[Finding]:
        """The contrasts of two variants that agree to the last digit, each once."""
        each: dict[tuple[Variant, Variant], Finding] = {}
        for one in self.findings:
            if one.verdict == stats.IDENTICAL:
                each.setdefault((one.variant, one.baseline), one)
        return [*each.values()]

    @cached_property
    def tested(self) -> list[Finding]:
        """The contrasts that an answer is about: the primary ones that were tested or, without any, all."""
        tested = [one for one in self.findings if one.is_tested]
        return [one for one in tested if one.is_primary] or tested


def compare(
    rows: pd.DataFrame,
    *,
    margin: float | None = None,
    alpha: float = ALPHA,
    records: Sequence[StudyRecord] = (),
    **asked: Unpack[Question],
) -> Comparison:
    """Compare each variant with the one that has the values of `baseline` and is otherwise equal.

    baseline: by default fusion=concat. records: of the studies; their `primary`, `metric` and `margin` are
    used unless the arguments give others. margin: in the metric's unit. The primary contrasts and all
    others are two families, each corrected separately. Raises ConfigError, Incomparable.
    """
    rows, left_out = reported(rows, asked.get("where", ()))
    every, chosen = _variants(rows, records, asked, [*(asked.get("baseline") or ())])
    metric = every.metric
    margin = margin_of(records, margin, metric)
    baseline, contrasts = _baseline(every, records, asked.get("baseline"))
    pairs, missing = _pairs(every, records, contrasts, baseline)
    now = decisions(every, records, pairs, margin, alpha)
    variants = that_count(every, now)
    bases = sorted({base for of in pairs.values() for _, base in of})
    owed = 0 if asked.get("where") else _seeds_owed(rows, records)
    families = _families(variants, pairs, now, margin, alpha, owed)
    table = pd.concat(families, ignore_index=True)
    table = table.assign(metric=metric, margin=margin)
    nothing = "" if any(pairs.values()) else why_nothing(variants, baseline)
    if nothing and not baseline:
        table["verdict"] = None
    runs = dict(zip(variants.names, variants.table["run_id"], strict=True))
    arms = {run_id: name for record in records for run_id, name in record.arm_of.items()}
    called = labelled(variants.each, asked.get("label", {}))
    comparison = Comparison(
        rows=rows,
        table=table,
        variants={
            name: replace(one, arm=arms.get(runs[name], ""))
            for name, one in zip(variants.names, called, strict=True)
        },
        metric=metric,
        higher_is_better=variants.higher_is_better,
        margin=margin,
        alpha=alpha,
        runs=runs,
        nothing=nothing,
        notes=[],
        owed=owed,
        caveats=[*caveats(variants, bases)],
    )
    pair_by = [*variants.seeds.columns] if asked.get("pair_by") else ["seed"]
    lines = [
        *(one for one in comparison.caveats if one.is_doubt),  # the gravest first
        *notes.only_where(asked.get("where", ()), rows, metric),
        *chosen,
        *left_out,
        *map(Note, missing),
        *([] if any(record.declared.get("per_level") for record in records) else notes.budgets(variants)),
        *controls.unknown_forms(variants),
        *kinds_of_pairs(every, sorted({*itertools.chain(*pairs.values())}), mixed=asked.get("mixed", False)),
        *_of_results(comparison, variants, records),
        *([] if now else notes.missing_seeds(rows, variants.shown, pair_by)),
        *notes.at_looks(every, variants, now, records),
        *([] if variants.is_foreign else controls.parametrization(comparison.tested)),
    ]
    return replace(comparison, notes=lines)


def _of_results(comparison: Comparison, variants: Variants, records: Sequence[StudyRecord]) -> Iterator[Note]:
    """The notes on the metric, on values, and on rows that count less or not at all."""
    rows, metric, table = comparison.rows, comparison.metric, comparison.table
    is_measured = column_named(metric).role == "resource"
    yield from notes.foreign_columns(rows, variants)
    if is_measured:
        yield Note(f"{metric} was measured with whatever else ran then; --cost times variants side by side")
    if comparison.nothing:
        yield Note(f"no verdicts: {comparison.nothing}")
    elif alone := [*table.loc[table["verdict"] == NO_BASELINE, "variant"]]:
        called = [comparison.variants[name].arm or name for name in alone]
        what = f"compared with nothing, as no baseline is otherwise equal: {first_few(called)}"
        yield Note(what, "taken")
    for record in records:
        yield from notes.doubts(record)
    yield from notes.unpaired(table, variants)
    yield from notes.doubtful_values(variants)
    if not is_measured:
        yield from notes.bimodal_seeds(variants)
    yield from notes.stale(rows)
    yield from notes.weaknesses(table)
    yield from notes.unusable(rows, metric, variants.shown)
    yield from notes.worse_than_guessing(rows)


def _pairs(
    variants: Variants,
    records: Sequence[StudyRecord],
    contrasts: Sequence[Contrast],
    baseline: Mapping[str, Any] | None,
) -> tuple[dict[str, list[Pair]], list[str]]:
    """The pairs of each family, and a line for each primary contrast without pairs. With another metric than
    the studies declared, none is primary."""
    pairs, missing = family_pairs(variants, contrasts, baseline)
    if any(record.metric not in (None, variants.metric) for record in records):
        pairs["exploratory"] = [*pairs.pop("primary"), *pairs["exploratory"]]
    return pairs, missing


def _seeds_owed(rows: pd.DataFrame, records: Sequence[StudyRecord]) -> int:
    """How many seeds each contrast of a study without looks is to have, while some of its runs have not
    ended; 0 for any other. rows: of the report."""
    (record,) = records if len(records) == 1 else (NO_STUDY,)
    if record.looks or record.metric is None or record.is_copy:
        return 0
    ended = {*rows.loc[rows["status"].isin((*RESULTS, Status.FAILED)), "run_id"]}
    reporting = {run for run in record.runs if run not in record.roles or record.roles[run].phase == "report"}
    return len(record.reporting_seeds) if reporting - ended else 0


def _families(
    variants: Variants,
    pairs: Mapping[str, Sequence[Pair]],
    now: Mapping[str, Decisions],
    margin: float,
    alpha: float,
    owed: int,
) -> Iterator[pd.DataFrame]:
    """The rows of each family that has any; variants without a contrast are among the exploratory ones."""
    alone = {*range(len(variants.table))} - {side for of in pairs.values() for pair in of for side in pair}
    for name, of in pairs.items():
        rest = sorted(alone) if name == "exploratory" else []
        if of or rest:
            compared = contrast_table(variants, name, of, margin, alpha, now.get(name), owed)
            yield _family(variants, name, of, rest, compared)


def _baseline(
    variants: Variants, records: Sequence[StudyRecord], asked: Mapping[str, Any] | None
) -> tuple[Mapping[str, Any] | None, list[Contrast]]:
    """What variants are compared with, None if nothing says so; and the primary contrasts with such a
    baseline. What is asked takes precedence over the studies."""
    contrasts = [contrast for record in records for contrast in record.primary]
    if asked is not None:
        return asked, [contrast for contrast in contrasts if contrast.has_baseline(asked)]
    several = set(variants.table["fusion"]) > {STANDARD_FUSION}
    return ({"fusion": STANDARD_FUSION} if several else None), contrasts


def _variants(
    rows: pd.DataFrame, records: Sequence[StudyRecord], asked: Question, compared: Sequence[str] = ()
) -> tuple[Variants, list[Note]]:
    """The variants that are asked about, and lines on what was left open. compared: keys beside --by in which
    single runs may differ."""
    by, pair_by, mixed = asked.get("by", ()), asked.get("pair_by", ()), asked.get("mixed", False)
    if not mixed:
        require_equal_settings(rows, records, [*by, *compared])
    by, lines = varied(rows, by, [*pair_by, asked.get("metric")])
    metric, why = metric_of(rows, records, asked.get("metric"), [*by, *pair_by])
    better = direction(metric, asked.get("higher_is_better"))
    texts = any(record.varies_text for record in records)
    variants = collect(rows, metric, by=by, pair_by=pair_by, mixed=mixed, texts=texts)
    if clash := [name for name in variants.shown if name in (*NUMBERS, *OF_ROWS)]:
        raise ConfigError(f"--by {clash[0]}: the answer has a column of this name; give yours another")
    return replace(variants, higher_is_better=better), [*why, *lines]


def _family(
    variants: Variants, name: str, pairs: Sequence[Pair], alone: Sequence[int], compared: pd.DataFrame
) -> pd.DataFrame:
    """The rows of one family, best first: baselines, variants without one (alone), and compared variants.
    compared: a row per pair."""
    bases = sorted({base for _, base in pairs})
    summary = variants.summary()
    table = summary.iloc[[*bases, *alone, *(variant for variant, _ in pairs)]].reset_index(drop=True)
    compared.index += len(bases) + len(alone)
    table = table.join(compared).assign(family=name)
    table["same_class"] = table["same_class"].eq(True)
    for column in ("baseline", "why"):
        table[column] = table[column].astype(object).where(table[column].notna(), None)
    table = table.astype(dict.fromkeys(WHOLE, "Int64"))
    table["verdict"] = [*[BASELINE] * len(bases), *[NO_BASELINE] * len(alone), *compared["verdict"]]
    ascending = not variants.higher_is_better
    table = table.sort_values(["mean", "variant"], ascending=[ascending, True], kind="stable")
    front = [*summary.columns, "family", "baseline", *NUMBERS, "verdict", "why", "differs", "same_class"]
    return table[front]


def counted_variants(variants: Variants, record: StudyRecord) -> Variants:
    """The variants of a study, without results beyond the look at which each stands."""
    if record.looks is None:
        return variants
    pairs, _ = family_pairs(variants, record.primary, None)
    margin = margin_of([record], None, variants.metric)
    return that_count(variants, decisions(variants, [record], pairs, margin, ALPHA))
