"""The runs that a command still has to train, and which of them to try next: one, or several as one."""

import math
import os
import random
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from ablate.compute import device
from ablate.execution import grouping
from ablate.execution.run import Run
from ablate.store.store import Store

LOOK_EVERY_S = 0.5  # time between looks at the store
AGAIN_S = 1.0  # time before trying again a run that another process is working on
CHANCE = random.SystemRandom()  # not the caller's


def processes(runs: Collection[Run], members: int | None, threads: int) -> int:
    """How many processes train these runs at once, each with so many threads. members: as in Queue."""
    alone = all(grouping.most_as_one(run, members) == 1 for run in runs)
    return device.workers({run.device for run in runs}, threads, alone=alone)


def place_in_array() -> float:
    """The place of this process in a job array of SLURM, from 0 to below 1; elsewhere a random one."""
    first, last, task = (os.environ.get(f"SLURM_ARRAY_TASK_{name}", "") for name in ("MIN", "MAX", "ID"))
    if not (first.isdecimal() and last.isdecimal() and task.isdecimal()):
        return CHANCE.random()
    return (int(task) - int(first)) / (int(last) - int(first) + 1)


class Queue:
    """A queue of runs. Of commands that work on the same list, each begins at a different place, and jumps to
    another when it meets another command. Runs that another process has finished are passed over; those that
    it is working on are tried again last: by then they are finished, or it is gone.

    Runs of equal kinds wait together, and are given as one: at most `members` of them; None for as many as a
    GPU takes, whose runs are divided among `apart` processes, and one elsewhere.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        store: Store,
        made: Callable[[Run], object],
        *,
        start: float | None = None,
        members: int | None = 1,
        apart: int = 1,
    ) -> None:
        """made: called with each run that another process has finished meanwhile. start: where to begin, as a
        share of the list; by default that of this task of an array, or at random, so that commands that begin
        at one moment are not at the same runs."""
        self._store, self._made, self._members, self._apart = store, made, members, apart
        self._later: list[tuple[float, Run]] = []  # (time to try again, run)
        self._fit: dict[str, int] = {}  # by kind, of those of which fewer fit than are asked for
        self._looked = -math.inf
        self._before = store.finished()  # to be trained again, or damaged: `execute` decides
        self._finished: set[str] = set()
        interrupted, start = store.interrupted(), place_in_array() if start is None else start

        def first(run: Run) -> tuple[bool, int]:
            """Interrupted runs come before all others, then the costliest, so that no long run is left for
            the end."""
            return run.name in interrupted, math.frexp(run.cost)[1]

        alike = self._alike(runs, first)
        self._waiting = sorted(alike, key=lambda alike: (*first(alike[0]), len(alike)), reverse=True)
        for alike in self._waiting:
            self._rotate(alike, start)
        if any(self._most(alike[0]) > 1 for alike in self._waiting):  # else they would share each group
            at = int(start * len(self._waiting))
            self._waiting = [*self._waiting[at:], *self._waiting[:at]]

    def __bool__(self) -> bool:
        return self.has_free or bool(self._later)

    @property
    def has_free(self) -> bool:
        """Whether there are runs that nobody was at so far."""
        return any(self._waiting)

    @property
    def groups(self) -> int:
        """How often `next` will give runs that nobody was at so far."""
        return sum(map(self._groups, filter(None, self._waiting)))

    def next(self) -> list[Run]:
        """The runs to try now, as one; none if there are none at the moment, or none left."""
        if (now := time.monotonic()) - self._looked >= LOOK_EVERY_S:
            self._finished, self._looked = self._store.finished() - self._before, now
        if not self.has_free:
            self._waiting = self._alike(run for when, run in self._later if when <= now)
            self._later = [(when, run) for when, run in self._later if when > now]
        return next(filter(None, map(self._first_of, self._waiting)), [])

    def extend(self, runs: Sequence[Run]) -> None:
        """Append runs, which come in their order after all others."""
        self._waiting += self._alike(runs)

    def later(self, run: Run) -> None:
        """Postpone a run that another process is working on, and continue at another place of the list."""
        self._later.append((time.monotonic() + AGAIN_S, run))
        if alike := next(filter(None, self._waiting), None):
            self._rotate(alike, CHANCE.random())

    def halve(self, runs: Sequence[Run]) -> None:
        """Runs that were tried as one are to be tried next, each half of them as one."""
        middle = (len(runs) + 1) // 2
        self._waiting[:0] = [deque(runs[:middle]), deque(runs[middle:])]

    def put_back(self, runs: Sequence[Run], *, fit: int) -> None:
        """Runs are to be tried next, as no more of their kind than `fit` can be trained as one."""
        self._fit[grouping.kind(runs[0])] = fit
        self._waiting.insert(0, deque(runs))

    def _alike(self, runs: Iterable[Run], key: Callable[[Run], Any] = lambda _: None) -> list[deque[Run]]:
        """Runs of equal kinds and keys, in the order of the first of each."""
        alike: dict[Any, list[Run]] = {}
        for run in runs:
            kind = grouping.kind(run) if self._most(run) > 1 else ""
            alike.setdefault((kind, key(run)), []).append(run)
        shares = self._apart if self._members is None else 1
        return [
            deque(same[at : at + size])
            for (kind, _), same in alike.items()
            if (size := math.ceil(len(same) / shares) if kind else len(same))
            for at in range(0, len(same), size)
        ]

    def _first_of(self, alike: deque[Run]) -> list[Run]:
        """The first of these that nobody has made, as many as can be trained as one."""
        group: list[Run] = []
        while alike and (not group or len(group) < self._most(group[0])):
            run = alike.popleft()
            if run.name in self._finished:
                self._made(run)
            else:
                group.append(run)
        return group

    def _most(self, run: Run) -> int:
        most = grouping.most_as_one(run, self._members)
        return min(most, self._fit.get(grouping.kind(run), most)) if self._fit and most > 1 else most

    def _groups(self, alike: deque[Run]) -> int:
        return math.ceil(len(alike) / self._most(alike[0]))

    def _rotate(self, alike: deque[Run], share: float) -> None:
        """Begin at this share of the groups into which these are divided."""
        alike.rotate(-self._most(alike[0]) * int(share * self._groups(alike)))
