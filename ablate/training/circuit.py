"""How far the induction circuit has formed: a head that looks at the token before, and in a later layer one
that looks behind an earlier occurrence of the current token. Loss follows it over methods as over seeds.

See: Olsson et al., "In-context learning and induction heads", arXiv 2209.11895.

legend: B rows, T positions of the queries, S of the keys, H heads.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ablate.data.corpora import distinct
from ablate.data.splits import Batch, Split
from ablate.model.models import Model, inputs_of_attention
from ablate.rng import generator
from ablate.training.evaluate import in_eval_mode

ROWS, FEWEST = 32, 4  # of text, and of repeated tokens; the most, and the fewest where they are long


def circuit(model: Model, split: Split, *, context: int, vocab: int) -> dict[str, float]:
    """`previous` on rows of the split and `induction` on random tokens that come twice, each of the head that
    has most of it; by column, NaN where patterns don't say all that heads read. Whatever a method raises
    where it has no patterns."""
    device = next(model.parameters()).device
    rows = min(ROWS, max(FEWEST, ROWS * 64 // context))
    text = next(split.windows(context=context, windows=rows, most=rows * context)).to(device)
    again = Batch(*[twice(vocab, context, rows, generator(0, "probe", "twice"))] * 2).to(device)
    with in_eval_mode(model, lambda: dict(model.named_buffers())):
        return {
            "previous_token": _largest(model, text, previous),
            "induction": _largest(model, again, induction),
        }


@torch.no_grad()
def _largest(model: Model, batch: Batch, of: Callable[[Tensor], list[float]]) -> float:
    """The largest value of any head. One row of one attention is looked at at a time, since patterns of all
    would take more memory than a training step."""
    largest = -np.inf
    inputs = inputs_of_attention(model, batch.inputs, batch.source)
    for site, (x_BTC, source_BSC, _) in zip(model.sites(), inputs, strict=True):
        rows = zip(x_BTC.split(1), source_BSC.split(1), strict=True)  # of a decoder, without padding
        each = [of(site.attention.look(x, source).patterns_BHTS) for x, source in rows]
        largest = max(largest, *np.mean(each, axis=0))
    return float(largest)


def previous(patterns_BHTS: Tensor) -> list[float]:
    """For each head, the mean weight on the position before."""
    return over_positions(patterns_BHTS.diagonal(-1, 2, 3))


def induction(patterns_BHTS: Tensor) -> list[float]:
    """For each head, the mean weight in the second half on the token that followed the same token in the
    first half. The rows have to be a random text of T/2 tokens twice (`twice`)."""
    half = patterns_BHTS.shape[-1] // 2
    second = patterns_BHTS[:, :, half:, :]
    return over_positions(second.diagonal(1, 2, 3))


def twice(vocab: int, context: int, rows: int, draws: np.random.Generator) -> Tensor:
    """Rows for `induction`, (rows, 2·(context // 2)): random tokens, distinct if there are enough, twice."""
    half = context // 2
    once = draws.integers(vocab, size=(rows, half)) if vocab < half else distinct(draws, rows, vocab, half)
    once = torch.from_numpy(once)
    return torch.cat([once, once], 1)


def over_positions(x_BHT: Tensor) -> list[float]:
    """The mean of each head."""
    return x_BHT.mean((0, 2)).tolist()
