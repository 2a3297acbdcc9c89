"""What a difference amounts to: equal functions and classes, and the worth of attention."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.analysis.contrasts import MATCH, NO_ATTENTION, Pair, differing, own_values, pair_up
from ablate.analysis.finding import Finding
from ablate.analysis.variants import Settings, Variants
from ablate.config.rules import ConfigError
from ablate.phrases import Note, capital, lines_if
from ablate.store.columns import column_named, config_about

# Columns that, besides attention, determine which functions a model can represent; and columns that do not.
OF_THE_MODEL, OF_TRAINING = config_about("model", "text"), config_about("training")

AttentionGaps = Mapping[int, tuple[float, float, float]]


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


def same_classes(variants: Variants, pairs: Sequence[Pair]) -> list[bool]:
    """For each pair, whether both variants can learn the same functions although they are parametrized
    differently: equal function_class, and no other difference in what can be learned."""
    rest = (variants.table[column] for column in OF_THE_MODEL if column in variants.columns)
    keys = list(zip(variants.known("function_class"), *rest, strict=True))
    return [
        bool(keys[one][0]) and keys[one] == keys[base] and bool({*apart.split()} - {*OF_TRAINING})
        for (one, base), apart in zip(pairs, differing(variants, pairs), strict=True)
    ]


def unknown_forms(variants: Variants) -> list[Note]:
    """A line if there are variants whose rows have no form."""
    unknown = variants.table.loc[variants.table["form"].eq(""), "fusion"].unique()
    names = ", ".join(f"fusion={name}" for name in unknown if name)
    line = f"equal forms are not known for {names} (rows without the column form)"
    return lines_if(names, Note(line))


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


def uniform_attention_gap(variants: Variants, bases: Iterable[int]) -> AttentionGaps:
    """What attention is worth to each of these variants, with its 95 % interval: the metric with
    scores=uniform minus its own, both otherwise equal. Variants without such a partner are left out."""
    if (
        column_named(variants.metric).unit != "nats"
        or variants.is_foreign
        or "scores" not in variants.columns
    ):
        return {}
    partner = otherwise_equal(variants, {"scores": NO_ATTENTION}, free=MATCH)
    if not (having := [base for base in bases if base in partner]):
        return {}
    uniform = variants.values[[partner[base] for base in having]]
    paired = stats.paired(uniform, variants.values[having], margin=np.inf)
    of_each = zip(*(paired[name].tolist() for name in ("diff", "low_marginal", "high_marginal")), strict=True)
    return {base: worth for base, worth in zip(having, of_each, strict=True) if np.isfinite(worth[1])}


def shares(diff: pd.Series, pairs: Sequence[Pair], references: AttentionGaps) -> pd.Series:
    """(K,) each difference as a share of what attention is worth to its baseline; NaN unless that is above 0
    with its whole interval."""
    units = {base: unit for base, (unit, low, _) in references.items() if low > 0}
    return diff / np.array([units.get(base, np.nan) for _, base in pairs], float)


def on_uniform_attention(variants: Variants, references: AttentionGaps) -> list[Note]:
    """A line for each variant on what attention is worth to it."""
    return [
        Note(
            f"attention is worth {unit:.4g} [{low:.4g}, {high:.4g}] to {variants.names[base]}: its"
            f" {variants.metric} with scores=uniform less its own"
            f" ({'column share' if low > 0 else 'so nothing is a share of it'})"
        )
        for base, (unit, low, high) in references.items()
    ]


def more_diverged(variants: Variants, among: Sequence[int]) -> int:
    """On how many more seeds one of these variants diverged than another; if on any, the other seeds are no
    fair sample."""
    return int(np.ptp(variants.diverged[[*among]].sum(1)))


def parametrization(tested: Sequence[Finding]) -> list[Note]:
    """A line on the contrasts of two different functions."""
    apart = [one for one in tested if not one.same_class and not {*one.differs.split()} <= {*OF_TRAINING}]
    who = f"In {len(apart)} of {len(tested)} comparisons the two"
    if len(apart) == len(tested) == 1:
        one, other = apart[0].sides()
        who = f"{capital(other)} and {one}"
    line = (
        f"{who} start as different functions; part of the difference may come from that start"
        " (parametrization)"
    )
    return lines_if(len(apart), Note(line))


def otherwise_equal(
    variants: Variants, wanted: Mapping[str, Any], free: Sequence[str] = ()
) -> dict[int, int]:
    """For each variant that has one, the variant that has these values and is otherwise equal; of a tuned
    study, both at their own value. free: further columns that may differ."""
    own, tuned = own_values(variants)
    try:
        return dict(pair_up(variants, wanted, own, free=[*tuned, *free]))
    except ConfigError:  # none has them
        return {}
