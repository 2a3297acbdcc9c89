"""Remarks that go with a table of results, one line each: what is missing, stale or doubtful."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.analysis.contrasts import EQUAL, pair_up
from ablate.analysis.select import as_texts
from ablate.analysis.standing import FIXED_PLACES
from ablate.analysis.variants import (
    USABLE,
    Variants,
    distinguishing,
    known,
    names,
    settings_of,
    variant_columns,
)
from ablate.config.conditions import as_text
from ablate.config.rules import ConfigError
from ablate.phrases import Doubt, counted, lines_if, some
from ablate.store.columns import COLUMNS, SEED_COLUMNS, STEPS_TO, WIDTHS, Status
from ablate.store.record import StudyRecord

UNTRAINED = 1.02  # the loss of a model before training, at most, as a multiple of that of guessing
ENOUGH = 16  # pairs, below which |skew| > 1 says little: at four, 9 % of normal samples have it


def not_begun(rows: pd.DataFrame, record: StudyRecord) -> list[str]:
    """A line if runs of the study have no row. rows: all rows of the study."""
    planned = {*record.runs}
    count = len(planned - {*rows["run_id"]})
    line = f"not begun: {count} of {len(planned)} runs; the command of the study goes on from there"
    return lines_if(count, Doubt(line, f"{count} of {len(planned)} runs not begun"))


def stale(rows: pd.DataFrame) -> list[str]:
    """A line if some rows were made by other code or another torch."""
    count = int((rows["status"] == Status.STALE).sum())
    line = f"{counted(count, 'stale row')}: by other code or another torch; force=stale makes new attempts"
    return lines_if(count, Doubt(line, counted(count, "stale row")))


def unusable(rows: pd.DataFrame, metric: str = "val_loss") -> list[str]:
    """A line for each run that is in no mean, with the reason."""
    lines = []
    unfinished = {Status.INTERRUPTED: "it was cut off", Status.RUNNING: "it is still going on"}
    lost = rows[~(rows["status"].isin(USABLE) & rows[metric].notna())]
    of_status = lost["status"].value_counts()
    for row in lost.to_dict("records"):
        why = unfinished.get(row["status"], f"no {metric}")
        reason = row["error"] if isinstance(row["error"], str) else why
        what = f"fusion={row['fusion']} heads={row['heads']} out_proj={as_text(row['out_proj'])}"
        is_known = not (pd.isna(row["fusion"]) or pd.isna(row["seed"]))
        which = f"{what} seed={row['seed']} ({row['run_id']})" if is_known else row["run_id"]
        runs = counted(int(of_status[row["status"]]), "run")
        brief = f"{runs} {row['status']}" if row["status"] not in USABLE else f"{runs} without {metric}"
        lines.append(Doubt(f"{row['status']}: {which}: {reason}", brief))
    return lines


def worse_than_guessing(rows: pd.DataFrame) -> list[str]:
    """A line if finished runs end above ln(vocab), the loss of guessing, and so have learned nothing."""
    cells = rows.reindex(columns=["val_loss", "vocab", "lr"]).apply(pd.to_numeric, errors="coerce")
    cells = cells.astype(float).assign(guessing=lambda numbers: np.log(numbers["vocab"]))
    lost = cells[rows["status"].isin(USABLE) & (cells["val_loss"] > UNTRAINED * cells["guessing"])]
    if lost.empty:
        return []
    worst = lost.sort_values("val_loss").iloc[-1]
    brief = f"{counted(len(lost), 'run')} learned nothing"
    line = (
        f"{brief}: val_loss up to {worst['val_loss']:.4g} is above"
        f" ln(vocab) = {worst['guessing']:.4g}, what guessing gives; usually train.lr is too high (here"
        f" {worst['lr']:g})"
    )
    return [Doubt(line, brief)]


def on_scale(run: pd.DataFrame, fixed: pd.DataFrame) -> list[str]:
    """A line on where the validation loss of a run stands, between guessing and counting; none for a task.
    run: its row. fixed: finished runs that read fixed places; that of the same seeds, and otherwise equal, is
    in the line."""
    (row,) = run.to_dict("records")
    if pd.isna(row["ngram_val_loss"]):
        return []
    rows = pd.concat([run, fixed], ignore_index=True)
    seeds = rows[[*SEED_COLUMNS]].apply(as_texts)
    settings = settings_of(rows[(seeds == seeds.iloc[0]).all(axis=1)])  # its first row is the run
    try:
        beside = [base for variant, base in pair_up(settings, {"scores": FIXED_PLACES}) if variant == 0]
    except ConfigError:  # none has them
        beside = []
    losses = settings.table["val_loss"].iloc[beside]
    return [
        f"beside val_loss {row['val_loss']:.4g}: counting {row['ngram_order']} tokens:"
        f" {row['ngram_val_loss']:.4g};"
        + "".join(f" scores={FIXED_PLACES}: {loss:.4g};" for loss in losses)
        + f" guessing, ln(vocabulary): {math.log(row['vocab']):.4g}"
    ]


def missing_seeds(rows: pd.DataFrame) -> list[str]:
    """A line for each variant without a seed that another variant has."""
    rows = known(rows)
    settings = settings_of(rows)
    names_N = names(rows, distinguishing(settings.table, settings.columns))
    lacking = rows.groupby(names_N, sort=False)["seed"].agg(lambda seeds: sorted({*rows["seed"]} - {*seeds}))
    return [
        Doubt(f"missing: {name}: no run of seed {', '.join(map(str, seeds))}", "missing seeds")
        for name, seeds in lacking.items()
        if seeds
    ]


def doubts(record: StudyRecord) -> list[str]:
    """Lines on variants that a study could not build, on chosen values that are doubtful, and on a prediction
    that is not the frozen one."""
    reasons: dict[str, list[str]] = {}
    for variant, reason in record.left_out.items():
        reasons.setdefault(reason, []).append(variant)
    brief = f"{counted(len(record.left_out), 'variant')} that can't be built"
    lines = [
        Doubt(f"can't be built: {', '.join(variants)}: {reason}", brief)
        for reason, variants in reasons.items()
    ]
    for arm, choice in record.chosen.items():
        if choice.doubt:
            value = f" {record.tuned_key}={choice.value}:" if choice.value else ""
            which = f"at {arm.partition(' ')[0]}" if record.rungs else f"of {arm}"
            lines.append(Doubt(f"{arm}:{value} {choice.doubt}", f"the {record.tuned_key} {which}"))
    if (prediction := record.prediction) and not prediction.is_intact:
        line = (
            f"the prediction of {prediction.rung} was changed after it was frozen on {prediction.date}, so it"
            " counts for nothing"
        )
        lines.insert(0, Doubt(line, "a prediction that was changed"))
    return [*lines]


def foreign_columns(rows: pd.DataFrame, metric: str, by: Sequence[str]) -> list[str]:
    """Lines on columns of a foreign table that ablate does not know."""
    lines = []
    if metric not in COLUMNS and not metric.startswith(STEPS_TO):
        line = f"{metric} is no column of ablate's: lower is taken to be better"
        lines.append(Doubt(line, f"lower {metric} is taken to be better"))
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
    line = "variants are trained on {} different numbers of tokens; best is one of several with equal ones"
    count = variants.budgets.nunique()
    return lines_if(count > 1, Doubt(line.format(count), "unequal numbers of tokens"))


def never_reached(table: pd.DataFrame, metric: str) -> list[str]:
    """A line for each variant with runs that never reach the loss up to which steps are counted. table: with
    the columns variant, n, diverged."""
    if not metric.startswith(STEPS_TO):
        return []
    return [
        f"{row['variant']}: {row['diverged']} of {row['n'] + row['diverged']} runs never reach"
        f" {metric.removeprefix(STEPS_TO)}; it has no mean, and is compared over the others alone"
        for row in table.drop_duplicates("variant").query("diverged > 0").to_dict("records")
    ]


def bimodal_seeds(variants: Variants) -> list[str]:
    """A line for each variant whose seeds fall into two groups, with the runs of the smaller group."""
    lines = list[Doubt]()
    for name, values, ids in zip(variants.names, variants.values, variants.run_ids, strict=True):
        if (apart := stats.bimodal(values)) is None:
            continue
        rest = np.isfinite(values) & ~apart
        line = (
            f"bimodal seeds: {name}: {_range(values[rest])}, and {_range(values[apart])}"
            f" ({some(ids[apart].tolist())}); no interval over both means anything, and another learning"
            " rate or a longer warm-up may have one kind only"
        )
        lines.append(Doubt(line, "seeds in two groups"))
    return [*lines]


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


def _range(values: stats.Array) -> str:
    """The number of values and their range, in words."""
    low, high = (f"{value:.4g}" for value in (values.min(), values.max()))
    return f"{len(values)} at {low}" + (f" to {high}" if high != low else "")


def weaknesses(table: pd.DataFrame) -> list[str]:
    """Lines on weaknesses of the comparisons in the table."""
    tested = table[table["p"].notna()]

    def line(rows: pd.DataFrame, words: str, each: str, most: int = 1) -> list[str]:
        named = some([each.format(row) for row in rows.to_dict("records")], most)
        return lines_if(len(rows), words.format(f"{len(rows)} of {len(tested)} comparisons", named))

    equal = table[table["verdict"] == EQUAL]
    are = "is" if len(equal) == 1 else "are"
    return [
        *line(
            tested[[bool({*text.split()} & {*WIDTHS}) for text in tested["differs"]]],
            "{} change a width too, which follows from the factor: {} (column differs)",
            "{0[variant]}",
        ),
        *line(
            tested[(tested["skew"].abs() > 1) & (tested["pairs"] >= ENOUGH)],
            "{} have skewed differences (|skew| > 1), where 95 % intervals may cover about 90 %: {}",
            "{0[variant]}",
        ),
        *line(
            tested[tested["correlation"] < stats.UNCORRELATED],
            "in {} seeds hardly correlate, so pairing gains nothing; Welch's p, uncorrected: {}",
            "{0[variant]} {0[p_welch]:.2g} (r = {0[correlation]:.2f})",
            3,
        ),
        *line(
            tested[tested["same_class"]],
            "in {} the same functions can be learned, so this is parametrization: {}",
            "{0[variant]} and {0[baseline]}",
        ),
        *line(
            equal[::-1],
            f"{counted(len(equal), 'variant')} {are} equal by construction, and in no family: {{1}}",
            "{0[variant]} is {0[why]}",
        ),
    ]
