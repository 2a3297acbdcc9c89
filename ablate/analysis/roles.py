"""Pair the variants of a tuned study by the roles of its runs (columns role and tuned)."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ablate.analysis.contrasts import Pair, column_in, pair_up, primary_pairs
from ablate.analysis.select import as_texts
from ablate.analysis.variants import Variants, is_own_value

OCTAVES = ("octave_down", "octave_up")
AT_BASELINE, OCTAVE_AWAY = "at the baseline's value", "an octave away"


def having(variants: Variants, *roles: str) -> list[int]:
    """The variants that have one of the roles."""
    found = [set(text.split()) & set(roles) for text in variants.table["role"]]
    return [variant for variant, those in enumerate(found) if those]


def tuned_columns(variants: Variants) -> list[str]:
    """The columns of the tuned keys; empty if no variant is of a tuned study."""
    return sorted({column_in(variants, key) for key in variants.table["tuned"] if key})


def tuned_pairs(
    variants: Variants,
    entries: Sequence[Mapping[str, Any]],
    baseline: Mapping[str, Any] | None,
    *,
    at_baseline: bool,
) -> tuple[dict[str, list[Pair]], list[str]]:
    """The pairs of each family of a tuned study, and a line for each primary entry without pairs.
    at_baseline: whether arms were to report at their baselines' values.

    primary, and exploratory for contrasts that no entry names: each arm at its own value against its baseline
    at its own value. AT_BASELINE: both at the baseline's value. OCTAVE_AWAY: each arm at half and at twice
    its own value against itself at its own value. Raises ConfigError.
    """
    own = having(variants, "tuned")
    free = tuned_columns(variants)
    primary, lines = primary_pairs(variants, entries, own, free=free)
    others = pair_up(variants, baseline, own, free=free) if baseline else []
    references = [*entries] or ([{"baseline": baseline}] if baseline else [])
    there, missing = _at_baseline(variants, references, own)
    if entries and at_baseline:
        lines += [f"{line} {AT_BASELINE}" for line in missing]
    rest = [column for column in variants.columns if column not in free]
    arms = [tuple(row) for row in variants.table[rest].itertuples(index=False)]
    mine = {arms[variant]: variant for variant in own}
    return {
        "primary": primary,
        "exploratory": [pair for pair in others if pair not in primary],
        AT_BASELINE: there,
        OCTAVE_AWAY: [
            (variant, mine[arms[variant]]) for variant in having(variants, *OCTAVES) if arms[variant] in mine
        ],
    }, lines


def _at_baseline(
    variants: Variants, entries: Sequence[Mapping[str, Any]], own: Sequence[int]
) -> tuple[list[Pair], list[str]]:
    """As primary_pairs, but of arms at the value of their baseline.

    The baseline of one entry may be an arm of another, and so also have runs at values other than its own.
    """
    pairs: list[Pair] = []
    lines = []
    theirs = having(variants, "baseline_rate")
    for entry in entries:
        found, missing = primary_pairs(variants, [entry], sorted({*own, *theirs}))
        pairs += [pair for pair in found if pair[0] in theirs and pair[1] in own and pair not in pairs]
        lines += missing
    return pairs, lines


def at_own_value(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of a tuned study that are at their own arm's value; rows of any other study unchanged."""
    if "role" not in rows or rows["role"].isna().all():
        return rows
    return rows[[is_own_value(role) for role in as_texts(rows["role"])]]


def without_values(rows: pd.DataFrame) -> pd.DataFrame:
    """As at_own_value, but with the value left empty, so that it does not define variants."""
    rows = at_own_value(rows)
    keys = rows["tuned"].dropna().unique() if "tuned" in rows else []
    columns = {str(key).rpartition(".")[2] for key in keys if key} & {*rows.columns}
    return rows.assign(**{c: rows[c].astype(object).where(rows["tuned"].isna(), None) for c in columns})
