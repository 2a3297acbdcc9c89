"""Pair variants with their baselines, and find variants that are equal by construction."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ablate.analysis.forms import METHODS, form_of
from ablate.analysis.select import as_text
from ablate.analysis.variants import TEXT_COLUMNS, WIDTHS, Variants
from ablate.config.rules import ConfigError, did_you_mean
from ablate.config.schema import STANDARD_FUSION
from ablate.phrases import only_if

EQUAL = "equal by construction"  # the verdict on two variants that are the same function
Pair = tuple[int, int]  # a variant and its baseline, as indices

MATCH = ("match", "match_by")
# Columns that, besides attention, determine which functions a model can represent; and columns that do not.
OF_THE_MODEL = ("d_model", "layers", "context", "mlp_hidden", "bias", "dropout", *TEXT_COLUMNS)
OF_TRAINING = (
    *("steps", "batch", "lr", "warmup", "min_lr_ratio", "weight_decay", "beta1", "beta2", "eps", "clip"),
    "precision",
)
# Columns that may change with a factor (through `auto` and `match`) if no variant keeps them.
FOLLOWS = {
    "fusion": ("normalize",),
    "heads": ("groups",),
    "match": ("match_by",),
    "tokenizer": ("vocab",),
    "corpus_sha256": ("vocab",),
}
# Widths that configs give by a word: d_model/heads (narrow), or d_model (wide).
NARROW, WIDE = {("value_width", "narrow"), ("key_width", "auto")}, {("value_width", "wide")}


def parse_baseline(text: str) -> dict[str, str]:
    """K=V[,K=V] as a mapping. Raises ConfigError."""
    parts = [part.partition("=") for part in text.split(",")]
    if not all(key.strip() and sign and value.strip() for key, sign, value in parts):
        raise ConfigError(
            f"--baseline {text}: write K=V[,K=V], such as fusion=concat or heads=1,out_proj=true"
        )
    return {key.strip(): value.strip() for key, _, value in parts}


def pair_up(
    variants: Variants,
    baseline: Mapping[str, Any],
    among: Sequence[int] | None = None,
    *,
    free: Sequence[str] = (),
) -> list[Pair]:
    """Each variant with the baseline variant that equals it in all but the keys of `baseline`.

    If none does, columns that follow from those keys (such as value_width from fusion) may differ, as few as
    possible; a tie gives no pair. A matched model is compared with its reference if no baseline is matched in
    the same way. among: only these variants. free: further columns that may differ, such as a learning rate
    that each variant has its own value of. Raises ConfigError.
    """
    table = variants.table if among is None else variants.table.iloc[list(among)]
    wanted = {column_in(variants, key): as_text(value) for key, value in baseline.items()}
    is_baseline = pd.Series(True, index=table.index)
    for column, value in wanted.items():
        is_baseline &= _has(table, column, value)
    if not is_baseline.any():
        raise ConfigError(f"--baseline {_words(wanted)}: no such variant; there is {_levels(table, wanted)}")
    following = (followers(variants, wanted) | {*free}) - wanted.keys()
    varying = [column for column in variants.columns if table[column].nunique() > 1 and column not in wanted]
    fixed = [column for column in varying if column not in following]
    loose = [column for column in varying if column in following]
    place: dict[tuple[str, ...], list[int]] = {}
    keys = list(zip(*(table[column] for column in fixed), strict=True)) if fixed else [()] * len(table)
    unmatched = [tuple("" if c in MATCH else v for c, v in zip(fixed, key, strict=True)) for key in keys]
    references: dict[tuple[str, ...], list[int]] = {}
    for variant, key, rest, base in zip(table.index, keys, unmatched, is_baseline, strict=True):
        if base:
            place.setdefault(key, []).append(variant)
            if _is_reference(variants.table.loc[variant]):
                references.setdefault(rest, []).append(variant)
    records = dict(zip(table.index, table[[*loose, "heads"]].to_dict("records"), strict=True))
    pairs = []
    for variant, key, rest, base in zip(table.index, keys, unmatched, is_baseline, strict=True):
        if not base:
            bases = place.get(key) or references.get(rest, [])
            near = _nearest(records[variant], {b: records[b] for b in bases}, loose)
            pairs += [(variant, b) for b in near]
    return pairs


def followers(variants: Variants, columns: Iterable[str]) -> set[str]:
    """The columns that may change with these: widths, options of parts, and what FOLLOWS."""
    following = {*WIDTHS}
    for column in columns:
        following |= {*FOLLOWS.get(column, ()), *variants.options.get(column, ())}
    return following


def primary_pairs(
    variants: Variants,
    entries: Sequence[Mapping[str, Any]],
    among: Sequence[int] | None = None,
    *,
    free: Sequence[str] = (),
) -> tuple[list[Pair], list[str]]:
    """The pairs that a study declared in advance, and a line for each entry without pairs.

    An entry has `vary`, a key; `baseline`, its value (or, without `vary`, a mapping of keys to values);
    optionally `variants`, the other values or mappings, and `where`, key to value or list of values. among,
    free: as for `pair_up`. Raises ConfigError.
    """
    pairs: list[Pair] = []
    lines = []
    for entry in entries:
        unknown = set(entry) - {"vary", "baseline", "variants", "where"}
        if unknown or "baseline" not in entry:
            raise ConfigError(
                f"primary: {dict(entry)}: an entry has baseline, vary, and if need be variants and where"
            )
        baseline = _mapping(entry, entry["baseline"])
        everywhere = list(range(len(variants.table))) if among is None else among
        chosen = _meeting(variants, entry.get("where", {}), everywhere)
        table = variants.table.iloc[chosen]
        there = all(_has(table, column_in(variants, key), value).any() for key, value in baseline.items())
        found = pair_up(variants, baseline, chosen, free=free) if there else []
        if entry.get("variants"):
            kept = {
                variant
                for values in entry["variants"]
                for variant in _meeting(variants, _mapping(entry, values), chosen)
            }
            found = [pair for pair in found if pair[0] in kept]
        if not found:
            where = f" where {_words(entry['where'])}" if entry.get("where") else ""
            lines.append(f"missing: the primary contrast with {_words(baseline)}{where} has no finished runs")
        pairs += [pair for pair in found if pair not in pairs]
    return pairs, lines


def has_baseline(entry: Mapping[str, Any], baseline: Mapping[str, Any]) -> bool:
    """Whether a primary entry has this baseline."""
    own = _mapping(entry, entry["baseline"])
    return {k: as_text(v) for k, v in own.items()} == {k: as_text(v) for k, v in baseline.items()}


def column_in(variants: Variants, key: str) -> str:
    """The column of a config key, among those that define variants: lr for train.lr. Raises ConfigError."""
    for column in (key, key.rpartition(".")[2]):
        if column in variants.columns:
            return column
    raise ConfigError(f"{key}: no column makes variants by it{did_you_mean(key, variants.columns)}")


def equal_forms(variants: Variants) -> list[tuple[str, ...]]:
    """(C,) keys, which are equal if two variants are the same function by construction: they have the same
    form, and are equal in every column that the form does not cover. A match counts by the resulting width:
    when matched by the MLP, equal parameters mean equal FLOPs.
    """
    apart = ("fusion", "normalize", *MATCH, *variants.options["fusion"])
    rest = [column for column in variants.columns if column not in apart]
    return [
        (row["form"] or form_of(row, variants.options["fusion"]), *(row[column] for column in rest))
        for row in variants.table.to_dict("records")
    ]


def same_classes(variants: Variants, pairs: Sequence[Pair]) -> list[bool]:
    """For each pair, whether both variants can learn the same functions although they are parametrized
    differently: equal function_class, and no other difference in what can be learned."""
    table = variants.table
    rest = table[[column for column in OF_THE_MODEL if column in variants.columns]]
    keys = list(zip(table["function_class"], *(rest[column] for column in rest), strict=True))
    return [
        bool(keys[one][0]) and keys[one] == keys[base] and bool({*apart.split()} - {*OF_TRAINING})
        for (one, base), apart in zip(pairs, differing(variants, pairs), strict=True)
    ]


def unknown_forms(variants: Variants) -> list[str]:
    """A line if there are variants whose form is neither in their rows nor known to this program."""
    unknown = variants.table["form"].eq("") & ~variants.table["fusion"].isin(METHODS)
    names = ", ".join(f"fusion={name}" for name in variants.table.loc[unknown, "fusion"].unique())
    return only_if(names, f"equal forms are not known for {names} (rows without the column form)")


def named_after_form(variants: Variants, variant: int, form: tuple[str, ...]) -> bool:
    """Whether the variant has the name of its form: sum does, a normalized mean does not."""
    return str(variants.table.at[variant, "fusion"]) == form[0].split()[0]


def differing(variants: Variants, pairs: Sequence[Pair]) -> list[str]:
    """For each pair, the columns in which its variants differ, separated by spaces."""
    varying = [column for column in variants.columns if variants.table[column].nunique() > 1]
    rows = list(variants.table[varying].itertuples(index=False, name=None))
    return [
        " ".join(c for c, a, b in zip(varying, rows[v], rows[base], strict=True) if a != b)
        for v, base in pairs
    ]


def _is_reference(row: "pd.Series[Any]") -> bool:
    """Whether a model is the reference that others are matched to (ablate.model.resolve.reference), so that
    matching changes nothing."""
    row = row.reindex(
        ["fusion", "out_proj", "match", "heads", "d_model", "value_width", "key_width", "mlp_hidden"]
    )
    try:
        heads, d, v, k, m = (
            float(row[c]) for c in ("heads", "d_model", "value_width", "key_width", "mlp_hidden")
        )
    except (TypeError, ValueError):
        return False
    narrow = heads * v == heads * k == d
    return row["fusion"] == STANDARD_FUSION and row["out_proj"] == "true" and narrow and m == 4 * d


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


def _meeting(variants: Variants, where: Mapping[str, Any], among: Sequence[int]) -> list[int]:
    table = variants.table.iloc[list(among)]
    for key, value in where.items():
        column, values = column_in(variants, key), value if isinstance(value, list) else [value]
        table = table[np.any([_has(table, column, one) for one in values], axis=0)]
    return [int(variant) for variant in table.index]


def _has(table: pd.DataFrame, column: str, value: Any) -> pd.Series:
    """Whether each variant has this value, where narrow and wide stand for the numbers that rows have."""
    named = (column, as_text(value))
    if named not in NARROW | WIDE or not {"d_model", "heads"} <= {*table.columns}:
        return table[column] == as_text(value)
    width, d_model, heads = (pd.to_numeric(table[c], errors="coerce") for c in (column, "d_model", "heads"))
    return width == (d_model / heads if named in NARROW else d_model)


def _mapping(entry: Mapping[str, Any], value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    if "vary" not in entry:
        raise ConfigError(f"primary: {dict(entry)}: vary names the key that baseline {value} is a value of")
    return {entry["vary"]: value}


def _levels(table: pd.DataFrame, wanted: Mapping[str, str]) -> str:
    return "; ".join(f"{key}={', '.join(sorted(table[key].unique()))}" for key in wanted)


def _words(mapping: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={as_text(value)}" for key, value in mapping.items())
