"""Compare variants with their baselines: families of comparisons with verdicts, as one table.

It reads no files, prints nothing, and loads no torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.analysis.contrasts import (
    EQUAL,
    Pair,
    differing,
    equal_forms,
    has_baseline,
    named_after_form,
    pair_up,
    primary_pairs,
    same_classes,
    unknown_forms,
)
from ablate.analysis.controls import CONTROLLED, Worth, controlled, on_worth, parametrization, shares, worth
from ablate.analysis.effects import effects, projection_and_heads
from ablate.analysis.frames import LARGEST
from ablate.analysis.notes import (
    budgets,
    doubts,
    foreign_columns,
    missing_seeds,
    moved_by_seeds,
    never_reached,
    seeds_of_two_kinds,
    stale,
    unusable,
    weaknesses,
)
from ablate.analysis.roles import having, tuned_pairs, without_values
from ablate.analysis.select import as_texts, select, with_options
from ablate.analysis.unpaired import no_verdicts
from ablate.analysis.variants import STEPS_TO, Variants, collect, lost_by
from ablate.config.rules import ConfigError
from ablate.config.schema import STANDARD_FUSION
from ablate.phrases import counted, only_if
from ablate.store.columns import HIGHER_IS_BETTER, MEASURED_COLUMNS
from ablate.store.record import StudyRecord

MARGIN = 0.01
POWER = 0.8
BASELINE, NO_BASELINE = "baseline", "no baseline"
# Verdicts withheld if the variant diverged on more seeds than its baseline; and if the baseline did on more.
CLAIMS_FOR = (stats.BETTER, stats.BETTER_WITHIN, stats.EQUIVALENT, stats.WORSE_WITHIN)
CLAIMS_AGAINST = (stats.WORSE, stats.WORSE_WITHIN, stats.EQUIVALENT, stats.BETTER_WITHIN)
NUMBERS = (
    *("pairs", "diff", "low", "high", "p", "p_holm", "low_marginal", "high_marginal", "sd_diff", "p_tost"),
    *("p_tost_holm", "p_sign", "p_sign_floor", "d_z", "ratio", "below", "skew", "correlation", "p_welch"),
    *("more_seeds", "level", "share", *CONTROLLED),
)


class Question(TypedDict, total=False):
    """Arguments of `compare`: which rows are compared, by which metric, grouped into which variants."""

    metric: str | None
    by: Sequence[str]
    baseline: Mapping[str, Any] | None
    where: Sequence[str]
    mixed: bool


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`. table: one row per variant and family: variant, the `shown` columns, params,
    n, diverged, mean, sd, best, family, baseline, then the statistics of variant − baseline (NUMBERS),
    verdict, why, differs, same_class (whether both can represent the same functions), metric, margin. share
    is the difference as a share of what attention is worth to the baseline, CONTROLLED what remains of it
    under the study's placebo (controls.py). placebo: its overrides. runs: for each variant the run_id of one
    of its runs. notes: remarks about the rows, one line each. interaction: effects.projection_and_heads, if a
    study asks about the output projection; else empty.
    """

    table: pd.DataFrame
    shown: list[str]
    metric: str
    margin: float
    alpha: float
    runs: Mapping[str, str]
    notes: list[str]
    interaction: pd.DataFrame
    placebo: Mapping[str, str]

    def family(self, name: str) -> pd.DataFrame:
        return self.table[self.table["family"] == name]

    @property
    def families(self) -> list[str]:
        return list(dict.fromkeys(self.table["family"]))


