"""What a study runs, as pure functions of the rows so far: so it resumes from whatever there is."""

import itertools
from collections.abc import Mapping, Sequence
from enum import StrEnum, auto
from typing import Protocol

from ablate.compose.variants import Overrides
from ablate.store.columns import Row
from ablate.store.record import Choice, Role

Rows = Mapping[Overrides, Row]


class Absent(StrEnum):
    """The status of a run that has no row in the store."""

    LEFT_OUT = "left out"  # it can't or shall not be made
    MISSING = auto()  # it could not begin


class Design(Protocol):
    """A study of one kind, with the levels of one command.

    levels: override key -> values, as an override writes them, of all keys that were given.
    needs_test_split: whether it reports on the test split.
    """

    @property
    def levels(self) -> Mapping[str, Sequence[str]]: ...
    @property
    def needs_test_split(self) -> bool: ...

    def propose(self, rows: Rows) -> list[Overrides]:
        """What to run next; nothing once the study is over."""
        ...

    def roles(self, rows: Rows, ids: Mapping[Overrides, str]) -> tuple[dict[str, Role], dict[str, Choice]]:
        """What its runs are to the study, by run id, and what it chose for each arm. ids: run ids."""
        ...

    def closing(self, rows: Rows) -> list[str]:
        """Lines for the end."""
        ...

    def forecast(self) -> list[str]:
        """Lines on what follows from the first runs, for one who asks before they are made."""
        ...


def combinations(levels: Mapping[str, Sequence[str]]) -> list[Overrides]:
    """Every combination of the levels, the last key's changing fastest."""
    return [
        tuple(f"{key}={value}" for key, value in zip(levels, values, strict=True))
        for values in itertools.product(*levels.values())
    ]
