"""Translate with a model of pairs of texts, greedily, and score the translations.

BLEU and chrF are sacrebleu's, with its defaults, on decoded texts.

legend: B sources at a time, S tokens of a source, T of a target.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ablate.data.corpus import Corpus
from ablate.data.paired import Layout, Pair, Paired
from ablate.model.models import Model

AT_ONCE = 256  # sources per batch
FILES = ("test.source", "test.target", "test.translation")  # kept in a run, one text per line


@torch.no_grad()
def translated(model: Model, layout: Layout, sources: Sequence[np.ndarray], context: int) -> list[np.ndarray]:
    """The greedy translation of each source, which ends with the separator or where the context is full."""
    results: dict[int, np.ndarray] = {}
    order = sorted(range(len(sources)), key=lambda at: len(sources[at]))
    for at in range(0, len(order), AT_ONCE):
        some = order[at : at + AT_ONCE]
        batch = _together(model, layout, [sources[i] for i in some], context)
        results |= dict(zip(some, batch, strict=True))
    return [results[at] for at in range(len(sources))]


def _together(model: Model, layout: Layout, sources: list[np.ndarray], context: int) -> list[np.ndarray]:
    separator, device = layout.separator, next(model.parameters()).device
    targets: list[list[int]] = [[] for _ in sources]
    going = [i for i, source in enumerate(sources) if layout.positions(len(source), 0) <= context]
    while going:
        pairs = [Pair(sources[i], np.array(targets[i], np.int64)) for i in going]
        batch = layout.batch(pairs).to(device)
        # The last target position of a row is the one that predicts the next token.
        positions = batch.target_positions
        assert positions is not None
        last = positions[torch.bincount(positions // batch.inputs.shape[1]).cumsum(0) - 1]
        predicted = model(batch.inputs, last, batch.source).argmax(-1).tolist()
        left = []
        for i, letter in zip(going, predicted, strict=True):
            if letter != separator:
                targets[i].append(letter)
                before = 0 if layout.two_texts else len(sources[i])
                if layout.positions(before, len(targets[i])) < context:
                    left.append(i)
        going = left
    return [np.array(target, np.int64) for target in targets]


def of_test(model: Model, corpus: Corpus, context: int) -> list[tuple[str, str, str]]:
    """Source, target and translation of each pair of the test split."""
    split = corpus.splits["test"]
    assert isinstance(split, Paired), "pairs are laid out so"
    pairs = split.pairs.held_out
    translations = translated(model, split.layout, [pair.source for pair in pairs], context)
    written = corpus.tokenizer.decode
    return [
        (written(pair.source), written(pair.target), written(translation))
        for pair, translation in zip(pairs, translations, strict=True)
    ]


def scores(translations: Sequence[tuple[str, str, str]]) -> dict[str, float]:
    """The columns test_bleu and test_chrf, each from 0 to 100."""
    references, hypotheses = ([line[side] for line in translations] for side in (1, 2))
    return {
        column: metric.corpus_score(hypotheses, [references]).score for column, metric in _metrics().items()
    }


def signatures() -> dict[str, str]:
    """sacrebleu's signatures, which say how each column was computed, for citation."""
    metrics = _metrics()
    for metric in metrics.values():
        metric.corpus_score(["a"], [["a"]])  # a signature includes the number of references
    return {column: str(metric.get_signature()) for column, metric in metrics.items()}


def _metrics() -> dict[str, Any]:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    return {"test_bleu": BLEU(), "test_chrf": CHRF()}
