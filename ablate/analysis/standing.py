"""Where a comparison stands: whether its text and its budget can carry a verdict.

A model that a table of n-grams beats, or heads that read fixed places, has not learned what attention is for;
a text that repeats itself, or is read often, rewards memory. A difference between two such models is about
that.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.analysis.controls import otherwise_equal
from ablate.analysis.variants import Variants
from ablate.phrases import some

COUNTING = {"val_loss": "ngram_val_loss", "test_loss": "ngram_loss"}  # the column with the loss of counting
FIXED_PLACES = "offsets"  # scores=offsets: head i reads the token i places back
OF_TEXT = ("overlap", "epochs", "ngram_order", *COUNTING.values())
MOST_OVERLAP = 0.05  # of a held-out split
MOST_EPOCHS = 4


@dataclass(frozen=True)
class Fact:
    """words: a sentence. is_doubt: whether it speaks against the answer."""

    words: str
    is_doubt: bool


def facts(variants: Variants, bases: Sequence[int]) -> Iterator[Fact]:
    """What is known of the baselines, by number, and of the text."""
    known = variants.table.reindex(columns=[*OF_TEXT]).apply(pd.to_numeric, errors="coerce").astype(float)
    yield from _beside_counting(variants, bases, known.iloc[[*bases]])
    yield from _beside_fixed_places(variants, bases)
    overlap, epochs = known["overlap"].max(), known["epochs"].max()
    if np.isfinite(overlap):
        mended = "; what remembers best wins there: corpus.unique=paragraph takes repeats away"
        yield Fact(
            f"overlap: {100 * overlap:.1f} % of a held-out split lies in stretches of 50 characters or more"
            f" that another split has, too{mended if overlap > MOST_OVERLAP else ''}",
            overlap > MOST_OVERLAP,
        )
    if np.isfinite(epochs):
        mended = "; differences may be of memory: fewer train.steps or a longer text (corpus) mend that"
        yield Fact(
            f"epochs: a run reads its text {epochs:.1f} times{mended if epochs > MOST_EPOCHS else ''}",
            epochs > MOST_EPOCHS,
        )


def _beside_counting(variants: Variants, bases: Sequence[int], known: pd.DataFrame) -> Iterator[Fact]:
    """A fact about the baselines that are worse than counting, and one about the others. known: of their
    text."""
    if variants.metric not in COUNTING:
        return
    loss_B, order_B = (known[column].to_numpy() for column in (COUNTING[variants.metric], "ngram_order"))
    ahead_B = loss_B - stats.moments(variants.values[[*bases]])[1]
    for is_worse, those in _apart(ahead_B):
        names = some([variants.names[bases[at]] for at in those])
        beside = f"{names}: by {_range(np.abs(ahead_B[those]))} of {variants.metric}, where counting"
        beside += f" {_range(order_B[those])} tokens gives {_range(loss_B[those])}"
        if not is_worse:
            yield Fact(f"better than counting: {beside}", False)
            continue
        yield Fact(
            f"worse than counting: {beside}; a difference may be in what a table of n-grams would fill in:"
            " --metric mix_loss says what remains; more train.steps or a larger model get beyond it",
            True,
        )


def _beside_fixed_places(variants: Variants, bases: Sequence[int]) -> Iterator[Fact]:
    """The same beside heads that read fixed places, of baselines with such a variant."""
    partner = dict(otherwise_equal(variants, {"scores": FIXED_PLACES}))
    if not (having := [base for base in bases if base in partner]):
        return
    fixed = variants.values[[partner[base] for base in having]]
    ahead_B = stats.paired(fixed, variants.values[having], margin=np.inf)["diff"]
    for is_worse, those in _apart(ahead_B):
        names = some([variants.names[having[at]] for at in those])
        beside = f"{names}: by {_range(np.abs(ahead_B[those]))} of {variants.metric}"
        beside += f" (scores={FIXED_PLACES})"
        if not is_worse:
            yield Fact(f"better than heads that read fixed places: {beside}", False)
            continue
        yield Fact(
            f"worse than heads that read fixed places: {beside}; attention has not learned to look in this"
            " budget: more train.steps or a higher train.lr may mend that",
            True,
        )


def _apart(ahead_B: stats.Array) -> list[tuple[bool, list[int]]]:
    """The places of those that are behind, and of those that are not; NaN is in neither."""
    sides = [(True, np.flatnonzero(ahead_B < 0)), (False, np.flatnonzero(ahead_B >= 0))]
    return [(is_worse, those.tolist()) for is_worse, those in sides if len(those)]


def _range(values: stats.Array) -> str:
    low, high = f"{values.min():.3g}", f"{values.max():.3g}"
    return low if low == high else f"{low} to {high}"
