"""The helpers that were started for a study, in its jobs.json, for any command to attach to and to end.

A helper is a process on another machine that trains runs of the study. An array is what was started at once.
Loads no torch.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.clusters import JobStatus, State
from ablate.files.atomic import Content, Versions


@dataclass(frozen=True)
class Array:
    """Helpers that were started at once. engine: the name of their cluster. name: for it to find them; phase:
    the runs that they work on. seen: the helpers, as last reported. job: what the cluster calls them, empty
    until it has answered."""

    name: str
    engine: str
    phase: str
    seen: list[JobStatus]
    job: str = ""

    @property
    def has_ended(self) -> bool:
        return all(helper.state == State.ENDED for helper in self.seen)

    @property
    def at_work(self) -> int:
        """How many of its helpers run, or will as soon as there is room. One that has been on a node and is
        in the queue again may be held there for minutes, as SLURM does."""
        return sum(
            helper.state == State.RUNNING or (helper.state == State.QUEUED and not helper.node)
            for helper in self.seen
        )


def arrays_of(study: Path) -> Versions[list[Array]]:
    """The arrays of a study, to read and to change."""
    return Versions(study / "jobs.json", study / "jobs" / ".versions", _arrays, _plain, [])


def new_array(name: str, engine: str, phase: str, count: int) -> Array:
    queued = [JobStatus(number, State.QUEUED, "", "") for number in range(count)]
    return Array(name, engine, phase, queued)


def with_statuses(array: Array, statuses: Mapping[str, Sequence[JobStatus]]) -> Array:
    """The array with its helpers as their cluster sees them, and the node that they were last on; one that it
    no longer knows has ended."""
    now = {helper.number: helper for helper in statuses.get(array.name, ())}
    seen = []
    for before in array.seen:
        helper = now.get(before.number) or dataclasses.replace(before, state=State.ENDED)
        seen.append(dataclasses.replace(helper, node=helper.node or before.node))
    return dataclasses.replace(array, seen=seen)


def _plain(arrays: list[Array]) -> Content:
    return {"arrays": [dataclasses.asdict(array) for array in arrays]}


def _arrays(content: Content) -> list[Array]:
    def status(plain: dict[str, Any]) -> JobStatus:
        return JobStatus(**{**plain, "state": State(plain["state"])})

    return [Array(**{**array, "seen": [*map(status, array["seen"])]}) for array in content["arrays"]]
