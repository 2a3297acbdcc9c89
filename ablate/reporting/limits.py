"""What limits an answer: each limit with what a reviewer will ask, and the command that would remove it.

It loads no torch."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from ablate.analysis.compare import Comparison
from ablate.analysis.power import seconds_a_run
from ablate.analysis.standing import FIXED_PLACES
from ablate.analysis.variants import USABLE, names
from ablate.compute.limits import available_cores
from ablate.phrases import counted_between, duration
from ablate.reporting.compared import compared
from ablate.reporting.follow_ups import changed, each_its_own_rate, is_duel
from ablate.reporting.methods import levels_in_words
from ablate.reporting.subject import whole_study, with_fixed_places
from ablate.store.record import StudyRecord

FEW_SEEDS = 5
FEW_DIMENSIONS = 16  # key width of a head below which there is a warning
WELL_BEFORE = 0.9  # share of the steps before which a best step counts as early
FRESH = 100  # where seeds begin that no shipped study of one rate uses
LARGER = 2  # times the layers and the width of a larger model
TEXT, OTHER_TEXT = "stdlib", "docs"  # both come with Python
COUNTING = " than counting: "  # in a fact of analysis/standing.py
DUEL_TAKES = "90 min, or what --budget says"


@dataclass(frozen=True)
class Limit:
    """brief: a few words for the first screen. words: a sentence. ask: what a reviewer will ask about it, if
    anything. command: what would remove the limit, empty if none is known. time: how long that takes."""

    brief: str
    words: str
    ask: str = ""
    command: str = ""
    time: str = ""


def limits(comparison: Comparison, record: StudyRecord) -> Iterator[Limit]:
    """The limits of an answer, the most important ones first."""
    rows = comparison.rows[comparison.rows["status"].isin(USABLE)]
    times = _Times(rows, record)
    if record.demonstration:
        yield Limit(
            "a demonstration",
            "A demonstration: too few steps and seeds to conclude anything from.",
            "Is this a result?",
            whole_study(record),
            "--dry-run says how long it takes",
        )
    yield _seeds(comparison, record, times)
    yield _text(rows, record, times)
    yield _size(rows, record, times)
    yield from _narrow_heads(rows, record, times)
    if not record.tuned_key and rows["lr"].nunique() == 1:
        command = each_its_own_rate(comparison, record)
        yield Limit(
            f"one learning rate for all: {levels_in_words(rows['lr'])}",
            f"One learning rate for all variants, {levels_in_words(rows['lr'])}, tuned for none of them: a"
            " difference may be one of tuning.",
            "Did each method have the learning rate that suits it?",
            command,
            DUEL_TAKES if command.startswith("ablate duel") else times.of(5),
        )
    yield from _parameters(comparison, rows, record, times)
    yield from _overfit(rows, comparison)
    yield from _standing(comparison, record, times)


class _Times:
    """How long further studies take here, by the runs of this one."""

    def __init__(self, rows: pd.DataFrame, record: StudyRecord) -> None:
        seconds, at_once = seconds_a_run(rows, available_cores())
        self._all = seconds * max(len(record.runs), len(rows)) / at_once

    def of(self, times: float = 1) -> str:
        """That of `times` as much training as this study took; empty if that is not known."""
        return "" if math.isnan(self._all) else f"about {duration(times * self._all)} here"


def _seeds(comparison: Comparison, record: StudyRecord, times: _Times) -> Limit:
    low, high = int(comparison.table["n"].min()), int(comparison.table["n"].max())
    few = ": few, so intervals are wide and only large differences show" if low < FEW_SEEDS else ""
    count = len(record.looks.seeds) if record.looks else high
    command = "" if is_duel(record) else changed(record, "again", seed=f"range({FRESH},{FRESH + count})")
    named = record.primary or record.claim
    return Limit(
        f"{counted_between(low, high, 'seed')} a variant",
        f"{counted_between(low, high, 'seed')} a variant{few}.",
        "Do other seeds say the same?" if named else "Does the lead hold on fresh seeds?",
        command,
        times.of(),
    )


def _text(rows: pd.DataFrame, record: StudyRecord, times: _Times) -> Limit:
    named = f"{levels_in_words(rows['corpus'])}, tokenizer {levels_in_words(rows['tokenizer'])}"
    texts = rows["corpus_sha256"].nunique()
    if not texts:
        return Limit(
            "an unnamed text", "Conditional on the text, which these rows don't name.", "On which text?"
        )
    if texts > 1:
        return Limit(f"{texts} texts", f"Over {texts} texts ({named}), which is no random sample of texts.")
    other = OTHER_TEXT if TEXT in {*rows["corpus"]} else TEXT
    return Limit(
        f"one text: {named}",
        f"Conditional on this text ({named}): another one may answer otherwise.",
        "Does it hold on another text?",
        changed(record, other, corpus=other),
        times.of(),
    )


def _size(rows: pd.DataFrame, record: StudyRecord, times: _Times) -> Limit:
    sizes = {"layers": "layers", "d_model": "wide", "steps": "steps"}
    levels = {words: levels_in_words(rows[column]) for column, words in sizes.items()}
    known = ", ".join(f"{level} {words}" for words, level in levels.items() if level)
    words = ": ".join(filter(None, ["Conditional on this size and length of training", known])) + "."
    command = ""
    if levels["layers"].isdecimal() and levels["wide"].isdecimal():
        larger = {
            "model__layers": LARGER * int(levels["layers"]),
            "model__d_model": LARGER * int(levels["wide"]),
        }
        command = changed(record, "larger", **larger)
    return Limit(
        f"this size: {known}" if known else "this size",
        words,
        "Does it hold at a larger size?",
        command,
        times.of(LARGER**3),
    )


def _narrow_heads(rows: pd.DataFrame, record: StudyRecord, times: _Times) -> Iterator[Limit]:
    # 0 where there are no keys.
    narrow = rows[pd.to_numeric(rows["key_width"], errors="coerce").between(1, FEW_DIMENSIONS - 1)]
    if len(narrow):
        swept = "key_width" in record.factors
        yield Limit(
            f"narrow heads: {int(narrow['key_width'].min())} dimensions of queries and keys",
            f"Heads of {int(narrow['key_width'].min())} query and key dimensions (d_k) at heads ="
            f" {levels_in_words(narrow['heads'])}: below {FEW_DIMENSIONS}, scores get poor whatever the"
            " fusion; don't carry these over to larger models.",
            "Are the heads too narrow to look anywhere?",
            "" if swept else changed(record, "wide-keys", key_width=FEW_DIMENSIONS),
            times.of(),
        )


def _parameters(
    comparison: Comparison, rows: pd.DataFrame, record: StudyRecord, times: _Times
) -> Iterator[Limit]:
    """Of the compared variants alone: what serves as a reference may be of another size."""
    own = rows[[name in {*compared(comparison)} for name in names(rows, comparison.shown)]]
    small, large = own["params"].astype(float).min(), own["params"].astype(float).max()
    if large > 1.01 * small and not (own["match"] != "none").all():
        yield Limit(
            f"unequal size: {small:,.0f} to {large:,.0f} parameters",
            f"Variants differ in size too, from {small:,.0f} to {large:,.0f} parameters: a difference may be"
            " one of size (match=params evens it out).",
            "Is it only a matter of parameters?",
            changed(record, "matched", match="params"),
            times.of(),
        )


def _overfit(rows: pd.DataFrame, comparison: Comparison) -> Iterator[Limit]:
    """Of runs longer than an epoch whose best step is well before the end."""
    early = rows["best_step"] < WELL_BEFORE * rows["steps"]
    rose = rows["val_loss"] > rows["best_val_loss"]
    over = rows[early & rose & ~(rows["epochs"].astype(float) <= 1)]
    if over.empty:
        return
    unknown = over["epochs"].isna()
    length = " (how long an epoch is, their rows don't tell)" if unknown.all() else ", longer than an epoch"
    worst = (over["val_loss"] - over["best_val_loss"]).max()
    yield Limit(
        f"{len(over)} of {len(rows)} runs overfit",
        f"{len(over)} of {len(rows)} runs overfit{length}: their validation loss was best before"
        f" {100 * WELL_BEFORE:.0f} % of the steps, and rose by up to {worst:.4f} since."
        f" {'The final losses count' if comparison.metric == 'val_loss' else 'Final results count'}.",
    )


def _standing(comparison: Comparison, record: StudyRecord, times: _Times) -> Iterator[Limit]:
    """What speaks against the text and the budget."""
    for fact in comparison.facts:
        if fact.is_doubt:
            words = f"{fact.words[:1].upper()}{fact.words[1:]}."
            yield Limit(
                fact.words.partition(": ")[0], words, "Does the text, or the budget, carry a verdict?"
            )
    if not any(f"scores={FIXED_PLACES}" in fact.words for fact in comparison.facts):
        yield Limit(
            "not known whether attention has learned to look",
            "Whether attention has learned to look is not known, without heads that read fixed places.",
            "Has attention learned to look at all?",
            with_fixed_places(record),
            times.of(),
        )


def beside_counting(comparison: Comparison) -> str:
    """Whether the models are better than counting tokens, in a line."""
    facts = [fact for fact in comparison.facts if COUNTING in fact.words]
    if not facts:
        return (
            f"Better than counting tokens? Not known: no loss of counting stands beside {comparison.metric}."
        )
    doubted = sum(fact.is_doubt for fact in facts)
    verdict = "Yes" if not doubted else "No" if doubted == len(facts) else "Not all"
    found = [fact.words.partition(";")[0].replace(COUNTING, " ").replace(": by", " by") for fact in facts]
    return f"Better than counting tokens? {verdict}: {'; '.join(found)}."
