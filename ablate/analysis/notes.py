"""Remarks that go with a table of results, one line each: what is missing, stale or doubtful."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.analysis.caveats import FIXED_PLACES
from ablate.analysis.contrasts import EQUAL, pair_up
from ablate.analysis.frames import as_texts, is_empty, is_foreign
from ablate.analysis.incomparable import row_in_words
from ablate.analysis.looks import Decisions
from ablate.analysis.variant import FACTORS, distinguishing, names
from ablate.analysis.variants import (
    USABLE,
    Variants,
    identified,
    settings_of,
    variant_columns,
)
from ablate.config.conditions import Condition, as_text
from ablate.config.rules import ConfigError
from ablate.phrases import Note, counted, first_few, joined, lines_if, option
from ablate.store.columns import COLUMNS, RESULTS, SEED_COLUMNS, WIDTHS, Status, of_role
from ablate.store.record import StudyRecord

UNTRAINED = 1.02  # the loss of a model before training, at most, as a multiple of that of guessing
SMALL = 0.01  # the largest value of a metric that tables round away
ENOUGH = 16  # pairs, below which |skew| > 1 says little: at four, 9 % of normal samples have it


def not_begun(rows: pd.DataFrame, record: StudyRecord) -> list[Note]:
    """A line if runs of the study have no row. rows: all rows of the study."""
    planned = {*record.runs}
    count = len(planned - {*rows["run_id"]})
    line = f"not begun: {count} of {len(planned)} runs; the command of the study goes on from there"
    return lines_if(count, Note(line, "doubt", f"{count} of {len(planned)} runs not begun"))


def stale(rows: pd.DataFrame) -> list[Note]:
    """A line if some rows were made by another version of the numerics or another torch."""
    count = int((rows["status"] == Status.STALE).sum())
    line = (
        f"{counted(count, 'stale row')}: by another version of the numerics or another torch; force=stale"
        " makes new attempts"
    )
    return lines_if(count, Note(line, "doubt", counted(count, "stale row")))


def unusable(rows: pd.DataFrame, metric: str = "val_loss", shown: Sequence[str] = ()) -> list[Note]:
    """A line for each run that is in no mean, with the reason. Of a table of another program, only for
    those with a result: how many have none is said where it is read. shown: further columns that name a
    run."""
    lines = []
    unfinished = {Status.INTERRUPTED: "it was cut off", Status.RUNNING: "it is still going on"}
    lost = rows[~(rows["status"].isin(USABLE) & rows[metric].notna())]
    lost = lost[lost["status"].isin(RESULTS)] if is_foreign(rows) else lost
    of_status = lost["status"].value_counts()
    for row in lost.to_dict("records"):
        why = unfinished.get(row["status"], f"no {metric}")
        reason = row["error"] if isinstance(row["error"], str) else why
        what = row_in_words(row, dict.fromkeys([*FACTORS, *shown, "seed"]))
        run = as_text(row["run_id"])
        which = run if is_empty(row["seed"]) and run else f"{what} ({run})" if run else what
        runs = counted(int(of_status[row["status"]]), "run")
        brief = f"{runs} {row['status']}" if row["status"] not in USABLE else f"{runs} without {metric}"
        lines.append(Note(f"{row['status']}: {which}: {reason}", "doubt", brief))
    return lines


def worse_than_guessing(rows: pd.DataFrame) -> list[Note]:
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
    return [Note(line, "doubt", brief)]


def loss_context(run: pd.DataFrame, fixed: pd.DataFrame) -> list[str]:
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


def missing_seeds(
    rows: pd.DataFrame, shown: Sequence[str] = (), pair_by: Sequence[str] = ("seed",)
) -> list[Note]:
    """A line for each variant without a seed that another variant has. shown: the columns that define
    the variants of a foreign table. pair_by: the columns that pair its runs."""
    rows, foreign = identified(rows), is_foreign(rows)
    if rows[[*pair_by]].isna().all(axis=None):
        return []
    what = ", ".join(pair_by)
    seeds_N = rows["seed"] if what == "seed" else rows[[*pair_by]].apply(as_texts).agg(", ".join, axis=1)
    settings = settings_of(rows)
    names_N = names(rows, shown if foreign else distinguishing(settings.table, settings.columns))
    every = {*seeds_N}
    lacking = seeds_N.groupby(names_N, sort=False).agg(lambda seeds: sorted(every - {*seeds}))
    return [
        Note(f"missing: {name}: no run of {what} {', '.join(map(str, seeds))}", "doubt", "missing seeds")
        for name, seeds in lacking.items()
        if seeds
    ]


def doubts(record: StudyRecord) -> list[Note]:
    """Lines on variants that a study could not build, and on chosen values that are doubtful."""
    reasons: dict[str, list[str]] = {}
    for variant, reason in record.left_out.items():
        reasons.setdefault(reason, []).append(variant)
    brief = f"{counted(len(record.left_out), 'variant')} that can't be built"
    lines = [
        Note(f"can't be built: {', '.join(variants)}: {reason}", "doubt", brief)
        for reason, variants in reasons.items()
    ]
    for arm, choice in record.chosen.items():
        if choice.doubt:
            value = f" {record.tuned_key}={choice.value}:" if choice.value else ""
            lines.append(Note(f"{arm}:{value} {choice.doubt}", "doubt", f"the {record.tuned_key} of {arm}"))
    return lines


def foreign_columns(rows: pd.DataFrame, variants: Variants) -> Iterator[Note]:
    """Lines on what ablate does not know of a foreign table: which way its metric is better, its columns, and
    its empty cells."""
    metric, foreign = variants.metric, is_foreign(rows)
    if variants.higher_is_better is None:
        what = "has no better side" if metric in COLUMNS else "is no metric of ablate's"
        line = f"{metric} {what}: --higher-is-better or --lower-is-better says what is better"
        yield Note(line, "taken")
    values = np.abs(variants.values[np.isfinite(variants.values)])
    if foreign and 0 < values.max(initial=0) < SMALL:
        size = f"{metric} is {values.max():.1e} at most, and tables have four digits after the point"
        yield Note(f"{size}: give it in a smaller unit", "taken")
    for column in variants.shown if foreign else []:
        if empty := int(rows[column].isna().sum()):
            yield Note(f"{counted(empty, 'row')} without {column} count as {column}=None", "taken")
    for column in variants.columns if foreign and variants.shown else []:
        levels = variants.table[column].unique()
        if column not in variants.shown and len(levels) > 1:
            yield _differs_too(column, levels, variants)
    ours = {*COLUMNS, *variant_columns(rows), *variants.shown, *variants.seeds, metric}
    each = rows.groupby([*variants.shown], dropna=False) if foreign and variants.shown else None
    has_seeds = each is not None and each.size().max() > 1
    for column in rows.columns.difference([*ours], sort=False):
        kinds = rows[column].dropna().unique()
        if each is not None and has_seeds and len(kinds) > 1 and each[column].nunique().max() == 1:
            yield _differs_too(column, kinds, variants)
        elif 1 < len(kinds) <= len(rows) // (3 if pd.api.types.is_float_dtype(rows[column]) else 2):
            way_out = option("--by", *variants.shown if foreign else ["fusion"], column)
            yield Note(f"{column} ({first_few(kinds)}) defines no variants here; {way_out} makes it do so")


def only_where(where: Sequence[str], rows: pd.DataFrame, metric: str = "") -> list[Note]:
    """A line on the rows that were asked for: a doubt if they were chosen by their seed or their result."""
    columns = [*map(str, rows.columns)]
    keys = {key for one in where for key in Condition(one, columns, "--where").keys}
    by = sorted(keys & {metric, "run_id", *SEED_COLUMNS, *of_role("metric")})
    line = f"only rows where {' and '.join(where)}"
    brief = f"runs chosen by {joined(by)}" if by else ""
    return lines_if(where, Note(line, "doubt" if by else "remark", brief))


def _differs_too(column: str, levels: Iterable[object], variants: Variants) -> Note:
    line = f"{column} ({first_few([*map(as_text, levels)])}) differs along with {', '.join(variants.shown)}"
    return Note(f"{line}: a difference may be its doing", "doubt", f"{column} differs, too")


def unpaired(table: pd.DataFrame, variants: Variants) -> list[Note]:
    """A line if there are contrasts of two groups, in which nothing pairs."""
    apart = table[table["n_baseline"].notna()]
    why = "there is no seed and no --pair-by" if not variants.paired else "no two seeds are in both"
    line = (
        f"not paired, as {why} ({first_few([*apart['variant'].unique()])}): test and interval are Welch's, of"
        " two groups; --pair-by COL pairs runs by a column"
    )
    return lines_if(len(apart), Note(line, "taken"))


def doubtful_values(variants: Variants) -> Iterator[Note]:
    """Lines on losses that are exactly 0, as where a crash was logged, and on values of a coarse grid, which
    hides differences. Not of a metric of which more is better, such as an accuracy."""
    values, metric = variants.values[np.isfinite(variants.values)], variants.metric
    if variants.higher_is_better or not (values % 1).any():  # or one that counts
        return
    if zeros := int((values == 0).sum()):
        crash = f"{metric} is exactly 0 in {counted(zeros, 'run')}, as where a crash is logged so"
        yield Note(f"{crash}; --where '{metric} != 0' leaves it out", "doubt", f"{metric} of exactly 0")
    distinct = [len({*row[np.isfinite(row)]}) for row in variants.values]
    if len(values) >= 6 and len(values) >= 2 * sum(distinct) > 2 * len(distinct):
        coarse = f"{metric} has {len({*values})} different values in {len(values)} runs"
        why = "as where bfloat16 is printed: smaller differences are lost"
        yield Note(f"{coarse}, {why}", "doubt", f"{metric} on a coarse grid")


def budgets(variants: Variants) -> list[Note]:
    """A line if variants are trained on different numbers of tokens."""
    count = variants.budgets.nunique()
    line = f"variants are trained on {count} different numbers of tokens; each number has its own best"
    return lines_if(count > 1, Note(line, "doubt", "unequal numbers of tokens"))


def bimodal_seeds(variants: Variants) -> list[Note]:
    """A line for each variant whose seeds fall into two groups, with the runs of the smaller group."""
    lines = list[Note]()
    for name, values, ids in zip(variants.names, variants.values, variants.run_ids, strict=True):
        if (apart := stats.bimodal(values)) is None:
            continue
        rest = np.isfinite(values) & ~apart
        line = (
            f"bimodal seeds: {name}: {_range(values[rest])}, and {_range(values[apart])}"
            f" ({first_few(ids[apart].tolist())}); a t-interval is not valid for two groups, and another"
            " learning rate or a longer warm-up may have one kind only"
        )
        brief = "one seed far from the others" if apart.sum() == 1 else "seeds in two groups"
        lines.append(Note(line, "doubt", brief))
    return lines


def _range(values: stats.Array) -> str:
    """The number of values and their range, in words."""
    low, high = (f"{value:.4g}" for value in (values.min(), values.max()))
    return f"{len(values)} at {low}" + (f" to {high}" if high != low else "")


def weaknesses(table: pd.DataFrame) -> list[Note]:
    """Lines on weaknesses of the comparisons in the table."""
    tested = table[table["p"].notna()]

    def line(rows: pd.DataFrame, words: str, each: str, most: int = 1) -> list[Note]:
        named = first_few([each.format(row) for row in rows.to_dict("records")], most)
        return lines_if(len(rows), Note(words.format(f"{len(rows)} of {len(tested)} comparisons", named)))

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


def at_looks(
    before: Variants, after: Variants, now: Mapping[str, Decisions], records: Sequence[StudyRecord]
) -> Iterator[Note]:
    """Lines on results that do not count, and on promises that are off. before, after: with and without the
    results beyond their looks."""
    if now:
        if beyond := int((before.ran & ~after.ran).sum()):
            runs = counted(beyond, "run")
            yield Note(f"not judged: {runs} beyond the look at which the contrasts of its arm stand")
        return
    if any(record.looks for record in records):
        line = (
            "looks are a promise of one study by itself: these rows are of several, so each interval is as if"
            " its number of seeds had been fixed"
        )
        yield Note(line, "doubt", "looks of several studies")
    for record in records:
        if record.grew:
            line = (
                f"{record.name}: grew from {' to '.join(map(str, record.grew))} seeds although there were"
                " results, so its intervals no longer hold together; study.looks names the numbers of seeds"
                " beforehand"
            )
            yield Note(line, "doubt", f"{record.name} grew after results")
