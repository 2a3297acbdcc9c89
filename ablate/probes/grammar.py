"""Probes for corpus=grammar: losses by the role of a letter, with all heads and without each of them, and
heads that look from a verb to its subject.

legend: R rows of text, T positions in each, L layers, H heads, v verbs.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

from ablate.data.corpora.grammar import Grammar, Word, words
from ablate.data.splits import Batch, spread
from ablate.execution.run import PlacedRun
from ablate.model.models import Model
from ablate.probes.needed import without
from ablate.probes.patterns import patterns_of

ROWS = 512
SHUFFLES = 200
# verb_N: verbs with N nouns of the other number between them and their subject (2: two or more);
# noun_or_verb: words whose form is both a noun and a verb.
TAGS = ("verb_0", "verb_1", "verb_2", "noun_or_verb")


@dataclass(frozen=True)
class TaggedRows:
    """batch: rows of the validation split. nats_RT: the loss of each target. tags_RT: by tag, which targets
    hold a letter of it, and `else`, which hold none. weights_LHvT: attention at the positions that predict a
    verb's first token, where entry d of T is the weight d positions back. subjects: (v, 2), how many
    positions back the subject begins and ends."""

    batch: Batch
    nats_RT: np.ndarray
    tags_RT: dict[str, np.ndarray]
    weights_LHvT: np.ndarray
    subjects: np.ndarray


def read(run: PlacedRun, model: Model) -> TaggedRows:
    """Evaluate a model of a run on corpus=grammar on its validation split."""
    tokens, context, drawn = run.corpus.tokens("validation"), run.spec.context, run.corpus.recipe
    assert isinstance(drawn, Grammar)
    # A token is one or several letters, perhaps with the blank before a word: find where each begins in the
    # whole text, with one byte per letter.
    lengths = run.corpus.tokenizer.byte_lengths
    before = int(lengths[run.corpus.tokens("train")].sum())
    begins = before + np.concatenate([[0], np.cumsum(lengths[tokens])])
    all_words = [*words(drawn.seed, drawn.characters)]
    tagged = _letters(all_words, begins[-1])
    starts = spread((len(tokens) - 1) // context, min(ROWS, (len(tokens) - 1) // context)) * context
    inputs = torch.from_numpy(tokens[starts[:, None] + np.arange(context)].astype(np.int64))
    targets = torch.from_numpy(tokens[starts[:, None] + np.arange(1, context + 1)].astype(np.int64))
    batch = Batch(inputs, targets)
    at = starts[:, None] + np.arange(1, context + 1)
    weights, subjects = _from_verbs(model, inputs, all_words, begins, starts)
    tags = {}
    for tag, letters in tagged.items():
        before_letter = np.concatenate([[0], np.cumsum(letters)])
        tags[tag] = before_letter[begins[at + 1]] > before_letter[begins[at]]
    tags["else"] = ~np.any([*tags.values()], 0)
    return TaggedRows(batch, _nats(model, batch), tags, weights, subjects)


def losses(lines: TaggedRows) -> dict[str, float]:
    """The mean loss of the targets with each tag, in nats per token."""
    return {tag: float(lines.nats_RT[where].mean()) for tag, where in lines.tags_RT.items() if where.any()}


def losses_added(lines: TaggedRows, model: Model, place: tuple[int, int]) -> dict[str, float]:
    """By tag, how much the mean loss rises when the head at this place (ablate.probes.needed) is removed."""
    with without(model, lines.batch, {place}):
        lost = losses(replace(lines, nats_RT=_nats(model, lines.batch)))
    return {tag: lost[tag] - loss for tag, loss in losses(lines).items()}


@torch.no_grad()
def _nats(model: Model, batch: Batch) -> np.ndarray:
    logits, targets = model(batch.inputs).flatten(0, 1), batch.targets.flatten()
    nats = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    return nats.view_as(batch.targets).numpy()


def on_subject(
    lines: TaggedRows, draws: np.random.Generator
) -> tuple[list[list[float]], list[list[float]], float, float]:
    """By layer and head, the mean weight on the subject's letters; the same with subjects shuffled among the
    verbs, as chance gives. Then the 95 % range of the largest head over such shuffles."""
    shuffled = np.stack([_weight(lines, draws.permutation(lines.subjects)) for _ in range(SHUFFLES)])
    low, high = np.quantile(shuffled.max((1, 2)), [0.025, 0.975])
    return _weight(lines, lines.subjects).tolist(), shuffled.mean(0).tolist(), float(low), float(high)


def _weight(lines: TaggedRows, subjects: np.ndarray) -> np.ndarray:
    """(L, H): the mean over verbs of the total weight on the positions of the subject."""
    back = np.arange(lines.weights_LHvT.shape[-1])
    there_vT = (back <= subjects[:, :1]) & (back > subjects[:, 1:])
    return (lines.weights_LHvT * there_vT).sum(-1).mean(-1)


def _from_verbs(
    model: Model, inputs: torch.Tensor, all_words: list[Word], begins: np.ndarray, starts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """weights_LHvT and subjects (TaggedRows) of the verbs in these rows whose subject is in the same row."""
    context = inputs.shape[1]
    rows, queries, places = list[int](), list[int](), list[tuple[int, int]]()
    for word in all_words:
        if word.subject is None or word.subject[0] < begins[0]:
            continue
        # The tokens that hold the verb's first letter, and the subject's first and last.
        letters = (word.start, word.subject[0], word.subject[1] - 1)
        verb, began, last = np.searchsorted(begins, letters, "right") - 1
        row = int(np.searchsorted(starts, verb - 1, "right")) - 1
        query = verb - 1 - starts[row]  # predicts the verb's first token
        if row >= 0 and 0 <= query < context and began >= starts[row]:
            rows.append(row)
            queries.append(query)
            places.append((verb - 1 - began, verb - 2 - last))
    layers, of_rows, of_queries = [], np.array(rows, int), np.array(queries, int)
    place = np.arange(context)
    for layer in patterns_of(model, Batch(inputs, inputs)):
        rows_vHT = layer.numpy()[of_rows, :, of_queries]
        back_vT = of_queries[:, None] - place  # entry d is d tokens back
        taken = np.take_along_axis(rows_vHT, np.clip(back_vT, 0, None)[:, None], -1) * (back_vT >= 0)[:, None]
        layers.append(taken.transpose(1, 0, 2))
    return np.stack(layers), np.array(places, int).reshape(-1, 2)


def _letters(all_words: list[Word], length: int) -> dict[str, np.ndarray]:
    """By tag, which letters of the text have it."""
    letters = {tag: np.zeros(length + 1, bool) for tag in TAGS}
    for word in all_words:
        if word.subject is not None:
            letters[f"verb_{min(word.between, 2)}"][word.start : word.stop] = True
        if word.is_two:
            letters["noun_or_verb"][word.start : word.stop] = True
    return letters
