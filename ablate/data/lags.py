"""A text whose next letter depends on the letters a few places back, and the best losses that can be reached.

The next letter is drawn from a table with one row for each combination of letters at `lags` places back, in
that order. So a model has to fetch each of these letters and to know which is which. Its loss is compared
with those of ideal readers who know (*none*) nothing, (*one*) the letter at the best single lag,
(*unordered*) the letters at all lags but not their order, (*all*) everything. Only by chance is a model
better than the last.

legend: s symbols, L lags, m the longest of them, T context.
"""

import itertools
import math
import random
from collections.abc import Iterator, Sequence

import numpy as np

from ablate.config.rules import ConfigError

VERSION = 1  # raise it when the drawn text changes: cached texts are found by it
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
FAVOURED = (27, 9, 3)  # weights of the three likeliest letters in a row; all others have 1
ROWS = STATES = 10**6
CHUNK = 1 << 16  # letters


def check(lags: Sequence[int], symbols: int) -> None:
    """Raises ConfigError for lags and symbols that can't make a text."""
    shown = f"corpus.lags=[{','.join(map(str, lags))}]"
    if not lags or min(lags) < 1 or len({*lags}) < len(lags):
        raise ConfigError(f"{shown}: how many letters back, each once, from 1 on; as corpus.lags=[2,3]")
    if not 2 <= symbols <= len(LETTERS):
        raise ConfigError(f"corpus.symbols={symbols}: there are from 2 to {len(LETTERS)} letters")
    if symbols ** len(lags) > ROWS:
        raise ConfigError(
            f"{shown} corpus.symbols={symbols}: the next letter would depend on {symbols ** len(lags):,}"
            f" cases, more than {ROWS:,}; take fewer lags or symbols"
        )


def table(seed: int, lags: Sequence[int], symbols: int) -> np.ndarray:
    """Integer weights of the next letter, shape (s,)·L + (s,): one axis for each lag, in the given order."""
    draws = random.Random(seed)
    weights = [*FAVOURED, *[1] * symbols][:symbols]
    rows = []
    for _ in range(symbols ** len(lags)):
        order = sorted(range(symbols), key=lambda _: draws.random())
        rows.append([weights[place] for place in order])
    return np.array(rows).reshape((symbols,) * (len(lags) + 1))


def text(seed: int, characters: int, lags: Sequence[int], symbols: int) -> Iterator[str]:
    """The first `characters` letters, the same on every machine and Python: all draws are `random()`, which
    Python keeps stable."""
    rows = table(seed, lags, symbols).reshape(-1, symbols)
    # Each row lists every letter as often as its weight, so that a uniform index is a draw.
    likely = [np.repeat(np.arange(symbols), row).tolist() for row in rows]
    total, longest = len(likely[0]), max(lags)
    draws = random.Random(f"{seed}/text")
    told = [int(draws.random() * symbols) for _ in range(longest)]
    while characters > 0:
        count = min(CHUNK, characters)
        for _ in range(count):
            row = 0
            for lag in lags:
                row = row * symbols + told[-lag]
            told.append(likely[row][int(draws.random() * total)])
        yield "".join(LETTERS[letter] for letter in told[-count:])
        told, characters = told[-longest:], characters - count


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
