"""What limits an answer: each limit with what a reviewer will ask, and the command that would remove it.

It loads no torch.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from ablate.analysis.compare import Comparison
from ablate.analysis.frames import is_foreign
from ablate.analysis.variant import names
from ablate.analysis.variants import USABLE
from ablate.config.contrast import FEWEST
from ablate.config.schema import ENCODER_DECODER
from ablate.model.spec import GPT2, LLAMA
from ablate.phrases import capital, counted_between
from ablate.reporting.backbone import NAMES, backbone, kinds, parts
from ablate.reporting.commands import whole_study
from ablate.reporting.compared import compared
from ablate.reporting.follow_ups import FollowUp, FollowUps
from ablate.reporting.methods import levels_in_words
from ablate.store.record import StudyRecord

FEW_DIMENSIONS = 16  # key width of a head below which there is a warning
WELL_BEFORE = 0.9  # share of the steps before which a best step counts as early
LARGER = 2  # times the layers and the width of a larger model
LARGER_SIZE = "Does it hold at a larger size?"
TEXT, OTHER_TEXT = "stdlib", "docs"  # both come with Python
NO_FOLLOW_UP = FollowUp()


@dataclass(frozen=True)
class Limit:
    """brief: a few words for the first screen. words: a sentence. ask: what a reviewer will ask about it, if
    anything. next: what would remove the limit."""

    brief: str
    words: str
    ask: str = ""
    next: FollowUp = NO_FOLLOW_UP


def limits(comparison: Comparison, record: StudyRecord) -> Iterator[Limit]:
    """The limits of an answer, the most important ones first."""
    rows = comparison.rows[comparison.rows["status"].isin(USABLE)]
    further = FollowUps(comparison, record, rows)
    if record.demonstration:
        yield Limit(
            "a demonstration",
            "A demonstration: too few steps and seeds to conclude anything from.",
            "Is this a result?",
            FollowUp(whole_study(record), "--dry-run says how long it takes"),
        )
    yield _seeds(further)
    if is_foreign(rows):  # nothing says what their text, sizes and rates are
        return
    yield _text(further)
    yield _size(further)
    yield from _backbone(further)
    yield from _narrow_heads(further)
    if not record.tuned_key and rows["lr"].nunique() == 1:
        rate = levels_in_words(rows["lr"])
        own = further.at_own_rates()
        yield Limit(
            f"one learning rate for all: {rate}",
            f"One learning rate for all variants, {rate}, tuned for none of them: a difference may be one of"
            f" tuning.{'' if own.command else ' study=tuned gives each its own (docs/studies.md).'}",
            "Did each method have the learning rate that suits it?",
            own,
        )
    yield from _parameters(further)
    yield from _overfit(rows, comparison)
    yield from _standing(further)


def _seeds(further: FollowUps) -> Limit:
    record, seeds = further.record, further.comparison.table["n"]
    low, high = int(seeds.min()), int(seeds.max())
    each = f"{counted_between(low, high, 'seed')} a variant"
    few = ": few, so intervals are wide and only large differences show" if low < FEWEST else ""
    count = len(record.looks.seeds) if record.looks else max(2, high)
    first = max(record.seeds, default=0) + 1
    return Limit(
        each,
        f"{each}{few}.",
        "Do other seeds say the same?" if record.primary else "Does the lead hold on fresh seeds?",
        further.changed("again", f"seed=range({first},{first + count})"),
    )


def _text(further: FollowUps) -> Limit:
    rows = further.rows
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
        further.changed(other, f"corpus={other}"),
    )


def _size(further: FollowUps) -> Limit:
    sizes = {"layers": "layers", "d_model": "wide", "steps": "steps"}
    levels = {words: levels_in_words(further.rows[column]) for column, words in sizes.items()}
    named = ", ".join(f"{level} {words}" for words, level in levels.items() if level)
    is_one = levels["layers"].isdecimal() and levels["wide"].isdecimal()
    brief = f"one size: {named}" if is_one else f"this size: {named}" if named else "this size"
    words = f"Conditional on {'one' if is_one else 'this'} size and length of training"
    words += f": {named}" if is_one else ""
    words += ". A study like study=sizes asks at several (docs/scale.md)."
    if not is_one:
        return Limit(brief, words, LARGER_SIZE)
    layers, width = (LARGER * int(levels[name]) for name in ("layers", "wide"))
    larger = further.changed("larger", f"model.layers={layers}", f"model.d_model={width}", times=LARGER**3)
    return Limit(brief, words, LARGER_SIZE, larger)


def _backbone(further: FollowUps) -> Iterator[Limit]:
    found = kinds(further.rows)
    if len(found) != 1:
        return
    other = GPT2 if found[0] == tuple(LLAMA.values()) else LLAMA
    settings = [f"model.{key}={part}" for key, part in other.items()]
    can_be = other is GPT2 or ENCODER_DECODER not in {*further.rows["architecture"]}
    yield Limit(
        f"one backbone: {backbone(further.rows).removesuffix(' backbone')}",
        f"Conditional on one backbone ({parts(further.rows)}): another may answer otherwise.",
        f"Does it hold in {NAMES[tuple(other.values())]}?",
        further.changed("llama" if other is LLAMA else "gpt2", *settings) if can_be else NO_FOLLOW_UP,
    )


def _narrow_heads(further: FollowUps) -> Iterator[Limit]:
    # 0 where there are no keys.
    width = pd.to_numeric(further.rows["key_width"], errors="coerce")
    narrow = further.rows[width.between(1, FEW_DIMENSIONS - 1)]
    if len(narrow):
        least, heads = int(narrow["key_width"].min()), levels_in_words(narrow["heads"])
        is_swept = "key_width" in further.record.factors
        yield Limit(
            f"narrow heads: {least} dimensions of queries and keys",
            f"Heads of {least} query and key dimensions (d_k) at heads = {heads}: below {FEW_DIMENSIONS},"
            " scores get poor whatever the fusion; don't carry these over to larger models.",
            "Are the heads too narrow to look anywhere?",
            NO_FOLLOW_UP if is_swept else further.changed("wide-keys", f"key_width={FEW_DIMENSIONS}"),
        )


def _parameters(further: FollowUps) -> Iterator[Limit]:
    """Parameters of the compared variants alone, as a reference may be of another size."""
    own = {one.name for one in compared(further.comparison)}
    named = names(further.rows, further.comparison.shown)
    rows = further.rows[[name in own for name in named]]
    params = rows["params"].astype(float)
    small, large = params.min(), params.max()
    if large > 1.01 * small and not (rows["match"] != "none").all():
        yield Limit(
            f"unequal size: {small:,.0f} to {large:,.0f} parameters",
            f"Variants differ in size too, from {small:,.0f} to {large:,.0f} parameters: a difference may be"
            " one of size (match=params evens it out).",
            "Is it only a matter of parameters?",
            further.changed("matched", "match=params"),
        )


def _overfit(rows: pd.DataFrame, comparison: Comparison) -> Iterator[Limit]:
    """A limit for runs longer than an epoch whose best step is well before the end."""
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


def _standing(further: FollowUps) -> Iterator[Limit]:
    """What speaks against the text and the budget."""
    caveats = further.comparison.caveats
    for one in caveats:
        if one.is_doubt:
            next_ = further.longer() if one.about == "counting" else NO_FOLLOW_UP
            yield Limit(one.brief, f"{capital(one.text)}.", "Do text and budget carry a verdict?", next_)
    if not any(one.about == "fixed places" for one in caveats):
        yield Limit(
            "not known whether attention has learned to look",
            "Whether attention has learned to look is not known, without heads that read fixed places.",
            "Has attention learned to look at all?",
            further.beside_fixed_places(),
        )


def beside_counting(comparison: Comparison) -> str:
    """Whether the models are better than counting tokens, in a line; empty for a table of another
    program."""
    found = [one for one in comparison.caveats if one.about == "counting"]
    if is_foreign(comparison.rows):
        return ""
    if not found:
        return (
            f"Better than counting tokens? Not known: no loss of counting stands beside {comparison.metric}."
        )
    doubted = sum(one.is_doubt for one in found)
    verdict = "Yes" if not doubted else "No" if doubted == len(found) else "Not all"
    return f"Better than counting tokens? {verdict}: {'; '.join(one.clause for one in found)}."
