"""Designs: what a study runs, as pure functions of the rows so far, so that it resumes from any state."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum, auto
from typing import Protocol

from ablate.compose.variants import Overrides
from ablate.store.columns import Row
from ablate.store.record import Choice, Role

Rows = Mapping[Overrides, Row]


class Absent(StrEnum):
    """The status of a run that has no row in the store."""

    LEFT_OUT = "left out"  # impossible, or excluded by a condition
    MISSING = auto()  # it could not begin


class Design(Protocol):
    """A study of one kind, with the levels of one command.

    levels: override key -> values, in the syntax of overrides, for all keys that were given.
    needs_test_split: whether it reports on the test split.
    """

    @property
    def levels(self) -> Mapping[str, Sequence[str]]: ...
    @property
    def needs_test_split(self) -> bool: ...

    def propose(self, rows: Rows) -> list[Overrides]:
        """The runs to train next; none when the study is complete."""
        ...

    def roles(self, rows: Rows, ids: Mapping[Overrides, str]) -> tuple[dict[str, Role], dict[str, Choice]]:
        """The roles of the runs, by run id, and the choice for each arm. ids: the run ids, by overrides."""
        ...

    def closing(self, rows: Rows) -> list[str]:
        """Lines to print at the end."""
        ...

    def forecast(self) -> list[str]:
        """Lines for a dry run about what will follow after the first runs."""
        ...


def combinations(levels: Mapping[str, Sequence[str]], arms: Iterable[Overrides] = ((),)) -> list[Overrides]:
    """Each arm with every combination of the levels, the last key changing fastest."""
    return [
        (*arm, *(f"{key}={value}" for key, value in zip(levels, values, strict=True)))
        for arm in arms
        for values in itertools.product(*levels.values())
    ]
