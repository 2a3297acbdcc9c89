"""The form of a row without the column `form`: of a run older than the column, or from a foreign table.

A method declares its form, which its runs record (ablate.model.fusion). This is the same rule for the five
oldest methods, computed from the text of a row, without torch; tests check that both agree. A new method
needs nothing here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

METHODS = ("concat", "sum", "mean", "weighted_sum", "grouped")


def form_of(row: Mapping[Any, str], options: Sequence[str]) -> str:
    """The form, NAME key=value …; for a method that is not in METHODS, its name and options. row: of
    texts."""
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
