"""The limits of a comparison as sentences, a part of the answer. Loads no torch."""

from collections.abc import Mapping

import pandas as pd

from ablate.analysis.compare import Comparison
from ablate.analysis.variants import USABLE
from ablate.phrases import counted
from ablate.store.record import StudyRecord

FEW_SEEDS = 5
FEW_DIMENSIONS = 16  # key width of a head below which there is a warning
WELL_BEFORE = 0.9  # share of the steps before which a best step counts as early


def limits(
    rows: pd.DataFrame, comparison: Comparison, record: StudyRecord, train_tokens: Mapping[str, int]
) -> list[str]:
    """One sentence per limit. train_tokens: the length of the training split by run_id, if known."""
    rows = rows[rows["status"].isin(USABLE)]
    lines = [
        *_size(rows, comparison, record),
        *_text(rows),
        *_heads(rows),
        *_rate(rows, record),
        *_cost(rows),
    ]
    return [*lines, *_overfit(rows, comparison, train_tokens)]


def _size(rows: pd.DataFrame, comparison: Comparison, record: StudyRecord) -> list[str]:
    lines = []
    if record.demonstration:
        lines.append("A demonstration: too few steps and seeds to conclude anything from.")
    low, high = int(comparison.table["n"].min()), int(comparison.table["n"].max())
    seeds = counted(high, "seed") if low == high else f"{low} to {counted(high, 'seed')}"
    few = ": few, so intervals are wide and only large differences show" if low < FEW_SEEDS else ""
    lines.append(f"{seeds} a variant{few}.")
    if not record.primary:
        lines.append("No contrast was named beforehand: every difference is a lead to test, not a result.")
    sizes = {"layers": "layers", "d_model": "wide", "steps": "steps"}
    levels = {words: _levels(rows[column]) for column, words in sizes.items()}
    known = ", ".join(f"{level} {words}" for words, level in levels.items() if level)
    lines.append(": ".join(filter(None, ["Conditional on this size and length of training", known])) + ".")
    return lines


def _text(rows: pd.DataFrame) -> list[str]:
    texts = rows["corpus_sha256"].nunique()
    if not texts:
        return ["Conditional on the text, which these rows don't name."]
    named = f"{_levels(rows['corpus'])}, tokenizer {_levels(rows['tokenizer'])}"
    if texts == 1:
        return [f"Conditional on this text ({named}): another one may answer otherwise."]
    return [f"Over {texts} texts ({named}), which is no random sample of texts."]


def _heads(rows: pd.DataFrame) -> list[str]:
    narrow = rows[pd.to_numeric(rows["key_width"], errors="coerce") < FEW_DIMENSIONS]
    if narrow.empty:
        return []
    return [
        f"Heads of {int(narrow['key_width'].min())} query and key dimensions (d_k) at heads ="
        f" {_levels(narrow['heads'])}: below {FEW_DIMENSIONS}, scores get poor whatever the fusion; don't"
        " carry these over to larger models."
    ]


def _rate(rows: pd.DataFrame, record: StudyRecord) -> list[str]:
    if record.tuned_key or rows["lr"].nunique() != 1:
        return []
    return [
        f"One learning rate for all variants, {_levels(rows['lr'])}, tuned for none of them: a difference"
        " may be one of tuning."
    ]


def _cost(rows: pd.DataFrame) -> list[str]:
    low, high = rows["params"].min(), rows["params"].max()
    if not high > 1.01 * low or (rows["match"] != "none").all():
        return []
    return [
        f"Variants differ in size too, from {low:,.0f} to {high:,.0f} parameters: a difference may be one"
        " of size (match=params evens it out)."
    ]


def _overfit(rows: pd.DataFrame, comparison: Comparison, train_tokens: Mapping[str, int]) -> list[str]:
    """A sentence about runs longer than an epoch whose best step is well before the end."""
    epoch = rows["run_id"].map(train_tokens)
    early = rows["best_step"] < WELL_BEFORE * rows["steps"]
    rose = rows["val_loss"] > rows["best_val_loss"]
    over = rows[early & rose & ~(rows["tokens"] <= epoch)]
    if over.empty:
        return []
    unknown = epoch[over.index].isna()
    length = " (how long an epoch is, their files don't tell)" if unknown.all() else ", longer than an epoch"
    worst = (over["val_loss"] - over["best_val_loss"]).max()
    return [
        f"{len(over)} of {len(rows)} runs overfit{length}: their validation loss was best before"
        f" {100 * WELL_BEFORE:.0f} % of the steps, and rose by up to {worst:.4f} since."
        f" {'The final losses count' if comparison.metric == 'val_loss' else 'Final results count'}."
    ]


def _levels(column: pd.Series) -> str:
    values = column.dropna().unique()
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values)
