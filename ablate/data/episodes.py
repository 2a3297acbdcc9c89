"""A split that consists of episodes, which a task draws when they are needed.

legend: N episodes, B of them in a batch, T positions in each.
"""

import functools
from collections.abc import Iterator

import numpy as np

from ablate.config.rules import ConfigError
from ablate.data.splits import Batch, Split, asked_in, in_turns, int64, place_of, spread
from ablate.data.tasks import Task
from ablate.rng import generator

BLOCK = 1024  # episodes drawn at a time
KEPT = 256  # blocks held in memory
TRIES = 1000  # attempts to fill a block before giving up


class Episodes(Split):
    """The episodes of one split. Episode i is a function of (seed, i mod count); with count=None it is a
    function of (seed, i), and repeats only by chance.

    An episode belongs to the split in whose part of [0, 1), `within`, the hash of its content lies, so no two
    splits share one. stream: the random stream of the draws. seed: for held-out episodes; training episodes
    take the seed of the run's batches.
    """

    def __init__(
        self, task: Task, stream: str, within: tuple[float, float], *, seed: int, count: int | None
    ) -> None:
        self.task, self.stream, self.within, self.seed, self.count = task, stream, within, seed, count
        self.asked_share = task.asked / task.length
        self._block = functools.lru_cache(KEPT)(self._drawn)

    @property
    def size(self) -> int | None:
        return None if self.count is None else self.count * self.task.length

    def batch(self, *, context: int, batch: int, seed: int, step: int) -> Batch:
        return self.rows(seed, np.arange((step - 1) * batch, step * batch))

    def windows(self, *, context: int, windows: int, most: int | None = None) -> Iterator[Batch]:
        assert self.count is not None, "what never ends is not read as a whole"
        some = self.count if most is None else min(self.count, max(1, most // self.task.length))
        for places in in_turns(spread(self.count, some), windows) if some else ():
            yield self.rows(self.seed, places)

    def rows(self, seed: int, episodes_B: np.ndarray) -> Batch:
        """The episodes with these numbers, as a batch."""
        places = episodes_B if self.count is None else episodes_B % self.count
        blocks = [self._block(seed, int(block)) for block in np.unique(places // BLOCK)]
        where = np.unique(places // BLOCK, return_inverse=True)[1] * BLOCK + places % BLOCK
        inputs, targets = (int64(np.concatenate(part)[where]) for part in zip(*blocks, strict=True))
        return Batch(inputs, targets, asked_in(targets))

    def _drawn(self, seed: int, block: int) -> tuple[np.ndarray, np.ndarray]:
        """BLOCK episodes of this split: inputs and targets, each (BLOCK, T) int32."""
        low, high = self.within
        found: list[np.ndarray] = []
        for attempt in range(TRIES):
            drawn = self.task.draw(generator(seed, self.stream, f"{block}/{attempt}"), BLOCK)
            both_N2T = np.stack(drawn, 1).astype("<i4")
            place_N = np.array([place_of(episode.tobytes()) for episode in both_N2T])
            found.append(both_N2T[(low <= place_N) & (place_N < high)])
            if sum(map(len, found)) >= BLOCK:
                rows_N2T = np.concatenate(found)[:BLOCK]
                return rows_N2T[:, 0], rows_N2T[:, 1]
        raise ConfigError(
            "corpus.splits: there are too few different episodes for a share of them; take a larger"
            " corpus.vocabulary or corpus.length"
        )
