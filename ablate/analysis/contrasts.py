"""Contrasts: weighted sums of variants. Those of a study are looked up in its record, by the runs of its
arms; those of a command pair each variant with its baseline."""

import itertools
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from ablate.analysis.variant import as_pairs
from ablate.analysis.variants import Settings, Variants
from ablate.compose.keys import sections
from ablate.config.conditions import column_for
from ablate.config.contrast import Contrast
from ablate.config.rules import ConfigError, as_level, as_override
from ablate.config.schema import STANDARD_FUSION, STANDARD_SCORES, standard_hidden
from ablate.phrases import first_few
from ablate.store.columns import WIDTHS, column_named, config_about
from ablate.store.frames import column_of, matching
from ablate.store.record import StudyRecord

Pair = tuple[int, int]  # a variant and its baseline, as indices
MATCH = ("match",)
# What configs say where nothing is changed.
USUAL = {STANDARD_FUSION, STANDARD_SCORES, "auto", "none", "true"}
TRIED = 100  # variants at most, two by two, for a baseline to propose
# Columns that, besides attention, determine which functions a model can represent; and columns that do not.
OF_PRESET = config_about("model")
OF_THE_MODEL, OF_TRAINING = config_about("model", "text"), config_about("training")


@dataclass(frozen=True, eq=False)
class Weighed:
    """A contrast of variants. name: as its study has it; empty for one that nobody declared. sides: weights
    of variants, by their indices. runs: those that count; None for all. record: of the study that planned it,
    None for an unplanned one. equal: the variant that has the same function by construction, if any has."""

    name: str
    sides: Sequence[tuple[float, int]]
    runs: frozenset[str] | None = None
    record: StudyRecord | None = None
    equal: int | None = None

    @property
    def variant(self) -> int:
        """The first with a weight above 0; the baseline is the first below."""
        return next(at for weight, at in self.sides if weight > 0)

    @property
    def baseline(self) -> int:
        return next(at for weight, at in self.sides if weight < 0)

    @property
    def is_crossed(self) -> bool:
        """Whether it is a contrast of two contrasts."""
        first, second = self.sides[: len(self.sides) // 2], self.sides[len(self.sides) // 2 :]
        return len(first) > 1 and [weight for weight, _ in first] == [-weight for weight, _ in second]


def planned(
    variants: Variants, record: StudyRecord, kept: Iterable[str], before: Iterable[str]
) -> tuple[list[Weighed], list[str]]:
    """The contrasts of a study that these variants show, and the names of those that they do not. kept: the
    ids of the rows; before: those that there were before any were chosen. A contrast that was written down
    after its results, is judged by another metric, or has lost rows, counts as unplanned."""
    place = {run_id: c for c, ids in enumerate(variants.run_ids) for run_id in ids[variants.ran[c]] if run_id}
    lost, found, missing = {*before} - {*kept}, list[Weighed](), list[str]()
    for one in record.contrasts:
        sides = []
        for side in one.sides:
            at = {place[run_id] for run_id in side.runs if run_id in place}
            sides += [(side.weight / len(at), c) for c in sorted(at)]
        arms = {side.arm for side in one.sides if not {*side.runs} & place.keys()}
        if arms or len({c for _, c in sides}) < len(one.sides):
            missing.append(one.name)
            continue
        is_planned = one.beforehand and record.metric in (None, variants.metric) and not one.runs & lost
        runs = frozenset(one.runs) if is_planned else None
        weighed = Weighed(one.name, sides, runs, record if is_planned else None)
        found.append(replace(weighed, equal=weighed.baseline) if one.equal else weighed)
    same = equal_variants(variants, [(one.variant, one.baseline) for one in found])
    pairs = zip(found, same, strict=True)
    return [one if one.equal is None or at is None else replace(one, equal=at) for one, at in pairs], missing


def unplanned(
    variants: Variants, baseline: Mapping[str, Any] | None, others: Sequence[Weighed]
) -> list[Weighed]:
    """Each variant against its baseline, but for what the others compare already. Raises ConfigError."""
    pairs = pair_up(variants, baseline) if baseline else []
    known = {(one.variant, one.baseline) for one in others}
    pairs = [pair for pair in pairs if pair not in known]
    each = zip(pairs, equal_variants(variants, pairs), strict=True)
    return [Weighed("", [(1.0, one), (-1.0, base)], equal=same) for (one, base), same in each]


# --- pairs ------------------------------------------------------------------------------------------------


def pair_up(
    variants: Settings, baseline: Mapping[str, Any], among: Sequence[int] | None = None
) -> list[Pair]:
    """Each variant with the baseline variant that equals it in all but the keys of `baseline`.

    If none does, columns that follow from those keys (such as value_width from fusion) may differ, as few as
    possible; a tie gives no pair. In a table of another program so do columns of which each level of these
    keys has one value, such as a learning rate for each method. A matched model is compared with its
    reference if no baseline is matched in the same way. among: only these variants. Raises ConfigError.
    """
    table = variants.table if among is None else variants.table.iloc[list(among)]
    source = f"--baseline {','.join(f'{key}={as_override(value)}' for key, value in baseline.items())}"
    wanted = {column_of(key, variants.columns, source): value for key, value in baseline.items()}
    is_baseline = _meeting(variants, table, wanted)
    if not is_baseline.any():
        there = sorted({as_pairs(levels) for levels in table[[*wanted]].to_dict("records")})
        raise ConfigError(f"{source}: no such variant; choices: {first_few(there, 8)}")
    varying = [column for column in variants.columns if table[column].nunique() > 1 and column not in wanted]
    following = (followers(variants, wanted) | {*variants.free}) - wanted.keys()
    if variants.is_foreign:
        each = table.groupby([*wanted], sort=False)
        following |= {column for column in varying if each[column].nunique().max() == 1}
    fixed = [column for column in varying if column not in following]
    loose = [column for column in varying if column in following]
    unmatched = [column for column in fixed if column not in MATCH]
    sets = (table[of].itertuples(index=False, name=None) for of in (fixed, unmatched))
    keys, rests = ([*of] or [()] * len(table) for of in sets)
    rows = [*zip(table.index, keys, rests, is_baseline, strict=True)]
    place, references = defaultdict[Any, list[int]](list), defaultdict[Any, list[int]](list)
    for variant, key, rest, base in rows:
        if base:
            place[key].append(variant)
            references[rest] += [variant] if _is_reference(variants.table.loc[variant]) else []
    records = dict(zip(table.index, table[[*loose, "heads"]].to_dict("records"), strict=True))
    pairs = []
    for variant, key, rest, base in rows:
        bases = [] if base else place[key] or references[rest]
        pairs += [(variant, b) for b in _nearest(records[variant], {b: records[b] for b in bases}, loose)]
    return pairs


def declared_pairs(variants: Settings, contrast: Contrast) -> list[Pair]:
    """The pairs of a contrast that a YAML declares by the keys that vary. Raises ConfigError."""
    table = variants.table[_meeting(variants, variants.table, contrast.where)]
    has_baseline = _meeting(variants, table, contrast.is_baseline).any()
    found = pair_up(variants, contrast.baseline, [*table.index]) if has_baseline else []
    if contrast.variants:
        meets = np.any([_meeting(variants, table, one) for one in contrast.variants], axis=0)
        found = [pair for pair in found if pair[0] in table.index[meets]]
    return found


def followers(variants: Settings, columns: Iterable[str]) -> set[str]:
    """The columns that may change with these if no variant keeps them: widths, options of parts, and what
    these bring."""
    following = {*WIDTHS}
    for column in columns:
        following |= {*OF_PRESET} if column == "model" else set()
        following |= {*column_named(column).brings, *variants.options.get(column, ())}
    return following


def usual_baseline(variants: Variants) -> dict[str, str] | None:
    """The baseline where nobody names one: that with the default of the first key that varies, if a variant
    has it. None of another program."""
    names = [(key.name, key.default) for section in reversed(sections()) for key in section.keys]
    defaults = {column_for(name): as_level(default) for name, default in names}  # the first section counts
    for column in () if variants.is_foreign else variants.columns:
        levels, usual = {*variants.table[column]}, defaults.get(column)
        is_varied = usual in levels and len(levels) > 1 and column not in (*variants.free, *WIDTHS)
        if is_varied and pair_up(variants, {column: str(usual)}):
            return {column: str(usual)}
    return None


def why_nothing(variants: Variants, baseline: Mapping[str, Any] | None) -> str:
    """Why nothing is compared with this baseline, and one with which something would be."""
    levels = (baseline or {}).items()
    given = {column_of(key, variants.columns, "--baseline"): as_level(value) for key, value in levels}
    none = f"there is no fusion to compare with {STANDARD_FUSION}"
    why = "no baseline is named" if variants.is_foreign else none
    why = f"no two variants differ only in {', '.join(given)}" if given else why
    another = _another(variants, given) or _another(variants, {})
    return why + (f"; try --baseline {shlex.quote(another)}" if another else "")


def _another(variants: Variants, given: Mapping[str, str]) -> str:
    """K=V[,K=V], with which there are pairs: all in which two variants differ, of the two that differ in the
    least; empty if there are none.

    The baseline of the two has the values of `given`; without any, what is usual or what more variants have.
    """
    free, table = variants.free, variants.table
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
        if given.items() <= values.items() and all(values.values()):
            pairing[as_pairs(values)] = values
    nearest = sorted(pairing, key=lambda text: rank(pairing[text]))
    return next((text for text in nearest if pair_up(variants, pairing[text])), "")


# --- what two variants have in common ------------------------------------------------------------------


def differing(variants: Settings, pairs: Sequence[Pair]) -> list[str]:
    """For each pair, the columns in which its variants differ, separated by spaces."""
    varying = [column for column in variants.columns if variants.table[column].nunique() > 1]
    rows = [*variants.table[varying].itertuples(index=False, name=None)]
    each = (zip(varying, rows[v], rows[base], strict=True) for v, base in pairs)
    return [" ".join(column for column, one, other in of if one != other) for of in each]


def same_classes(variants: Variants, pairs: Sequence[Pair]) -> list[bool]:
    """For each pair, whether both variants can learn the same functions although they are parametrized
    differently: equal function_class, and no other difference in what can be learned."""
    rest = (variants.table[column] for column in OF_THE_MODEL if column in variants.columns)
    keys = list(zip(variants.known("function_class"), *rest, strict=True))
    return [
        bool(keys[one][0]) and keys[one] == keys[base] and bool({*apart.split()} - {*OF_TRAINING})
        for (one, base), apart in zip(pairs, differing(variants, pairs), strict=True)
    ]


def equal_forms(variants: Settings) -> list[tuple[str, ...]]:
    """(C,) keys, which are equal if two variants are the same function by construction: they have the same
    form, and are equal in every column that the form does not cover. A match counts by the resulting width:
    when matched by the MLP, equal parameters mean equal FLOPs. Without a form, a method equals itself alone.
    """
    method = ("fusion", "normalize", *variants.options["fusion"])
    rest = [column for column in variants.columns if column not in (*method, *MATCH)]
    return [
        (row["form"] or " ".join(row.get(column, "") for column in method), *(row[column] for column in rest))
        for row in variants.table.to_dict("records")
    ]


def equal_variants(variants: Settings, pairs: Sequence[Pair]) -> list[int | None]:
    """For each pair, its baseline, or another variant with this baseline, that the variant equals by
    construction; None for most."""
    equal: list[int | None] = [None] * len(pairs)
    if variants.is_foreign:
        return equal
    forms = equal_forms(variants)
    seen: dict[tuple[Any, int], int] = {}
    # Of two equal variants, keep the one named after the form: sum, not the normalized mean.
    named = [variants.table.at[one, "fusion"] == forms[one][0].partition(" ")[0] for one, _ in pairs]
    for i in sorted(range(len(pairs)), key=lambda i: not named[i]):
        variant, base = pairs[i]
        first = seen.setdefault((forms[variant], base), variant)
        equal[i] = base if forms[variant] == forms[base] else first if first != variant else None
    return equal


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

    def total(row: Mapping[Any, str], column: str) -> float | str:
        try:
            return float(row["heads"]) * float(row[column])
        except ValueError:
            return row[column]

    scores, widths = {}, [column for column in loose if column in ("key_width", "value_width")]
    for base, row in bases.items():
        equal = sum(variant[column] == row[column] for column in loose)
        scores[base] = equal + sum(total(variant, column) == total(row, column) for column in widths) / 2
    best = [base for base, score in scores.items() if score == max(scores.values())]
    return best if len(best) == 1 else []


def _meeting(variants: Settings, table: pd.DataFrame, values: Mapping[str, Any]) -> np.ndarray:
    return matching(table, values, "contrast", variants.columns)