def compare(
    rows: pd.DataFrame,
    *,
    metric: str | None = None,
    by: Sequence[str] = (),
    baseline: Mapping[str, Any] | None = None,
    where: Sequence[str] = (),
    margin: float | None = None,
    alpha: float = 0.05,
    records: Sequence[StudyRecord] = (),
    mixed: bool = False,
) -> Comparison:
    """Compare each variant with the one that has the values of `baseline` and is otherwise equal.

    baseline: by default fusion=concat. records: of the studies; their `primary`, `metric` and `margin` are
    used unless the arguments give others. margin: in the metric's unit. The primary contrasts and all others
    are two families, each corrected separately. Raises ConfigError, Incomparable.
    """
    rows, notes = report_rows(rows)
    rows = select(with_options(rows), where)
    metric, why = _metric(rows, records, metric)
    margin = _margin(records, margin, metric)
    variants = collect(rows, metric, by=by, mixed=mixed)
    entries = [entry for record in records for entry in record.primary]
    if baseline is not None:  # an argument takes precedence over the study
        entries = [entry for entry in entries if has_baseline(entry, baseline)]
    if baseline is None and set(variants.table["fusion"]) > {STANDARD_FUSION}:
        baseline = {"fusion": STANDARD_FUSION}
    if having(variants, "tuned"):
        at_baseline = any(record.reports_at_baseline for record in records)
        pairs, lines = tuned_pairs(variants, entries, baseline, at_baseline=at_baseline)
    else:
        pairs, lines = _pairs(variants, entries, baseline)
    if any(record.metric not in (None, metric) for record in records):  # not declared for this metric
        pairs["exploratory"] = [*pairs.pop("primary"), *pairs["exploratory"]]
    lines += [*budgets(variants), *unknown_forms(variants), *foreign_columns(rows, metric, by)]
    if metric in MEASURED_COLUMNS:
        lines.append(f"{metric} was measured with whatever else ran then; --cost times variants side by side")
    alone = sorted(
        {*range(len(variants.table))} - {c for those in pairs.values() for pair in those for c in pair}
    )
    families = []
    placebos = [record.placebo for record in records if record.placebo]
    alike = all(one == placebos[0] for one in placebos)
    placebo = placebos[0] if placebos and alike else {}
    lines += only_if(
        not alike, "the placebos of these studies differ: compare them apart to see what remains"
    )
    units = worth(variants, sorted({base for those in pairs.values() for _, base in those}))
    for name, those in pairs.items():
        rest = alone if name == "exploratory" else []
        if those or rest:
            families.append(_family(variants, those, rest, name, margin, alpha, placebo, units))
    table = pd.concat(families, ignore_index=True).assign(metric=metric, margin=margin)
    if not any(pairs.values()):
        lines.append(no_verdicts(variants, baseline))
        if baseline is None:
            table["verdict"] = None
    lines += [line for record in records for line in doubts(record)]
    asks = any(entry.get("vary") == "out_proj" for entry in entries)
    interaction = projection_and_heads(variants, placebo, alpha=alpha) if asks else pd.DataFrame()
    lines += never_reached(variants)
    lines += seeds_of_two_kinds(variants) if metric not in MEASURED_COLUMNS else []
    lines += moved_by_seeds(variants)
    notes = [*why, *notes, *lines, *stale(rows), *weaknesses(table), *unusable(rows, metric)]
    runs = dict(zip(variants.names, variants.table["run_id"], strict=True))
    notes += [*missing_seeds(rows), *parametrization(table, placebo), *on_worth(variants, units)]
    return Comparison(table, variants.shown, metric, margin, alpha, runs, notes, interaction, placebo)


def effects_of(
    rows: pd.DataFrame,
    *,
    metric: str | None = None,
    by: Sequence[str] = (),
    baseline: Mapping[str, Any] | None = None,
    where: Sequence[str] = (),
    records: Sequence[StudyRecord] = (),
    mixed: bool = False,
) -> tuple[pd.DataFrame, list[str]]:
    """Main effects and two-way interactions of the factors in these rows (effects.py), and notes."""
    rows, notes = report_rows(rows)
    rows = without_values(select(with_options(rows), where))
    metric, why = _metric(rows, records, metric)
    variants = collect(rows, metric, by=by, mixed=mixed)
    table, lines = effects(variants, baseline)
    lines += never_reached(variants)
    notes = [*why, *notes, *lines, *stale(rows), *unusable(rows, metric), *missing_seeds(rows)]
    return table.assign(metric=metric), notes


