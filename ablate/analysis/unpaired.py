"""What to say where no variant has a baseline."""

import itertools
import shlex
from collections.abc import Mapping
from typing import Any

from ablate.analysis.contrasts import MATCH, column_in, pair_up
from ablate.analysis.controls import YARDSTICK
from ablate.analysis.roles import having, tuned_columns
from ablate.analysis.select import as_text
from ablate.analysis.variants import WIDTHS, Variants
from ablate.config.schema import STANDARD_FUSION, STANDARD_SCORES

USUAL = {
    STANDARD_FUSION,
    STANDARD_SCORES,
    "auto",
    "none",
    "true",
}  # what configs say where nothing is changed


def no_verdicts(variants: Variants, baseline: Mapping[str, Any] | None) -> str:
    """One line: why nothing is compared with this baseline, and one with which something would be."""
    given = {column_in(variants, key): as_text(value) for key, value in (baseline or {}).items()}
    why = (
        f"no variant differs from one with {_spelled(given)} in that alone"
        if given
        else f"there is no fusion to compare with {STANDARD_FUSION}"
    )
    another = _another(variants, given) or _another(variants, {})
    return f"no verdicts: {why}" + (f"; --baseline {another} names another" if another else "")


def _another(variants: Variants, given: Mapping[str, str]) -> str:
    """K=V[,K=V], with which there are pairs: all in which two variants differ, of the two that differ in the
    least; empty if there are none.

    The baseline of the two has the values of `given`; without any, what is usual or what more variants have.
    """
    own, free = having(variants, "tuned") or [*range(len(variants.table))], tuned_columns(variants)
    table = variants.table.loc[own]
    columns = [column for column in variants.columns if column not in free and table[column].nunique() > 1]
    counts = {column: table[column].value_counts() for column in columns}
    rows = table[columns].to_dict("records")
    learning = [row for row in rows if row.get("scores") != YARDSTICK]
    found: dict[tuple[tuple[str, str], ...], tuple[int, ...]] = {}
    for base, other in itertools.permutations(learning if len(learning) > 1 else rows, 2):
        apart = {column: base[column] for column in columns if base[column] != other[column]}
        follow = {*WIDTHS, *MATCH, *(one for kind in apart for one in variants.options.get(kind, ()))} - {
            *given
        }
        apart = {c: value for c, value in apart.items() if c not in follow} or apart
        if given.items() <= apart.items() and all(value and "," not in value for value in apart.values()):
            usual = sum(value in USUAL for value in apart.values())
            common = sum(counts[column][value] for column, value in apart.items())
            found[tuple(apart.items())] = (len(apart), -usual, -common)
    best_first = map(dict, sorted(found, key=lambda one: found[one]))
    return next(
        (shlex.quote(_spelled(one)) for one in best_first if pair_up(variants, one, own, free=free)), ""
    )


def _spelled(values: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in values.items())
