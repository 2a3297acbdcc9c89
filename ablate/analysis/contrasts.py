"""Pair variants with their baselines: of a command, and of a study's contrasts."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ablate.analysis.frames import matching
from ablate.analysis.variants import Settings, Variants
from ablate.config.conditions import as_level, column_of, key_in, spelled
from ablate.config.contrast import Contrast
from ablate.config.rules import ConfigError, did_you_mean
from ablate.config.schema import STANDARD_FUSION, STANDARD_SCORES, standard_hidden
from ablate.phrases import option
from ablate.store.columns import WIDTHS, column_named

EQUAL = "equal by construction"  # the verdict on two variants that are the same function
Pair = tuple[int, int]  # a variant and its baseline, as indices

MATCH = ("match",)
# What configs say where nothing is changed.
USUAL = {STANDARD_FUSION, STANDARD_SCORES, "auto", "none", "true"}
TRIED = 100  # variants at most, two by two, for a baseline to propose


def parse_baseline(text: str) -> dict[str, str]:
    """K=V[,K=V] as a mapping. Raises ConfigError."""
    parts = [part.partition("=") for part in text.split(",")]
    if not all(key.strip() and sign and value.strip() for key, sign, value in parts):
        raise ConfigError(
            f"--baseline {text}: write K=V[,K=V], such as fusion=concat or heads=1,out_proj=true"
        )
    return {key.strip(): value.strip() for key, _, value in parts}


def pair_up(
    variants: Settings,
    baseline: Mapping[str, Any],
    among: Sequence[int] | None = None,
    *,
    free: Sequence[str] = (),
) -> list[Pair]:
    """Each variant with the baseline variant that equals it in all but the keys of `baseline`.

    If none does, columns that follow from those keys (such as value_width from fusion) may differ, as few as
    possible; a tie gives no pair. In a table of another program so do columns of which each level of these
    keys has one value, such as a learning rate for each method. A matched model is compared with its
    reference if no baseline is matched in the same way. among: only these variants. free: further columns
    that may differ, such as a learning rate that each variant has its own value of. Raises ConfigError.
    """
    table = variants.table if among is None else variants.table.iloc[list(among)]
    option = f"--baseline {spelled(baseline)}"
    wanted = {column_of(key, variants.columns, option): as_level(value) for key, value in baseline.items()}
    is_baseline = _meeting(variants, table, {column: [value] for column, value in wanted.items()})
    if not is_baseline.any():
        levels = {column: sorted(table[column].unique()) for column in wanted}
        of_each = "; ".join(f"{column}={', '.join(them)}" for column, them in levels.items())
        near = (
            did_you_mean(*wanted.values(), *levels.values()) if len(wanted) == 1 else f"; choices: {of_each}"
        )
        raise ConfigError(f"{option}: no such variant{near}")
    varying = [column for column in variants.columns if table[column].nunique() > 1 and column not in wanted]
    following = (followers(variants, wanted) | {*free}) - wanted.keys()
    if variants.is_foreign:
        each = table.groupby([*wanted], sort=False)
        following |= {column for column in varying if each[column].nunique().max() == 1}
    fixed = [column for column in varying if column not in following]
    loose = [column for column in varying if column in following]
    place: dict[tuple[str, ...], list[int]] = {}
    keys = list(zip(*(table[column] for column in fixed), strict=True)) if fixed else [()] * len(table)
    unmatched = [tuple("" if c in MATCH else v for c, v in zip(fixed, key, strict=True)) for key in keys]
    rows = list(zip(table.index, keys, unmatched, is_baseline, strict=True))
    references: dict[tuple[str, ...], list[int]] = {}
    for variant, key, rest, base in rows:
        if base:
            place.setdefault(key, []).append(variant)
            if _is_reference(variants.table.loc[variant]):
                references.setdefault(rest, []).append(variant)
    records = dict(zip(table.index, table[[*loose, "heads"]].to_dict("records"), strict=True))
    pairs = []
    for variant, key, rest, base in rows:
        if not base:
            bases = place.get(key) or references.get(rest, [])
            near = _nearest(records[variant], {b: records[b] for b in bases}, loose)
            pairs += [(variant, b) for b in near]
    return pairs


def followers(variants: Settings, columns: Iterable[str]) -> set[str]:
    """The columns that may change with these if no variant keeps them: widths, options of parts, and what
    these bring."""
    following = {*WIDTHS}
    for column in columns:
        following |= {*column_named(column).brings, *variants.options.get(column, ())}
    return following


def primary_pairs(
    variants: Settings, contrasts: Sequence[Contrast], *, free: Sequence[str] = ()
) -> tuple[list[Pair], list[str]]:
    """The pairs of the contrasts that a study declared in advance, and a line for each without pairs. free:
    as for `pair_up`. Raises ConfigError."""
    pairs: list[Pair] = []
    lines = []
    for contrast in contrasts:
        table = variants.table[_meeting(variants, variants.table, contrast.where)]
        has_baseline = _meeting(variants, table, contrast.is_baseline).any()
        found = pair_up(variants, contrast.baseline, [*table.index], free=free) if has_baseline else []
        if contrast.variants:
            meets = np.any([_meeting(variants, table, one) for one in contrast.variants], axis=0)
            found = [pair for pair in found if pair[0] in table.index[meets]]
        if not found:
            lines.append(f"missing: the primary contrast with {contrast} has no finished runs")
        pairs += [pair for pair in found if pair not in pairs]
    return pairs, lines


def not_shown(
    variants: Settings, contrasts: Sequence[Contrast], levels: Mapping[str, Sequence[str]], *, all_built: bool
) -> list[str]:
    """A line for each contrast that a study can't show because some of its runs can't be built. Raises
    ConfigError for a contrast that it could not show in any case.

    variants: of the runs that can be built. all_built: whether none is missing. levels: by override key.
    """
    lines = []
    for contrast in contrasts:
        try:
            pairs, _ = primary_pairs(variants, [contrast])
            columns = {key: column_of(key, variants.columns, "primary") for key, _ in contrast.values}
        except ConfigError as error:
            raise ConfigError(f"study.primary: {contrast}: {error}") from error
        if pairs:
            continue
        present = {key: [*variants.table[column].unique()] for key, column in columns.items()}
        shown = "; ".join(f"{columns[key]}={','.join(values)}" for key, values in present.items())
        lines.append(f"study.primary: {contrast}: no two runs of this study differ so; choices: {shown}")
        for key, values in levels.items():
            present |= {k: [*present[k], *map(as_level, values)] for k in present if key_in(k, [key])}
        could = contrast.arms or all(as_level(value) in present[key] for key, value in contrast.values)
        if all_built or not could:
            raise ConfigError(lines[-1])
    return lines


def tuned_columns(variants: Variants) -> list[str]:
    """The columns of the tuned keys, in which the variants of a tuned study may differ, each at its own
    value."""
    keys = {*variants.known("tuned")} - {""}
    return sorted({column_of(key, variants.columns, "tune") for key in keys})


def family_pairs(
    variants: Variants, contrasts: Sequence[Contrast], baseline: Mapping[str, Any] | None
) -> tuple[dict[str, list[Pair]], list[str]]:
    """The pairs of each family, primary and, for what no contrast names, exploratory: each variant against
    its baseline. And a line for each primary contrast without pairs. Raises ConfigError."""
    free = tuned_columns(variants)
    primary, lines = primary_pairs(variants, contrasts, free=free)
    others = pair_up(variants, baseline, free=free) if baseline else []
    return {"primary": primary, "exploratory": [pair for pair in others if pair not in primary]}, lines


def why_nothing(variants: Variants, baseline: Mapping[str, Any] | None) -> str:
    """Why nothing is compared with this baseline, and one with which something would be."""
    given, why = {}, f"there is no fusion to compare with {STANDARD_FUSION}"
    if variants.is_foreign:
        why = "no baseline is named"
    if baseline:
        given = {column_of(key, variants.columns, "--baseline"): as_level(v) for key, v in baseline.items()}
        why = f"no two variants differ only in {', '.join(given)}"
    another = _another(variants, given) or _another(variants, {})
    return why + (f"; try {option('--baseline', another)}" if another else "")


def _another(variants: Variants, given: Mapping[str, str]) -> str:
    """K=V[,K=V], with which there are pairs: all in which two variants differ, of the two that differ in the
    least; empty if there are none.

    The baseline of the two has the values of `given`; without any, what is usual or what more variants have.
    """
    free, table = tuned_columns(variants), variants.table
    columns = [column for column in variants.columns if column not in free and table[column].nunique() > 1]
    rows = table[columns].to_dict("records")

    def rank(values: Mapping[str, str]) -> tuple[int, ...]:
        usual = sum(value in USUAL for value in values.values())
        common = sum((table[column] == value).sum() for column, value in values.items())
        return len(values), -usual, -common

    pairing = {}
    for base, other in itertools.permutations(rows[:TRIED], 2):
        values = {column: base[column] for column in columns if base[column] != other[column]}
        follow = (followers(variants, values) | {*MATCH}) - given.keys()
        values = {column: value for column, value in values.items() if column not in follow} or values
        if given.items() <= values.items() and all(value and "," not in value for value in values.values()):
            pairing[",".join(f"{key}={value}" for key, value in values.items())] = values
    nearest = sorted(pairing, key=lambda text: rank(pairing[text]))
    return next((text for text in nearest if pair_up(variants, pairing[text], free=free)), "")


def differing(variants: Variants, pairs: Sequence[Pair]) -> list[str]:
    """For each pair, the columns in which its variants differ, separated by spaces."""
    varying = [column for column in variants.columns if variants.table[column].nunique() > 1]
    rows = list(variants.table[varying].itertuples(index=False, name=None))
    return [
        " ".join(c for c, a, b in zip(varying, rows[v], rows[base], strict=True) if a != b)
        for v, base in pairs
    ]


def _is_reference(row: "pd.Series[Any]") -> bool:
    """Whether a model is the reference that others are matched to (ablate.model.costs.reference), so that
    matching changes nothing."""
    widths = ("heads", "d_model", "value_width", "key_width", "mlp_hidden")
    try:
        heads, d, v, k, m = (float(row[column]) for column in widths)
    except (KeyError, TypeError, ValueError):
        return False
    narrow = heads * v == heads * k == d
    is_standard = narrow and m == standard_hidden(int(d), row.get("mlp") or "gelu")
    return row["fusion"] == STANDARD_FUSION and row["out_proj"] == "true" and is_standard


def _nearest(
    variant: Mapping[Any, str], bases: Mapping[int, Mapping[Any, str]], loose: list[str]
) -> list[int]:
    """The base that agrees in the most loose columns; none if there is a tie. A width per head that changes
    with the number of heads counts half if the total is the same."""
    scores = {}
    for base, row in bases.items():
        equal = sum(variant[column] == row[column] for column in loose)
        widths = [column for column in loose if column in ("key_width", "value_width")]
        total = sum(_total(variant, column) == _total(row, column) for column in widths)
        scores[base] = equal + total / 2
    best = [base for base, score in scores.items() if score == max(scores.values())]
    return best if len(best) == 1 else []


def _total(row: Mapping[Any, str], column: str) -> float | str:
    try:
        return float(row["heads"]) * float(row[column])
    except ValueError:
        return row[column]


def _meeting(variants: Settings, table: pd.DataFrame, values: Mapping[str, Any]) -> np.ndarray:
    return matching(table, values, "contrast", variants.columns)
