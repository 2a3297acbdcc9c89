"""Contrasts: weighted sums of variants. Those of a study are looked up in its record, by the runs of its
arms; those of a command pair each variant with its baseline."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from ablate.analysis.variants import TEXT_COLUMNS, Settings, Variants, as_pairs
from ablate.config.conditions import column_for
from ablate.config.contrast import Contrast
from ablate.config.rules import ConfigError, as_level, as_number, as_override
from ablate.phrases import first_few, option
from ablate.store.columns import SEED_COLUMNS, WIDTHS, column_named, of_group
from ablate.store.frames import column_of, matching
from ablate.store.record import StudyRecord

Pair = tuple[int, int]  # a variant and its baseline, as indices
MATCH = ("match",)
# Columns that, besides attention, determine which functions a model can represent; and columns that do not.
OF_PRESET = of_group("model", "at")
OF_THE_MODEL, OF_TRAINING = (*OF_PRESET, *of_group("corpus")), of_group("train")


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
        weights = [weight for weight, _ in first]
        return min(weights) < 0 < max(weights) and weights == [-weight for weight, _ in second]


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


def unplanned(variants: Variants, pairs: Sequence[Pair], others: Sequence[Weighed]) -> list[Weighed]:
    """Each variant against its baseline, but for what the others compare already."""
    known = {(one.variant, one.baseline) for one in others}
    pairs = [pair for pair in pairs if pair not in known]
    each = zip(pairs, equal_variants(variants, pairs), strict=True)
    return [Weighed("", [(1.0, one), (-1.0, base)], equal=same) for (one, base), same in each]


def pairs_by(variants: Settings, baselines: Sequence[Mapping[str, Any]]) -> list[list[Pair]]:
    """The pairs by each baseline, of variants that are in none by one before. Raises ConfigError."""
    found, there = list[list[Pair]](), set[int]()
    for baseline in baselines:
        found.append([pair for pair in pair_up(variants, baseline) if pair[0] not in there])
        there |= {c for pair in found[-1] for c in pair}
    return found


def pair_up(
    variants: Settings, baseline: Mapping[str, Any], among: Sequence[int] | None = None
) -> list[Pair]:
    """Each variant with the baseline variant that equals it in all but the keys of `baseline`.

    If none does, columns that follow from those keys (such as value_width from fusion) may differ, and what
    is matched, as few as possible; a tie gives no pair. In a table of another program so do columns of which
    each level of these keys has one value, such as a learning rate for each method. among: only these
    variants. Raises ConfigError.
    """
    table = variants.table if among is None else variants.table.iloc[list(among)]
    source = f"--baseline {','.join(f'{key}={as_override(value)}' for key, value in baseline.items())}"
    wanted = {column_of(key, variants.columns, source): value for key, value in baseline.items()}
    is_baseline = _meeting(variants, table, wanted)
    if not is_baseline.any():
        there = sorted({as_pairs(levels) for levels in table[[*wanted]].to_dict("records")})
        raise ConfigError(f"{source}: no such variant; choices: {first_few(there, 8)}")
    varying = [column for column in variants.columns if table[column].nunique() > 1 and column not in wanted]
    following = (followers(variants, wanted) | {*variants.free, *MATCH}) - wanted.keys()
    if variants.is_foreign:
        each = table.groupby([*wanted], sort=False)
        following |= {column for column in varying if each[column].nunique().max() == 1}
    fixed = [column for column in varying if column not in following]
    loose = [column for column in varying if column in following]
    keys = [*table[fixed].itertuples(index=False, name=None)] or [()] * len(table)
    rows, place = [*zip(table.index, keys, is_baseline, strict=True)], defaultdict[Any, list[int]](list)
    for variant, key, base in rows:
        place[key] += [variant] if base else []
    records = dict(zip(table.index, table[loose].to_dict("records"), strict=True))
    pairs = []
    for variant, key, base in rows:
        bases = {b: records[b] for b in place[key]} if not base else {}
        pairs += [(variant, b) for b in _nearest(records[variant], bases)]
    return pairs


def declared_pairs(variants: Settings, contrast: Contrast) -> list[Pair]:
    """The pairs of a contrast that a YAML declares by the keys that vary, or the choice of a model or a text.
    Raises ConfigError."""
    asked = [name for name in ("model", "corpus") if name in {*contrast.baseline, *contrast.where}]
    variants = replace(variants, columns=[*dict.fromkeys([*variants.columns, *asked])])
    table = variants.table[_meeting(variants, variants.table, contrast.where)]
    has_baseline = _meeting(variants, table, contrast.is_baseline).any()
    return pair_up(variants, contrast.baseline, [*table.index]) if has_baseline else []


def followers(variants: Settings, columns: Iterable[str]) -> set[str]:
    """The columns that may change with these if no variant keeps them: widths, options of parts, and what
    these bring."""
    following = {*WIDTHS}
    for column in columns:
        following |= {*OF_PRESET} if column == "model" else set()
        following |= {*column_named(column).brings, *variants.options.get(column, ())}
    return following


def usual_baselines(variants: Settings, is_planned: bool) -> list[dict[str, str]]:
    """The baselines where nobody names one: each key that varies, at its default, or a number that varies
    alone, at its least level; fusion comes first, sizes and training last, texts never: their losses don't
    compare. is_planned: whether a study says what is compared besides fusions. None of another program."""
    if variants.is_foreign:
        return []
    from ablate.compose.configs import sections

    names = [(key.name, key.default) for section in reversed(sections()) for key in section.keys]
    defaults = {column_for(name): as_level(default) for name, default in names}  # the first section counts
    found = list[dict[str, str]]()
    settings = ("heads", *of_group("model", "train", "corpus"))
    levels = {column: {*variants.table[column]} for column in variants.columns if column not in variants.free}
    varying = [column for column, of in levels.items() if len(of) > 1 and column not in WIDTHS]
    for column in ["fusion"] if is_planned else sorted(varying, key=lambda name: name in settings):
        usual, numbers = defaults.get(column), {level: as_number(level) for level in levels[column]}
        if len(varying) == 1 and usual not in numbers and None not in numbers.values():
            usual = min(numbers, key=lambda level: numbers[level] or 0.0)
        if usual in numbers and pair_up(variants, {column: str(usual)}):
            found.append({column: str(usual)})
    return [one for one in found if one.keys().isdisjoint(("corpus", *TEXT_COLUMNS))]


def why_nothing(variants: Variants, baseline: Mapping[str, Any]) -> str:
    """Why nothing is compared with this baseline, which may be empty, and a variant to name as one."""
    given = {column_of(key, variants.columns, "--baseline"): value for key, value in baseline.items()}
    if len(variants.table) == 1:
        return "there is only one variant"
    why = f"no two variants differ only in {', '.join(given)}" if given else "no baseline is named"
    first = np.flatnonzero(_meeting(variants, variants.table, given))[0]
    return f"{why}; name one: {option('--baseline', variants.titles[first])}"


def crossed(variants: Variants, contrasts: Sequence[Weighed], column: str) -> list[Weighed]:
    """Of contrasts that are otherwise equal, the one between each two levels of a column; a study's own, as
    it has them. Raises ConfigError without any."""
    if column in SEED_COLUMNS:
        raise ConfigError(f"--within {column}: a difference is a mean over seeds; name a column of variants")
    level = dict(enumerate(variants.table[column]))
    if len({*level.values()}) < 2:
        raise ConfigError(f"--within {column}: every row has {level[0] or 'none'}; name a column that varies")
    alone = [one for one in contrasts if not one.is_crossed and len({level[c] for _, c in one.sides}) == 1]
    at_level = pd.Series([level[one.baseline] for one in alone], dtype=object).to_numpy()
    bases = variants.table.iloc[[one.baseline for one in alone]]
    free = {column, *WIDTHS, *variants.free}
    kept = [name for name in variants.columns if name not in free]
    follow = {name for name in kept if bases.groupby(at_level)[name].nunique().max() < 2}
    set_by = variants.table[kept].to_dict("records")
    by_key: dict[object, dict[str, Weighed]] = {}
    for one in alone:
        v, b = set_by[one.variant], set_by[one.baseline]
        key = tuple((name, v[name]) for name in kept if v[name] != b[name] or name not in follow)
        by_key.setdefault(key, {})[level[one.baseline]] = one
    planned = [one for one in contrasts if one.is_crossed and len({level[c] for _, c in one.sides}) == 2]
    order = sorted({*level.values()}, key=lambda at: (np.inf if (of := as_number(at)) is None else of, at))
    known = {frozenset(one.sides) for one in planned}
    new = [
        Weighed("", [*high.sides, *((-weight, c) for weight, c in low.sides)])
        for of_levels in by_key.values()
        for low, high in itertools.combinations([of_levels[at] for at in order if at in of_levels], 2)
    ]
    if not new and not planned:
        there = first_few(sorted({*level.values()}))
        raise ConfigError(f"--within {column}: no difference is there at two of its levels ({there})")
    return [*planned, *(one for one in new if frozenset(one.sides) not in known)]


def differing(variants: Settings, pairs: Sequence[Pair]) -> list[str]:
    """For each pair, the columns in which its variants differ, separated by spaces."""
    varying = [column for column in variants.columns if variants.table[column].nunique() > 1]
    rows = [*variants.table[varying].itertuples(index=False, name=None)]
    each = (zip(varying, rows[v], rows[base], strict=True) for v, base in pairs)
    return [" ".join(column for column, one, other in of if one != other) for of in each]


def is_same_class(variants: Variants, one: Weighed, differs: str) -> bool:
    """Whether both variants can learn the same functions although they are parametrized differently: equal
    function_class, and no other difference in what can be learned. differs: as `differing` has it."""
    if variants.is_foreign:  # whose word for it means something else
        return False
    apart, classes = {*differs.split()}, variants.table["function_class"]
    is_equal = classes[one.variant] == classes[one.baseline] != ""
    return bool(is_equal and apart.isdisjoint(OF_THE_MODEL) and not apart <= {*OF_TRAINING})


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


def _nearest(variant: Mapping[Any, str], bases: Mapping[int, Mapping[Any, str]]) -> list[int]:
    """The base that agrees in the most columns, with the same match if any has it; none if there is a tie."""
    scores = {
        base: (variant.get("match") == row.get("match"), sum(variant[of] == row[of] for of in variant))
        for base, row in bases.items()
    }
    best = [base for base, score in scores.items() if score == max(scores.values())]
    return best if len(best) == 1 else []


def _meeting(variants: Settings, table: pd.DataFrame, values: Mapping[str, Any]) -> np.ndarray:
    return matching(table, values, "contrast", variants.columns)
