"""Remarks that go with a table of results, one line each: what is missing, stale or doubtful."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.analysis.contrasts import EQUAL
from ablate.analysis.seed_kinds import two_kinds
from ablate.analysis.select import as_text, as_texts, with_options
from ablate.analysis.stats import Array
from ablate.analysis.variants import (
    STEPS_TO,
    USABLE,
    WIDTHS,
    Variants,
    distinguishing,
    known,
    variant_columns,
    variant_names,
)
from ablate.phrases import counted, only_if, some
from ablate.store.columns import COLUMNS
from ablate.store.record import StudyRecord
from ablate.store.status import Status


def not_begun(
    rows: pd.DataFrame,
    record: StudyRecord,
    words: str = "missing: {} of {} runs have not begun; the command of the study goes on from there",
) -> list[str]:
    """A line if runs of the study have no row. rows: all rows of the study."""
    planned = {*record.runs}
    count = len(planned - {*rows["run_id"]})
    return only_if(count, words.format(count, len(planned)))


def stale(rows: pd.DataFrame) -> list[str]:
    """A line if some rows were made by other code or another torch."""
    count = int((rows["status"] == Status.STALE).sum())
    line = f"{counted(count, 'stale row')}: by other code or another torch; force=stale makes new attempts"
    return only_if(count, line)


def unusable(rows: pd.DataFrame, metric: str = "val_loss") -> list[str]:
    """A line for each run that is in no mean, with the reason."""
    lines = []
    for row in rows[~(rows["status"].isin(USABLE) & rows[metric].notna())].to_dict("records"):
        unfinished = {Status.INTERRUPTED: "it was cut off", Status.RUNNING: "it is still going on"}
        reason = (
            row["error"] if isinstance(row["error"], str) else unfinished.get(row["status"], f"no {metric}")
        )
        what = f"fusion={row['fusion']} heads={row['heads']} out_proj={as_text(row['out_proj'])}"
        which = f"{what} seed={row['seed']} ({row['run_id']})" if _is_known(row) else row["run_id"]
        lines.append(f"{row['status']}: {which}: {reason}")
    return lines


def missing_seeds(rows: pd.DataFrame) -> list[str]:
    """A line for each variant without a seed that another variant has."""
    rows = with_options(known(rows))
    columns = variant_columns(rows)
    keyed = rows.assign(**{column: as_texts(rows[column]) for column in columns})
    differing = [column for column in columns if keyed[column].nunique() > 1] or columns[:1]
    everything = set(keyed["seed"])
    there = keyed.groupby(differing, sort=False)["seed"].agg(set)
    first = keyed.drop_duplicates(differing)
    shown = distinguishing(first, columns)
    lines = []
    for seeds, what in zip(there, variant_names(first, shown), strict=True):
        if lacking := sorted(everything - seeds):
            lines.append(f"missing: {what}: no run of seed {', '.join(map(str, lacking))}")
    return lines


def doubts(record: StudyRecord) -> list[str]:
    """Lines on variants that a study could not build, and on chosen values that are doubtful."""
    reasons: dict[str, list[str]] = {}
    for variant, reason in record.left_out.items():
        reasons.setdefault(reason, []).append(variant)
    lines = [f"can't be built: {', '.join(variants)}: {reason}" for reason, variants in reasons.items()]
    for arm, choice in record.chosen.items():
        if choice.doubt:
            value = f" {record.tuned_key}={choice.value}:" if choice.value else ""
            lines.append(f"{arm}:{value} {choice.doubt}")
    return lines


def foreign_columns(rows: pd.DataFrame, metric: str, by: Sequence[str]) -> list[str]:
    """Lines on columns of a foreign table that ablate does not know."""
    lines = []
    if metric not in COLUMNS and not metric.startswith(STEPS_TO):
        lines.append(f"{metric} is no column of ablate's: lower is taken to be better")
    ours = {*COLUMNS, *variant_columns(rows), *by, metric}
    for column in rows.columns.difference([*ours], sort=False):
        kinds = rows[column].dropna().unique()
        if 1 < len(kinds) <= len(rows) // 2 and not pd.api.types.is_float_dtype(rows[column]):
            lines.append(
                f"{column} ({some(kinds)}) defines no variants here; --by fusion,{column} makes it do so"
            )
    return lines


def budgets(variants: Variants) -> list[str]:
    """A line if variants are trained on different numbers of tokens."""
    count = variants.budgets.nunique()
    line = (
        f"variants are trained on {count} different numbers of tokens; best is one of several with equal ones"
    )
    return only_if(count > 1, line)


def never_reached(variants: Variants) -> list[str]:
    """A line for each variant with runs that never reach the loss up to which steps are counted."""
    if not variants.metric.startswith(STEPS_TO):
        return []
    return [
        f"{name}: {lost.sum()} of {(lost | np.isfinite(values)).sum()} runs never reach"
        f" {variants.metric.removeprefix(STEPS_TO)}; it has no mean, and is compared over the others alone"
        for name, values, lost in zip(variants.names, variants.values, variants.diverged, strict=True)
        if lost.any()
    ]


def seeds_of_two_kinds(variants: Variants) -> list[str]:
    """A line for each variant whose seeds fall into two groups, with the runs of the smaller group."""
    lines = []
    for name, values, ids in zip(variants.names, variants.values, variants.run_ids, strict=True):
        if (apart := two_kinds(values)) is None:
            continue
        rest = np.isfinite(values) & ~apart
        lines.append(
            f"seeds of two kinds: {name}: {_range(values[rest])}, and {_range(values[apart])}"
            f" ({some(ids[apart].tolist())}); no interval over both means anything, and another learning"
            " rate or a longer warm-up may have one kind only"
        )
    return lines


def moved_by_seeds(variants: Variants) -> list[str]:
    """A line for each variant with crossed seeds: how much of their scatter the first weights, the batches,
    and both together make (a two-way analysis of variance, by mean squares)."""
    if not variants.crossed:
        return []
    lines = []
    for name, values in zip(variants.names, variants.values, strict=True):
        grid = variants.seeds.assign(value=values)
        grid = grid.pivot_table(index="seed_backbone", columns="seed_data", values="value").to_numpy()
        if min(grid.shape) < 2 or np.isnan(grid).any():
            continue
        weights, batches = grid.mean(1), grid.mean(0)
        rest = grid - weights[:, None] - batches[None] + grid.mean()
        both = (rest**2).sum() / (len(weights) - 1) / (len(batches) - 1)
        alone = [
            max(0.0, means.var(ddof=1) - both / other) ** 0.5
            for means, other in ((weights, len(batches)), (batches, len(weights)))
        ]
        lines.append(
            f"{name}: the first weights (seeds.backbone) scatter its {variants.metric} by {alone[0]:.2g}, the"
            f" batches (seeds.data) by {alone[1]:.2g}, both together by another {both**0.5:.2g} (standard"
            f" deviations, from {len(weights)} × {len(batches)} runs)"
        )
    return lines


def _range(values: Array) -> str:
    """The number of values and their range, in words."""
    low, high = (f"{value:.4g}" for value in (values.min(), values.max()))
    return f"{len(values)} at {low}" + (f" to {high}" if high != low else "")


def weaknesses(table: pd.DataFrame) -> list[str]:
    """Lines on weaknesses of the comparisons in the table."""
    lines = []
    tested = table[table["p"].notna()]
    widths = tested[[bool({*text.split()} & {*WIDTHS}) for text in tested["differs"]]]
    if len(widths):
        lines.append(
            f"{len(widths)} of {len(tested)} comparisons change a width too, which follows from the factor:"
            f" {some(widths['variant'].tolist(), 1)} (column differs)"
        )
    skewed = tested[tested["skew"].abs() > 1]
    if len(skewed):
        lines.append(
            f"{len(skewed)} of {len(tested)} comparisons have skewed differences (|skew| > 1), where 95 %"
            f" intervals may cover about 90 %: {some(skewed['variant'].tolist(), 1)}"
        )
    apart = tested[tested["correlation"] < stats.UNCORRELATED]
    if len(apart):
        each = [
            f"{row['variant']} {row['p_welch']:.2g} (r = {row['correlation']:.2f})"
            for row in apart.to_dict("records")
        ]
        lines.append(
            f"in {len(apart)} of {len(tested)} comparisons seeds hardly correlate, so pairing gains nothing;"
            f" Welch's p, uncorrected: {some(each)}"
        )
    alike = tested[tested["same_class"]]
    if len(alike):
        each = [f"{row['variant']} and {row['baseline']}" for row in alike.to_dict("records")]
        lines.append(
            f"in {len(alike)} of {len(tested)} comparisons the same functions can be learned, so this is"
            f" parametrization: {some(each, 1)}"
        )
    equal = table[(table["verdict"] == EQUAL)]
    if len(equal):
        each = [f"{row['variant']} is {row['why']}" for row in reversed(equal.to_dict("records"))]
        lines.append(
            f"{counted(len(equal), 'variant')} {'is' if len(equal) == 1 else 'are'} equal by construction,"
            f" and in no family: {some(each, 1)}"
        )
    return lines


def _is_known(row: Mapping[Any, Any]) -> bool:
    return not (pd.isna(row["fusion"]) or pd.isna(row["seed"]))
