"""Which run to try next, where any number of commands may be at the same list. Loads no torch.

Each begins at another place of the list, passes over what a look at the store shows finished, and comes back
last to what another is at: by then it is finished, or its process is gone.
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
        interrupted = store.interrupted()
        order = _turned(items, secrets.randbelow(1000) / 1000 if start is None else start)
        self._waiting = deque(sorted(order, key=lambda index: items[index].name not in interrupted))
        self._later = deque[tuple[float, int]]()  # when to ask again
        self._looked = -math.inf
        self._before = store.finished()  # to be made anew, or damaged: the run itself can tell
        self._finished: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._waiting or self._later)

    def next(self) -> int | None:
        """The run to try now; None if there is none at this moment, or none any more."""
        if not self:
            return None
        self._look()
        while self._waiting:
            if not self._is_made(index := self._waiting.popleft()):
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
        """Another process is at it."""
        self._later.append((time.monotonic() + AGAIN_S, index))

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


def _turned(items: Sequence[Item], start: float) -> list[int]:
    """The dearest first, so that none of them is left alone at the end; among those that cost about the same,
    from `start` on."""
    scale: dict[int, list[int]] = {}
    for index, item in enumerate(items):
        scale.setdefault(math.frexp(item.cost)[1], []).append(index)
    order: list[int] = []
    for _, alike in sorted(scale.items(), reverse=True):
        at = int(start * len(alike))
        order += alike[at:] + alike[:at]
    return order
