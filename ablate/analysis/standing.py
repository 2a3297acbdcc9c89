"""Where a comparison stands: whether its text and its budget can carry a verdict.

A model that a table of n-grams beats, or heads that read fixed places, has not learned what attention is for;
a text that repeats itself, or is read often, rewards memory. A difference between two such models is about
that.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.analysis.controls import otherwise_equal
from ablate.analysis.variants import Variants

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


def facts(variants: Variants, bases: Iterable[int]) -> Iterator[Fact]:
    """What is known of the baselines, by number, and of the text."""
    known = variants.table.reindex(columns=[*OF_TEXT]).apply(pd.to_numeric, errors="coerce").astype(float)
    for base in bases:
        yield from _beside_counting(variants, base, known.iloc[base])
    partner = dict(otherwise_equal(variants, {"scores": FIXED_PLACES}))
    for base in bases:
        if base in partner:
            yield from _beside_fixed_places(variants, base, partner[base])
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


def _beside_counting(variants: Variants, base: int, text: pd.Series) -> Iterator[Fact]:
    mean, loss = (
        stats.moments(variants.values[[base]])[1][0],
        text.get(COUNTING.get(variants.metric, ""), np.nan),
    )
    if not np.isfinite(mean - loss):
        return
    name = variants.names[base]
    beside = f"{variants.metric} {mean:.4g} against {loss:.4g} of counting {text['ngram_order']:.0f} tokens"
    if mean > loss:
        yield Fact(
            f"worse than counting: {name}: {beside}; a difference may be one in what a table of n-grams would"
            " fill in: --metric mix_loss says what remains; more train.steps or a larger model get beyond it",
            True,
        )
    else:
        yield Fact(f"better than counting: {name}: {beside}", False)


def _beside_fixed_places(variants: Variants, base: int, fixed: int) -> Iterator[Fact]:
    paired = stats.paired(variants.values[[base]], variants.values[[fixed]], margin=np.inf)
    diff, low, high = (float(paired[name][0]) for name in ("diff", "low_marginal", "high_marginal"))
    if not np.isfinite(diff):
        return
    name = variants.names[base]
    beside = f"{variants.metric} {diff:+.4g} [{low:.4g}, {high:.4g}] against heads that read fixed places"
    if diff > 0:
        yield Fact(
            f"worse than fixed places: {name}: {beside} (scores=offsets): attention has not learned to look"
            " in this budget; more train.steps or a higher train.lr may mend that",
            True,
        )
    else:
        yield Fact(f"better than fixed places: {name}: {beside} (scores=offsets)", False)
