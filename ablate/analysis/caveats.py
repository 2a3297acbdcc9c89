"""Caveats of a comparison: whether its text and its budget can carry a verdict.

A model that a table of n-grams beats, or heads that read fixed places, has not learned what attention is for;
a text that repeats itself, or is read often, rewards memory. A difference between two such models is about
that.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.analysis.controls import otherwise_equal
from ablate.analysis.variants import Variants
from ablate.phrases import Note, first_few

COUNTING = {"val_loss": "ngram_val_loss", "test_loss": "ngram_loss"}  # the column with the loss of counting
FIXED_PLACES = "offsets"  # scores=offsets: head i reads the token i places back
OF_TEXT = ("overlap", "epochs", "ngram_order", *COUNTING.values())
MOST_OVERLAP = 0.05  # of a held-out split
MOST_EPOCHS = 4


def caveats(variants: Variants, bases: Sequence[int]) -> Iterator[Note]:
    """The caveats on the baselines, given by their indices, and on the text; none of another program, whose
    words for these columns mean something else."""
    if variants.is_foreign:
        return
    figures = variants.table.reindex(columns=[*OF_TEXT]).apply(pd.to_numeric, errors="coerce").astype(float)
    yield from _counting(variants, bases, figures.iloc[[*bases]])
    yield from _fixed_places(variants, bases)
    overlap, epochs = figures["overlap"].max(), figures["epochs"].max()
    if np.isfinite(overlap):
        text = (
            f"overlap: {100 * overlap:.1f} % of a held-out split lies in stretches of 50 characters or more"
            " that another split has, too"
        )
        if overlap > MOST_OVERLAP:
            text += "; what remembers best wins there: corpus.unique=paragraph takes repeats away"
            yield Note(text, "doubt", "a text that repeats itself")
        else:
            yield Note(text)
    if np.isfinite(epochs):
        text = f"epochs: a run reads its text {epochs:.1f} times"
        if epochs > MOST_EPOCHS:
            text += "; differences may be of memory: fewer train.steps or a longer text (corpus) mend that"
            yield Note(text, "doubt", f"a text read {epochs:.0f} times")
        else:
            yield Note(text)


def _counting(variants: Variants, bases: Sequence[int], figures: pd.DataFrame) -> Iterator[Note]:
    """figures: of the text of each baseline."""
    if variants.metric not in COUNTING:
        return
    loss_B, order_B = (figures[column].to_numpy() for column in (COUNTING[variants.metric], "ngram_order"))
    for how, places, who, by in _apart(variants, bases, loss_B - stats.moments(variants.values[[*bases]])[1]):
        by += f", where counting {_range(order_B[places])} tokens gives {_range(loss_B[places])}"
        mended = (
            "; a difference may be in what a table of n-grams would fill in: --metric mix_loss says what"
            " remains; more train.steps or a larger model get beyond it"
        )
        yield _beside("counting", how, who, by, mended)


def _fixed_places(variants: Variants, bases: Sequence[int]) -> Iterator[Note]:
    partner = otherwise_equal(variants, {"scores": FIXED_PLACES})
    if not (having := [base for base in bases if base in partner]):
        return
    fixed = variants.values[[partner[base] for base in having]]
    ahead_B = stats.paired(fixed, variants.values[having], margin=np.inf)["diff"]
    mended = (
        "; attention has not learned to look in this budget: more train.steps or a higher train.lr may mend"
        " that"
    )
    for how, _, who, by in _apart(variants, having, ahead_B):
        by += f" (scores={FIXED_PLACES})"
        yield _beside("heads that read fixed places", how, who, by, mended)


def _beside(what: str, how: str, who: str, by: str, mended: str) -> Note:
    text = f"{how} than {what}: {who}: {by}"
    return Note(text) if how == "better" else Note(f"{text}{mended}", "doubt", f"worse than {what}")


def _apart(
    variants: Variants, bases: Sequence[int], ahead_B: stats.Array
) -> Iterator[tuple[str, list[int], str, str]]:
    """The baselines that are behind, and those that are not, each as (worse or better, their places in bases,
    who they are, by how much). NaN is in neither."""
    for how, places in (("worse", np.flatnonzero(ahead_B < 0)), ("better", np.flatnonzero(ahead_B >= 0))):
        if len(at := places.tolist()):
            names = first_few([variants.names[bases[one]] for one in at])
            names += f" ({'baseline' if len(at) == 1 else 'baselines'})"
            yield how, at, names, f"by {_range(np.abs(ahead_B[at]))} of {variants.metric}"


def _range(values: stats.Array) -> str:
    low, high = f"{values.min():.3g}", f"{values.max():.3g}"
    return low if low == high else f"{low} to {high}"
