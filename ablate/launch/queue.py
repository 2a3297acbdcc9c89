"""Choose which run to try next, when several commands may work on the same list. Loads no torch.

Each command begins at a different place of the list, and jumps to another when it meets another command. It
skips runs that are finished in the store. Runs that another process is working on it tries again last: by
then they are finished, or their process is gone.
"""

import math
import secrets
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ablate.store.run_files import Stamp
from ablate.store.store import Store

LOOK_EVERY_S = 0.5  # time between looks at the store
AGAIN_S = 1.0  # time before trying again a run that another process is working on


@dataclass(frozen=True)
class Item:
    """A run to train. cost: its expected time, in any unit. known: the stamp of the result to replace, empty
    if there was none."""

    name: str
    cost: float
    known: Stamp


class Queue:
    """A queue of runs, by their index in `items`."""

    def __init__(self, items: Sequence[Item], store: Store, start: float | None = None) -> None:
        """start: where to begin, as a share of the list; at random by default."""
        self.items = items
        self.store = store
        self.made: list[int] = []  # runs that others finished; the caller empties it
        self._waiting = _alike(items, store.interrupted())
        for alike in self._waiting:
            alike.rotate(-(secrets.randbelow(len(alike)) if start is None else int(start * len(alike))))
        self._later = deque[tuple[float, int]]()  # (time to try again, index)
        self._looked = -math.inf
        self._before = store.finished()  # to be trained again, or damaged: `execute` decides
        self._finished: set[str] = set()

    def __bool__(self) -> bool:
        return self.has_free or bool(self._later)

    @property
    def has_free(self) -> bool:
        """Whether there are runs that nobody was at so far."""
        return any(self._waiting)

    def next(self) -> int | None:
        """The run to try now; None if there is none at the moment, or none left."""
        if not self:
            return None
        self._look()
        for alike in self._waiting:
            while alike:
                if not self._is_made(index := alike.popleft()):
                    return index
        for _ in range(len(self._later)):
            when, index = self._later.popleft()
            if self._is_made(index):
                continue
            if when <= time.monotonic():
                return index
            self._later.append((when, index))
        return None

    def later(self, index: int) -> None:
        """Postpone a run that another process is working on, and continue at another place of the list."""
        self._later.append((time.monotonic() + AGAIN_S, index))
        if alike := next(filter(None, self._waiting), None):
            alike.rotate(secrets.randbelow(len(alike)))

    def _look(self) -> None:
        if time.monotonic() - self._looked >= LOOK_EVERY_S:
            self._finished = self.store.finished() - self._before
            self._looked = time.monotonic()

    def _is_made(self, index: int) -> bool:
        """Whether another process has finished the run since this command began."""
        if self.items[index].name not in self._finished:
            return False
        self.made.append(index)
        return True


def _alike(items: Sequence[Item], interrupted: set[str]) -> list[deque[int]]:
    """Groups of runs of similar cost, the costliest first, so that no long run is left for the end;
    interrupted runs come before all others."""
    alike: dict[tuple[bool, int], deque[int]] = {}
    for index, item in enumerate(items):
        key = item.name in interrupted, math.frexp(item.cost)[1]
        alike.setdefault(key, deque()).append(index)
    return [alike[key] for key in sorted(alike, reverse=True)]