def report_rows(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The rows to report on, and lines on those left out: rows of development seeds, which were used to
    choose values, and rows at values that the study has since replaced."""
    if "phase" not in rows or rows.empty:
        return rows, []
    kept = rows["phase"].isna() | rows["phase"].isin(["", "report"])
    if not kept.any():
        raise ConfigError("every row is of development seeds (phase); there is nothing to report on yet")
    left = int((~kept).sum())
    lines = only_if(left, f"left out: {counted(left, 'row')} of development seeds (phase)")
    rows = rows[kept]
    if "role" in rows and "tuned" in rows:
        replaced = as_texts(rows["tuned"]).ne("") & as_texts(rows["role"]).eq("")
        if old := int(replaced.sum()):
            lines.append(f"left out: {counted(old, 'row')} at values that are no longer an arm's own (role)")
        rows = rows[~replaced]
    return rows, lines


def _pairs(
    variants: Variants, entries: Sequence[Mapping[str, Any]], baseline: Mapping[str, Any] | None
) -> tuple[dict[str, list[Pair]], list[str]]:
    """The primary and the exploratory pairs, and a line for each primary entry without pairs."""
    primary, lines = primary_pairs(variants, entries)
    others = pair_up(variants, baseline) if baseline else []
    return {"primary": primary, "exploratory": [pair for pair in others if pair not in primary]}, lines


def _metric(rows: pd.DataFrame, records: Sequence[StudyRecord], metric: str | None) -> tuple[str, list[str]]:
    """The metric, and a line if the study chose it."""
    if metric is not None:
        return metric, []
    planned = {record.metric for record in records}
    if len(planned) == 1 and (chosen := planned.pop()):
        return chosen, [f"metric: {chosen}, on which this study reports; --metric takes another"]
    if "phase" in rows and (rows["phase"] == "report").all() and rows["test_loss"].notna().any():
        return "test_loss", ["metric: test_loss, on which every row reports (phase); --metric takes another"]
    return "val_loss", []


def _margin(records: Sequence[StudyRecord], margin: float | None, metric: str) -> float:
    """The margin: as given, else the study's, else MARGIN. For steps, NaN unless given, since the other two
    are in nats; with NaN nothing is equivalent."""
    if margin is None and metric.startswith(STEPS_TO):
        return np.nan
    planned = {record.margin for record in records if record.margin is not None}
    margin = margin if margin is not None else planned.pop() if len(planned) == 1 else MARGIN
    if not 0 < margin < LARGEST:
        raise ConfigError(f"--margin {margin}: give one above 0, in the metric's unit, such as 0.01")
    return margin


def _family(
    variants: Variants,
    pairs: Sequence[Pair],
    alone: Sequence[int],
    name: str,
    margin: float,
    alpha: float,
    placebo: Mapping[str, str],
    units: Worth,
) -> pd.DataFrame:
    """The rows of one family, best first: baselines, compared variants, and variants without a baseline."""
    bases = sorted({base for _, base in pairs})
    rest = [variant for variant in alone if variant not in bases]
    at = [*bases, *rest, *(variant for variant, _ in pairs)]
    summary = variants.summary()
    table = summary.iloc[at].reset_index(drop=True)
    compared = _paired(variants, pairs, margin, alpha)
    compared = compared.join(controlled(variants, pairs, placebo, compared["level"].to_numpy()))
    compared["share"] = shares(compared["diff"], pairs, units)
    compared.index += len(bases) + len(rest)
    table = table.join(compared).assign(family=name)
    table["same_class"] = table["same_class"].eq(True)
    table["baseline"], table["why"] = (
        table[c].astype(object).where(table[c].notna(), None) for c in ("baseline", "why")
    )
    table = table.astype({"pairs": "Int64", "more_seeds": "Int64"})
    table["verdict"] = [
        *([BASELINE] * len(bases)), *([NO_BASELINE] * len(rest)), *compared["verdict"]
    ]  # fmt: skip
    ascending = variants.metric not in HIGHER_IS_BETTER
    table = table.sort_values(["mean", "variant"], ascending=[ascending, True], kind="stable")
    front = [*summary.columns, "family", "baseline", *NUMBERS, "verdict", "why", "differs", "same_class"]
    return table[front]


def _paired(variants: Variants, pairs: Sequence[Pair], margin: float, alpha: float) -> pd.DataFrame:
    """One row per pair: NUMBERS, verdict, why, baseline, differs, same_class."""
    index = np.array(pairs, int).reshape(-1, 2)
    variant, baseline = variants.values[index[:, 0]], variants.values[index[:, 1]]
    same = _same_as(variants, pairs)
    out_of = np.array([one is None for one in same], bool)
    crossed = variants.crossed
    result = stats.paired(
        variant,
        baseline,
        margin=margin,
        alpha=alpha,
        higher_is_better=variants.metric in HIGHER_IS_BETTER,
        in_family=out_of & (not crossed),
    )
    k = max(int(result["family"].sum()), 1)
    table = pd.DataFrame(result).rename(columns={"n": "pairs", "sd": "sd_diff"}).drop(columns="family")
    table["p_sign"], table["p_sign_floor"] = stats.sign_flip(
        np.where(result["family"][:, None], variant - baseline, np.nan)
    )
    with np.errstate(over="ignore"):  # a difference of hundreds of nats
        table["ratio"] = np.exp(table["diff"]) if variants.metric.endswith("_loss") else np.nan
    table["level"] = np.where(result["family"], 1 - alpha / k, np.nan)
    table["baseline"] = [variants.names[base] for _, base in pairs]
    table["differs"] = differing(variants, pairs)
    table["same_class"] = same_classes(variants, pairs)
    more = variants.diverged[index[:, 0]].sum(1) - variants.diverged[index[:, 1]].sum(1)
    lost = (more > 0) & table["verdict"].isin(CLAIMS_FOR) | (more < 0) & table["verdict"].isin(CLAIMS_AGAINST)
    table["verdict"] = table["verdict"].mask(lost, stats.UNDECIDED)
    table["verdict"] = table["verdict"].mask(~out_of, EQUAL)
    open_ = (table["verdict"] == stats.UNDECIDED) & result["family"] & ~lost
    table["more_seeds"] = np.nan
    if open_.any():
        needed = stats.seeds_to_claim(
            table["diff"][open_], table["sd_diff"][open_], alpha / k, power=POWER, margin=margin
        )
        table.loc[open_, "more_seeds"] = np.maximum(needed - table["pairs"][open_], 1)
    never = np.isinf(table["more_seeds"])
    table["more_seeds"] = table["more_seeds"].mask(never)
    table["why"] = [
        _why(row, more if lost else 0, lost_by(variants.metric), equal, alpha, crossed)
        for row, lost, equal, more in zip(table.to_dict("records"), lost, same, more, strict=True)
    ]
    table["why"] = table["why"].mask(never, "no number of seeds would decide it")
    return table


def _same_as(variants: Variants, pairs: Sequence[Pair]) -> list[str | None]:
    """For each pair, the baseline or other variant of the family that the variant equals by construction;
    None for most."""
    forms = equal_forms(variants)
    same: list[str | None] = [None] * len(pairs)
    seen: dict[tuple[Any, int], int] = {}
    # Of two equal variants, keep the one named after the form: sum, not the normalized mean.
    order = sorted(
        range(len(pairs)), key=lambda i: not named_after_form(variants, pairs[i][0], forms[pairs[i][0]])
    )
    for i in order:
        variant, base = pairs[i]
        first = seen.setdefault((forms[variant], base), variant)
        if forms[variant] == forms[base]:
            same[i] = variants.names[base]
        elif first != variant:
            same[i] = variants.names[first]
    return same


def _why(
    row: Mapping[Any, Any], more: int, lost: str, equal: str | None, alpha: float, crossed: bool
) -> str | None:
    """Why there is no verdict, in a few words; None if there is one or nothing to add. more: on how many more
    seeds than its baseline the variant was `lost`; negative the other way round, 0 if that played no part.
    crossed: as Variants.crossed."""
    if equal is not None:  # at one head a learned weight changes the training, but not the function
        return f"the same function as {equal}"
    if more:
        one, other = ("its", "its baseline's") if more > 0 else ("its baseline's", "its own")
        return f"{abs(more)} more of {one} seeds {lost} than of {other}"
    if row["verdict"] != stats.UNDECIDED:
        return None
    if row["pairs"] < 2:
        return "one paired seed" if row["pairs"] else "no paired seed"
    if crossed:
        return "its seeds are crossed, so they are not independent: no test"
    if np.isnan(row["p"]):
        told = "the same difference at every seed" if row["diff"] else "no difference at any seed"
        return f"{told}: no test"
    if row["p_holm"] < alpha:
        return "Holm's p alone would decide; the simultaneous interval holds 0"
    return None
