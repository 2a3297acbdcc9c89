"""A grid: every combination of the levels of its factors."""

import itertools
from collections.abc import Mapping, Sequence

from ablate.store.columns import Row

Cell = tuple[str, ...]  # the Hydra overrides of one run, as KEY=VALUE


def cells(levels: Mapping[str, Sequence[str]]) -> list[Cell]:
    """levels: override key -> values, as an override writes them."""
    return [
        tuple(f"{key}={value}" for key, value in zip(levels, values, strict=True))
        for values in itertools.product(*levels.values())
    ]


def propose(grid: Sequence[Cell], rows: Mapping[Cell, Row]) -> list[Cell]:
    """What to run next, from what is known alone: here, whatever has no row yet."""
    return [cell for cell in grid if cell not in rows]
