"""Whether cross-attention looks at the letters of the source that each letter of the target comes from.

legend: H heads, T letters of a target, S of its source.
"""

from dataclasses import dataclass

import numpy as np
import torch

from ablate.data.corpora.base import PairTask
from ablate.data.corpus import Corpus
from ablate.data.paired import Paired
from ablate.model.models import Model
from ablate.probes.patterns import patterns_of

PAIRS = 256  # the most pairs that are read


@dataclass(frozen=True)
class Alignment:
    """One pair. gold_TS: true where a letter of the target comes from a letter of the source. weights: the
    pattern of each cross-attention, A_HTS."""

    gold_TS: np.ndarray
    weights: list[np.ndarray]

    def pattern(self, layer: int | None) -> np.ndarray:
        """(H, T, S), of the cross-attention with this index. None: for comparison the plain diagonal, in
        which letter t has all its weight on the source letter at the same relative position."""
        if layer is not None:
            return self.weights[layer]
        T, S = self.gold_TS.shape
        return np.eye(S)[None, np.minimum(np.round(np.arange(T) * S / T).astype(int), S - 1)]


@torch.no_grad()
def read(corpus: Corpus, model: Model) -> list[Alignment]:
    """The alignments of held-out pairs; empty unless the corpus is a task that knows them, and each token is
    a letter."""
    split, task = corpus.splits["validation"], corpus.recipe
    if not isinstance(task, PairTask) or not isinstance(split, Paired):
        return []
    pairs = split.pairs.held_out[:PAIRS]
    seen = patterns_of(model, split.layout.batch(pairs))
    of_cross = [
        layer.numpy() for site, layer in zip(model.sites(), seen, strict=True) if site.kind == "cross"
    ]
    alignments = []
    for row, pair in enumerate(pairs):
        gold_TS = task.aligned(*(corpus.tokenizer.decode(side) for side in pair))
        T, S = gold_TS.shape
        if (len(pair.source), len(pair.target)) != (S, T):
            return []
        # Letter t is predicted at position t, since the separator comes first.
        alignments.append(Alignment(gold_TS, [layer[row, :, :T, :S] for layer in of_cross]))
    return alignments


def aligned(alignments: list[Alignment], layer: int | None) -> list[float]:
    """By head: the mean weight on the letters that a letter comes from, over letters with a known origin.
    layer: as for `pattern`."""
    known = [one.gold_TS.any(1) for one in alignments]
    totals = [
        (one.pattern(layer) * one.gold_TS)[:, known_T].sum((1, 2))
        for one, known_T in zip(alignments, known, strict=True)
    ]
    return (np.sum(totals, 0) / sum(known_T.sum() for known_T in known)).tolist()


def error_rate(alignments: list[Alignment], layer: int | None) -> list[float]:
    """By head: the alignment error rate, 1 − (|A∩S| + |A∩P|) / (|A| + |S|). A: a link from each letter with a
    known origin to the letter with the largest weight; P: links to letters that it may come from; S: those
    where there is only one such letter. layer: as for `pattern`. See: Och and Ney, "A systematic comparison
    of various statistical alignment models", 2003."""
    hits, links, sure = np.zeros(1), 0, 0
    for one in alignments:
        known_T = one.gold_TS.any(1)
        gold_TS = one.gold_TS[known_T]
        weights_HTS = one.pattern(layer)[:, known_T]
        hit_HT = np.take_along_axis(
            np.broadcast_to(gold_TS, weights_HTS.shape), weights_HTS.argmax(-1)[..., None], -1
        )[..., 0]
        sure_T = gold_TS.sum(1) == 1
        hits = hits + hit_HT.sum(1) + (hit_HT & sure_T).sum(1)
        links, sure = links + len(gold_TS), sure + int(sure_T.sum())
    return (1 - hits / (links + sure)).tolist()
