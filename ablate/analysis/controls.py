"""What a difference amounts to: equal functions and classes."""

from collections.abc import Mapping, Sequence
from typing import Any

from ablate.analysis.contrasts import MATCH, Pair, differing, pair_up, tuned_columns
from ablate.analysis.finding import Finding
from ablate.analysis.variants import Settings, Variants
from ablate.config.rules import ConfigError
from ablate.phrases import Note, capital, lines_if
from ablate.store.columns import config_about

# Columns that, besides attention, determine which functions a model can represent; and columns that do not.
OF_THE_MODEL, OF_TRAINING = config_about("model", "text"), config_about("training")


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


def otherwise_equal(variants: Variants, wanted: Mapping[str, Any]) -> dict[int, int]:
    """For each variant that has one, the variant that has these values and is otherwise equal; of a tuned
    study, both at their own value."""
    try:
        return dict(pair_up(variants, wanted, free=tuned_columns(variants)))
    except ConfigError:  # none has them
        return {}
