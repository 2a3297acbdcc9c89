"""The runs that a command still has to train, and which of them to try next: one, or several as one."""

import math
import os
import random
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from ablate.compute import device
from ablate.execution.run import Run
from ablate.store.store import Store

LOOK_EVERY_S = 0.5  # time between looks at the store
AGAIN_S = 1.0  # time before trying again a run that another process is working on
CHANCE = random.SystemRandom()  # not the caller's
MOST = 1024  # runs that are trained as one, however many would fit


def most_as_one(run: Run, members: int | None) -> int:
    """How many runs are trained as one with this one, at most, as far as its config says. members: as in
    Queue."""
    most = members or (MOST if run.device.type == "cuda" else 1)
    if most == 1:
        return 1
    from ablate.execution.grouping import why_alone_by_config  # which runs alone don't need

    return 1 if why_alone_by_config(run) else most


def processes(runs: Collection[Run], members: int | None, threads: int) -> int:
    """How many processes train these runs at once, each with so many threads. members: as in Queue."""
    alone = all(most_as_one(run, members) == 1 for run in runs)
    return device.workers({run.device for run in runs}, threads, alone=alone)


def place_in_array() -> float:
    """The place of this process in a job array of SLURM, from 0 to below 1; elsewhere a random one."""
    first, last, task = (os.environ.get(f"SLURM_ARRAY_TASK_{name}", "") for name in ("MIN", "MAX", "ID"))
    if not (first.isdecimal() and last.isdecimal() and task.isdecimal()):
        return CHANCE.random()
    return (int(task) - int(first)) / (int(last) - int(first) + 1)


class Queue:
    """A queue of runs, by their index.

    Runs of equal kinds wait together, and are given as one: at most `members` of them, None for as many as
    fit a GPU, and one elsewhere; never more than a worker has said that fit.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        store: Store,
        made: Callable[[Run], object],
        start: float | None = None,
        members: int | None = 1,
    ) -> None:
        """made: called with each run that another process has finished meanwhile. start: where to begin, as a
        share of the list; by default that of this task of an array, or at random, so that commands that begin
        at one moment are not at the same runs."""
        self.runs: list[Run] = []
        self.store = store
        self._made, self._members = made, members
        self._kinds: list[str] = []  # of each run; empty for one that is trained alone
        self._fit: dict[str, int] = {}  # how many runs of a kind can be trained as one
        self._later = deque[tuple[float, int]]()  # (time to try again, index)
        self._looked = -math.inf
        self._before = store.finished()  # to be trained again, or damaged: `execute` decides
        self._finished: set[str] = set()
        self._waiting = self._alike(runs, store.interrupted())
        start = place_in_array() if start is None else start
        for alike in self._waiting:
            self._rotate(alike, start)
        if any(self._kinds):  # those that begin at one moment would share each group
            first = int(start * len(self._waiting))
            self._waiting = [*self._waiting[first:], *self._waiting[:first]]

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

    def next(self) -> list[int]:
        """The runs to try now, as one; none if there are none at the moment, or none left."""
        if not self:
            return []
        self._look()
        for alike in self._waiting:
            if group := self._first_of(alike):
                return group
        now = time.monotonic()
        while due := [index for when, index in self._later if when <= now]:
            alike = deque(index for index in due if self._kinds[index] == self._kinds[due[0]])
            tried = {*alike}
            group = self._first_of(alike)
            tried -= {*alike}
            self._later = deque(one for one in self._later if one[1] not in tried)
            if group:
                return group
        return []

    def extend(self, runs: Sequence[Run]) -> None:
        """Append runs, which come in their order after all others."""
        self._waiting += self._together(self._add(runs), lambda index: self._kinds[index])

    def later(self, index: int) -> None:
        """Postpone a run that another process is working on, and continue at another place of the list."""
        self._later.append((time.monotonic() + AGAIN_S, index))
        if alike := next(filter(None, self._waiting), None):
            self._rotate(alike, CHANCE.random())

    def put_back(self, index: int, fit: int) -> None:
        """A run is to be tried next, as no more of its kind than `fit` can be trained as one."""
        kind = self._kinds[index]
        self._fit[kind] = fit
        first = next(filter(None, self._waiting), None)
        if first and self._kinds[first[0]] == kind:
            first.append(index)
        else:
            self._waiting.insert(0, deque([index]))

    def halve(self, indices: Sequence[int]) -> None:
        """Runs that were tried as one are to be tried next, each half of them as one."""
        middle = (len(indices) + 1) // 2
        self._waiting[:0] = [deque(indices[:middle]), deque(indices[middle:])]

    def _add(self, runs: Sequence[Run]) -> range:
        begin = len(self.runs)
        self.runs += runs
        self._kinds += [self._kind(run) for run in runs]
        return range(begin, len(self.runs))

    def _kind(self, run: Run) -> str:
        if most_as_one(run, self._members) == 1:
            return ""
        from ablate.execution.grouping import kind

        return kind(run)

    def _alike(self, runs: Sequence[Run], interrupted: set[str]) -> list[deque[int]]:
        """Runs of equal kinds, or of similar cost if they are trained alone: the costliest first, so that no
        long run is left for the end, of those the largest groups; interrupted runs before all others."""

        def key(index: int) -> tuple[bool, int, str]:
            run = self.runs[index]
            return run.name in interrupted, math.frexp(run.cost)[1], self._kinds[index]

        alike = self._together(self._add(runs), key)
        return sorted(alike, key=lambda alike: (*key(alike[0])[:2], len(alike)), reverse=True)

    def _together(self, indices: Iterable[int], key: Callable[[int], Any]) -> list[deque[int]]:
        alike: dict[Any, deque[int]] = {}
        for index in indices:
            alike.setdefault(key(index), deque()).append(index)
        return [*alike.values()]

    def _first_of(self, alike: deque[int]) -> list[int]:
        """The first of these that nobody has made, as many as can be trained as one."""
        group: list[int] = []
        while alike and (not group or len(group) < self._most(group[0])):
            if not self._is_made(index := alike.popleft()):
                group.append(index)
        return group

    def _most(self, index: int) -> int:
        """How many runs of the kind of this one are tried as one, at most."""
        return min(most_as_one(self.runs[index], self._members), self._fit.get(self._kinds[index], MOST))

    def _groups(self, alike: deque[int]) -> int:
        return math.ceil(len(alike) / self._most(alike[0]))

    def _rotate(self, alike: deque[int], share: float) -> None:
        """Begin at this share of the groups into which these are divided."""
        alike.rotate(-self._most(alike[0]) * int(share * self._groups(alike)))

    def _look(self) -> None:
        if time.monotonic() - self._looked >= LOOK_EVERY_S:
            self._finished = self.store.finished() - self._before
            self._looked = time.monotonic()

    def _is_made(self, index: int) -> bool:
        """Whether another process has finished the run since this command began."""
        run = self.runs[index]
        if is_made := run.name in self._finished:
            self._made(run)
        return is_made
