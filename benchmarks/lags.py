"""The best losses on corpus=lags for readers who know some of the lagged letters, in nats per letter.

    python benchmarks/lags.py [OVERRIDES, such as corpus.lags=[1,4] model.context=32]

The losses are computed exactly, and from the counts of the text itself, as a mean over windows of
model.context. Ideal readers know (*none*) nothing, (*one*) the letter at the best single lag, (*unordered*)
the letters at all lags but not their order, (*all*) everything. Only by chance is a model better than the
last.

legend: s symbols, L lags, m the longest of them, T context.
"""

import itertools
import math
import sys
from collections.abc import Sequence

import hydra
import numpy as np

from ablate.compose.composer import to_run_config
from ablate.compose.configs import configs_dir
from ablate.config.rules import ConfigError
from ablate.data.corpora.lags import Lags, table
from ablate.data.corpus import open_corpus

STATES = 10**6


def main() -> None:
    with hydra.initialize_config_dir(str(configs_dir()), version_base="1.3"):
        config = to_run_config(hydra.compose("config", overrides=["corpus=lags", *sys.argv[1:]]))
    corpus, context = open_corpus(config.corpus), config.model.context
    c = corpus.recipe
    assert isinstance(c, Lags)
    letters = np.concatenate([corpus.tokens(split) for split in corpus.splits])
    counted = counted_floors(letters, c.seed, c.lags, c.symbols, context)
    try:
        exact = floors(c.seed, c.lags, c.symbols, context)
    except ConfigError as error:
        print(error)
        exact = {}
    print(f"{'knows':<12}{'algebra':>10}{'counted':>10}")
    for reader, loss in counted.items():
        print(f"{reader:<12}{exact.get(reader, float('nan')):>10.4f}{loss:>10.4f}")


def floors(seed: int, lags: Sequence[int], symbols: int, context: int) -> dict[str, float]:
    """The exact loss of each reader over windows of `context`, in nats per letter: conditional entropies
    under the stationary distribution, averaged over positions, the first of which see fewer lags. Raises
    ConfigError for more than a million states, s^m."""
    longest = max(lags)
    if symbols**longest > STATES:
        raise ConfigError(f"corpus.lags: {symbols}^{longest} states are more than {STATES:,}; count instead")
    rows = _probabilities(seed, lags, symbols)
    return _over_windows(_stationary(rows, lags)[..., None] * rows, lags, context)


def counted_floors(
    letters: np.ndarray, seed: int, lags: Sequence[int], symbols: int, context: int
) -> dict[str, float]:
    """As floors, with the frequencies of the letters at the lags in a text. letters: (n,) ids, 0 to s − 1."""
    longest = max(lags)
    columns = [letters[longest - lag : len(letters) - lag] for lag in sorted(lags, reverse=True)]
    shape = (symbols,) * len(lags)
    counts = np.bincount(np.ravel_multi_index(columns, shape), minlength=math.prod(shape)).reshape(shape)
    rows = _probabilities(seed, lags, symbols)
    return _over_windows((counts / counts.sum())[..., None] * rows, lags, context)


def _probabilities(seed: int, lags: Sequence[int], symbols: int) -> np.ndarray:
    """Probabilities of the next letter, with the axis of the longest lag first: (s,)·L + (s,)."""
    weights = table(seed, lags, symbols)
    return (weights / weights.sum(-1, keepdims=True)).transpose(*np.argsort(lags)[::-1], len(lags))


def _stationary(rows: np.ndarray, lags: Sequence[int]) -> np.ndarray:
    """The joint distribution of the letters at the lags, the longest first: (s,)·L."""
    longest, symbols = max(lags), rows.shape[-1]
    # State: the last m letters, the oldest first. Axis i holds the letter m − i places back.
    seen = [longest - lag for lag in sorted(lags, reverse=True)]
    wide = rows.reshape([symbols if axis in seen else 1 for axis in range(longest)] + [symbols])
    state = np.full((symbols,) * longest, float(symbols) ** -longest)
    while True:
        after = (state[..., None] * wide).sum(0)
        if np.abs(after - state).sum() < 1e-12:
            return state.sum(tuple(axis for axis in range(longest) if axis not in seen))
        state = after


def _over_windows(joint: np.ndarray, lags: Sequence[int], context: int) -> dict[str, float]:
    """The loss of each reader, a mean over positions 1 … T, where position p sees p letters back. joint: the
    distribution of the letters at the lags, the longest lag first, and of the next letter."""
    furthest_first = sorted(lags, reverse=True)
    losses: dict[str, float] = {}
    for hidden in range(len(lags) + 1):  # how many of the furthest are out of sight
        nearest = furthest_first[hidden] if hidden < len(lags) else 0
        beyond = min(context, furthest_first[hidden - 1] - 1) if hidden else context
        positions = max(0, beyond - max(nearest, 1) + 1)
        visible = joint.sum(tuple(range(hidden)))
        for reader, loss in _losses(visible).items():
            losses[reader] = losses.get(reader, 0.0) + positions / context * loss
    return losses


def _losses(joint: np.ndarray) -> dict[str, float]:
    """The loss of each reader. joint: the distribution of the visible letters and the next one."""
    seen, symbols = joint.ndim - 1, joint.shape[-1]
    axes = range(seen)
    alone = [_loss(joint.sum(tuple(other for other in axes if other != axis))) for axis in axes]
    none = _loss(joint.sum(tuple(axes))[None])
    together: dict[tuple[int, ...], np.ndarray] = {}
    for letters in itertools.product(range(symbols), repeat=seen):
        key = tuple(sorted(letters))
        together[key] = together.get(key, 0) + joint[letters]
    return {
        "none": none,
        "one": min(alone, default=none),
        "unordered": _loss(np.array([*together.values()])),
        "all": _loss(joint.reshape(-1, symbols)),
    }


def _loss(joint: np.ndarray) -> float:
    """H(next | row). joint: (rows, s)."""
    row = joint.sum(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        nats = joint * np.log(joint / row)
    return -float(np.nansum(nats))


if __name__ == "__main__":
    main()
