"""The runs that a command still has to train, and which of them to try next: one, or several as one."""

import math
import os
import random
import time
from collections import deque
from collections.abc import Iterator, Sequence, Set

from ablate.execution import grouping
from ablate.execution.run import Run

AGAIN_S = 1.0  # time before trying again a run that another process is working on
CHANCE = random.SystemRandom()  # not the caller's


def place_in_array() -> float:
    """The place of this process in a job array of SLURM, from 0 to below 1; elsewhere a random one."""
    first, last, task = (os.environ.get(f"SLURM_ARRAY_TASK_{name}", "") for name in ("MIN", "MAX", "ID"))
    if not (first.isdecimal() and last.isdecimal() and task.isdecimal()):
        return CHANCE.random()
    return (int(task) - int(first)) / (int(last) - int(first) + 1)


class Queue:
    """A queue of runs, in groups of those that are trained as one: of equal kinds, at most `members` of them;
    None for many on a GPU, whose runs are divided among `apart` processes, and one elsewhere.

    Interrupted runs come before all others, which keep their order; but of commands that work on the same
    list each begins at another place. Runs that another process is working on are tried again last: by then
    they are finished, or it is gone.
    """

    def __init__(
        self,
        runs: Sequence[Run],
        interrupted: Set[str],
        *,
        start: float | None = None,
        members: int | None = 1,
        apart: int = 1,
    ) -> None:
        """interrupted: names of runs. start: where to begin, as a share of the list; by default that of this
        task of an array, or at random, so that commands that begin at one moment are not at the same runs."""
        self._members, self._apart = members, apart
        self._later: list[tuple[float, Run]] = []  # (time to try again, run)
        groups = [*self._alike(runs)]
        first = int((place_in_array() if start is None else start) * len(groups))
        groups = groups[first:] + groups[:first]
        self._groups = deque(
            sorted(groups, key=lambda group: interrupted.isdisjoint(run.name for run in group))
        )

    def __bool__(self) -> bool:
        return bool(self._groups or self._later)

    @property
    def groups(self) -> int:
        """How often `next` will give runs that nobody was at so far."""
        return len(self._groups)

    def next(self) -> list[Run]:
        """The runs to try now, as one; none if there are none at the moment, or none left."""
        now = time.monotonic()
        if not self._groups:
            self.extend([run for when, run in self._later if when <= now])
            self._later = [(when, run) for when, run in self._later if when > now]
        return self._groups.popleft() if self._groups else []

    def extend(self, runs: Sequence[Run]) -> None:
        """Append runs, which come in their order after all others."""
        self._groups += self._alike(runs)

    def later(self, run: Run) -> None:
        """Postpone a run that another process is working on."""
        self._later.append((time.monotonic() + AGAIN_S, run))

    def put_back(self, *groups: Sequence[Run]) -> None:
        """These are to be tried next, each as one: halves of what failed as one, or what did not fit."""
        self._groups.extendleft(map(list, filter(None, reversed(groups))))

    def _alike(self, runs: Sequence[Run]) -> Iterator[list[Run]]:
        """The runs in groups of equal kinds, in the order of the first of each."""
        alike: dict[str, list[Run]] = {}
        for run in runs:
            kind = grouping.kind(run) if grouping.most_as_one(run, self._members) > 1 else run.name
            alike.setdefault(kind, []).append(run)
        for same in alike.values():
            shares = self._apart if self._members is None else 1
            size = min(grouping.most_as_one(same[0], self._members), math.ceil(len(same) / shares))
            yield from (same[at : at + size] for at in range(0, len(same), size))
