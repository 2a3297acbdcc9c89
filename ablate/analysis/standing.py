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
    """words: a sentence. is_doubt: whether it speaks against the answer. brief: the doubt in a few words."""

    words: str
    is_doubt: bool
    brief: str


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
            "a text that repeats itself",
        )
    if np.isfinite(epochs):
        mended = "; differences may be of memory: fewer train.steps or a longer text (corpus) mend that"
        yield Fact(
            f"epochs: a run reads its text {epochs:.1f} times{mended if epochs > MOST_EPOCHS else ''}",
            epochs > MOST_EPOCHS,
            f"a text read {epochs:.0f} times",
        )


def _beside_counting(variants: Variants, bases: Sequence[int], known: pd.DataFrame) -> Iterator[Fact]:
    """known: of the text of each baseline."""
    if variants.metric not in COUNTING:
        return
    loss_B, order_B = (known[column].to_numpy() for column in (COUNTING[variants.metric], "ngram_order"))
    for is_worse, those, by in _apart(variants, bases, loss_B - stats.moments(variants.values[[*bases]])[1]):
        beside = (
            f"counting: {by}, where counting {_range(order_B[those])} tokens gives {_range(loss_B[those])}"
        )
        mended = (
            "; a difference may be in what a table of n-grams would fill in: --metric mix_loss says what"
            " remains; more train.steps or a larger model get beyond it"
        )
        words = f"worse than {beside}{mended}" if is_worse else f"better than {beside}"
        yield Fact(words, is_worse, "worse than counting")


def _beside_fixed_places(variants: Variants, bases: Sequence[int]) -> Iterator[Fact]:
    partner = dict(otherwise_equal(variants, {"scores": FIXED_PLACES}))
    if not (having := [base for base in bases if base in partner]):
        return
    fixed = variants.values[[partner[base] for base in having]]
    ahead_B = stats.paired(fixed, variants.values[having], margin=np.inf)["diff"]
    for is_worse, _, by in _apart(variants, having, ahead_B):
        beside = f"heads that read fixed places: {by} (scores={FIXED_PLACES})"
        mended = (
            "; attention has not learned to look in this budget: more train.steps or a higher train.lr may"
            " mend that"
        )
        words = f"worse than {beside}{mended}" if is_worse else f"better than {beside}"
        yield Fact(words, is_worse, "worse than heads that read fixed places")


def _apart(
    variants: Variants, bases: Sequence[int], ahead_B: stats.Array
) -> Iterator[tuple[bool, list[int], str]]:
    """The baselines that are behind, and those that are not, each as (whether behind, their places in bases,
    who they are and by how much). NaN is in neither."""
    for is_worse, places in ((True, np.flatnonzero(ahead_B < 0)), (False, np.flatnonzero(ahead_B >= 0))):
        if len(those := places.tolist()):
            names = some([variants.names[bases[at]] for at in those])
            yield is_worse, those, f"{names}: by {_range(np.abs(ahead_B[those]))} of {variants.metric}"


def _range(values: stats.Array) -> str:
    low, high = f"{values.min():.3g}", f"{values.max():.3g}"
    return low if low == high else f"{low} to {high}"
