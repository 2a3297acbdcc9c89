"""Which run to try next, where any number of commands may be at the same list. Loads no torch.

Each begins at another place of the list, and goes on from another place where it meets another command. It
passes over what a look at the store shows finished, and comes back last to what another is at: by then it is
finished, or its process is gone.
"""

import math
import secrets
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ablate.store.run_files import Stamp
from ablate.store.store import Store

LOOK_EVERY_S = 0.5  # at the store
AGAIN_S = 1.0  # before asking again for a run that another process is at


@dataclass(frozen=True)
class Item:
    """A run to make. cost: what it takes, in any unit; known: of the result that it is to replace, empty
    where there was none."""

    name: str
    cost: float
    known: Stamp


class Queue:
    """Runs by their index in `items`."""

    def __init__(self, items: Sequence[Item], store: Store, start: float | None = None) -> None:
        """start: at which share of the list to begin; at random if it is not given."""
        self.items = items
        self.store = store
        self.made: list[int] = []  # by others, since the last look at it
        self._waiting = _alike(items, store.interrupted())
        for alike in self._waiting:
            alike.rotate(-(secrets.randbelow(len(alike)) if start is None else int(start * len(alike))))
        self._later = deque[tuple[float, int]]()  # when to ask again
        self._looked = -math.inf
        self._before = store.finished()  # to be made anew, or damaged: the run itself can tell
        self._finished: set[str] = set()

    def __bool__(self) -> bool:
        return any(self._waiting) or bool(self._later)

    def next(self) -> int | None:
        """The run to try now; None if there is none at this moment, or none any more."""
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
        """Another process is at it. It goes on from there, so this one goes on from another place."""
        self._later.append((time.monotonic() + AGAIN_S, index))
        if alike := next(filter(None, self._waiting), None):
            alike.rotate(secrets.randbelow(len(alike)))

    def _look(self) -> None:
        if time.monotonic() - self._looked >= LOOK_EVERY_S:
            self._finished = self.store.finished() - self._before
            self._looked = time.monotonic()

    def _is_made(self, index: int) -> bool:
        """By another, since this command began."""
        if self.items[index].name not in self._finished:
            return False
        self.made.append(index)
        return True


def _alike(items: Sequence[Item], interrupted: set[str]) -> list[deque[int]]:
    """Those that cost about the same, the dearest first, so that none of them is left alone at the end; what
    was cut off stands before all others."""
    alike: dict[tuple[bool, int], deque[int]] = {}
    for index, item in enumerate(items):
        key = item.name in interrupted, math.frexp(item.cost)[1]
        alike.setdefault(key, deque()).append(index)
    return [alike[key] for key in sorted(alike, reverse=True)]
