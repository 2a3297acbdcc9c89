"""The kind `grid`: every combination of the levels of its factors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ablate.store.record import Choice, Role
from ablate.study.declared import Declared
from ablate.study.design import Overrides, Rows, combinations


@dataclass(frozen=True, kw_only=True)
class Grid(Declared):
    """A study that declares only what every study does."""

    kind: ClassVar[str] = "grid"
    example: ClassVar[str] = "fusion"

    def design(self, levels: Mapping[str, Sequence[str]]) -> "EveryCombination":
        return EveryCombination(levels, [*self.named_arms])


@dataclass(frozen=True)
class EveryCombination:
    """The design of a grid, and of any sweep."""

    levels: Mapping[str, Sequence[str]]
    arms: Sequence[Overrides] = ((),)
    needs_test_split = False

    def propose(self, rows: Rows) -> list[Overrides]:
        """The combinations that have no row yet."""
        return [overrides for overrides in combinations(self.levels, self.arms) if overrides not in rows]

    def roles(self, rows: Rows, ids: Mapping[Overrides, str]) -> tuple[dict[str, Role], dict[str, Choice]]:
        return {}, {}

    def closing(self, rows: Rows) -> list[str]:
        return []

    def forecast(self) -> list[str]:
        return []
