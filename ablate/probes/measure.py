"""Compute every probe of one model, with what chance gives for comparison.

legend: B rows, T positions, H heads, V value width, n tokens.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ablate.data.splits import Batch, Split
from ablate.execution.run import Run
from ablate.model.models import Model
from ablate.probes import outputs, patterns
from ablate.probes.needed import loss_added
from ablate.probes.patterns import Heads, look, patterns_of
from ablate.rng import generator

TOKENS = 16_384  # tokens of the validation split for probes that predict one thing from another
ROWS = 32  # rows for patterns, and for probes that compute the loss once per head
NAMED = 4_000  # tokens for the classifier that names heads

OF_PATTERNS: dict[str, Callable[[Tensor], list[float]]] = {
    "entropy": patterns.entropies,
    "distance": patterns.distances,
    "previous": patterns.previous,
    "jsd": patterns.divergences,
}


@dataclass(frozen=True)
class Value:
    """The value of a probe for a head. Layers and heads count from 1. In a model with several kinds of
    attention, a layer is named by its kind, as `cross 1`.

    null: the value by chance. exact: whether what heads write sums to what they add together (Heads.exact).
    """

    layer: int | str
    head: int
    probe: str
    value: float
    null: float | None = None
    exact: bool = True


def measure(run: Run, model: Model) -> list[Value]:
    """The probes of a model of this run, in float64 on the CPU. Raises ConfigError if the validation split is
    too short."""
    split, context = run.corpus.splits["validation"], run.spec.context
    names, seen = layer_names(model), look(model, _rows(split, context, TOKENS))
    values = []
    for layer, heads in zip(names, seen, strict=True):
        values += _written(layer, heads)
    reads_more = any(site.attention.scores.reads_more for site in model.sites())
    if not (reads_more or split.is_ragged):
        values += _patterns(run, model)
    batch = _rows(split, context, ROWS * context)
    for layer, heads, added in zip(names, seen, loss_added(model, batch), strict=True):
        values += _of_heads(layer, "loss_added", added, exact=heads.exact)
    return [value for value in values if np.isfinite(value.value)]


def layer_names(model: Model) -> Sequence[int | str]:
    """The name of each attention: its layer, with its kind if there are several."""
    sites = model.sites()
    several = len({site.kind for site in sites}) > 1
    return [f"{site.kind} {site.layer}" if several else site.layer for site in sites]


def _of_heads(
    layer: int | str,
    probe: str,
    values: Sequence[float],
    null: Sequence[float] | float | None = None,
    **about: Any,
) -> list[Value]:
    """A value for each head of a layer. null: one for each head, or for all."""
    nulls = null if isinstance(null, Sequence) else [null] * len(values)
    pairs = enumerate(zip(values, nulls, strict=True), 1)
    return [Value(layer, head, probe, value, by_chance, **about) for head, (value, by_chance) in pairs]


def _written(layer: int | str, heads: Heads) -> Iterator[Value]:
    """The probes of what heads write: how much of each is kept, and how different they are."""
    read, written, fused = (part[heads.real].numpy() for part in (heads.read, heads.written, heads.fused))
    n, H, V = read.shape
    outputs.require_tokens(n, max(fused.shape[-1], H * V))
    draws = generator(0, "probe", f"shuffled/{layer}")
    nobody, nobody_fused = _shuffled(heads, draws)
    targets, others = ([part[:, head] for head in range(H)] for part in (read, nobody))
    kept, by_chance = outputs.linear_shares(fused, targets), outputs.linear_shares(nobody_fused, others)
    yield from _of_heads(layer, "kept", kept, by_chance)
    if not np.isfinite(written).all():  # a fusion that divides by a head's length, say, has no value at 0
        return
    some = written[:: max(1, n // NAMED)]
    for probe, values, null in (
        ("write_rank", outputs.effective_ranks(written), None),
        ("head_id_accuracy", outputs.head_id_accuracy(some), 1 / H),
    ):
        yield from _of_heads(layer, probe, values, null, exact=heads.exact)


def _shuffled(heads: Heads, draws: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The heads, each with its tokens shuffled independently, and what the same fusion makes of them."""
    read = outputs.shuffled(heads.read[heads.real].numpy(), draws)
    whole = heads.read.index_put((heads.real,), torch.from_numpy(read))
    return read, heads.fuse(whole)[heads.real].numpy()


def _patterns(run: Run, model: Model) -> Iterator[Value]:
    for probe, layers in _scores(model, *_texts(run)).items():
        for layer, values in enumerate(layers, 1):
            yield from _of_heads(layer, probe, values)


def _scores(model: Model, text: Batch, again: Batch) -> dict[str, list[list[float]]]:
    """The probes of patterns, by probe and layer: one value per head."""
    seen = patterns_of(model, text)
    scores = {probe: [of(layer) for layer in seen] for probe, of in OF_PATTERNS.items()}
    scores["induction"] = [patterns.induction(layer) for layer in patterns_of(model, again)]
    return scores


def _texts(run: Run) -> tuple[Batch, Batch]:
    """Rows of the validation split, and rows of random tokens repeated once."""
    context = run.spec.context
    text = _rows(run.corpus.splits["validation"], context, ROWS * context)
    again = patterns.twice(run.spec.vocab, context, ROWS, generator(0, "probe", "twice"))
    return text, Batch(again, again)


def _rows(split: Split, context: int, tokens: int) -> Batch:
    """About `tokens` tokens of the split, spread evenly, in rows of `context`; all of a shorter split."""
    count = max(1, tokens // context)
    at_once = tokens if split.is_ragged else count
    return next(split.windows(context=context, windows=at_once, most=count * context))
