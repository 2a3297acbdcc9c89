"""What to say where no variant has a baseline."""

import itertools
import shlex
from collections.abc import Mapping
from typing import Any

from ablate.analysis.contrasts import MATCH, column_in, followers, pair_up
from ablate.analysis.controls import YARDSTICK
from ablate.analysis.roles import having, tuned_columns
from ablate.analysis.select import as_text
from ablate.analysis.variants import Variants
from ablate.config.schema import STANDARD_FUSION, STANDARD_SCORES

# What configs say where nothing is changed.
USUAL = {STANDARD_FUSION, STANDARD_SCORES, "auto", "none", "true"}


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
    rows = table[columns].to_dict("records")
    learning = [row for row in rows if row.get("scores") != YARDSTICK]

    def rank(values: Mapping[str, str]) -> tuple[int, ...]:
        usual = sum(value in USUAL for value in values.values())
        common = sum((table[column] == value).sum() for column, value in values.items())
        return len(values), -usual, -common

    found = {}
    for base, other in itertools.permutations(learning if len(learning) > 1 else rows, 2):
        values = {column: base[column] for column in columns if base[column] != other[column]}
        follow = (followers(variants, values) | {*MATCH}) - given.keys()
        values = {column: value for column, value in values.items() if column not in follow} or values
        if given.items() <= values.items() and all(value and "," not in value for value in values.values()):
            found[_spelled(values)] = values
    pairing = (one for one in sorted(found.values(), key=rank) if pair_up(variants, one, own, free=free))
    return next((shlex.quote(_spelled(one)) for one in pairing), "")


def _spelled(values: Mapping[str, str]) -> str:
    """As parse_baseline reads it."""
    return ",".join(f"{key}={value}" for key, value in values.items())
