"""The form of a row that has none: of a run made before the column, or of somebody else's table.

A method declares its form, and its runs carry it (ablate.model.fusion). This is the same rule for the five
first methods, read from the text of a row, without torch; the tests hold it against what they declare. A new
method has nothing to add here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

METHODS = ("concat", "sum", "mean", "weighted_sum", "grouped")


def form_of(row: Mapping[Any, str], options: Sequence[str]) -> str:
    """NAME key=value …, for a method that is not in METHODS its own name and options. row: of texts."""
    fusion, heads, groups = row["fusion"], row["heads"], row.get("groups", "")
    normalize = row.get("normalize") or "none"
    if fusion in METHODS and (
        fusion == "concat" or heads == "1" or (fusion == "grouped" and groups == heads)
    ):
        return "concat"
    is_sum = (fusion == "grouped" and groups == "1") or (fusion == "mean" and normalize == "variance")
    if fusion == "sum" or is_sum:
        return f"sum normalize={normalize}"
    given = {"normalize": normalize, **{option: row[option] for option in options if row[option]}}
    return " ".join([fusion, *(f"{key}={value}" for key, value in sorted(given.items()))])
