"""A variant: what is compared, by what it sets; the one place where its names are made."""

import functools
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from ablate.config.conditions import column_for
from ablate.phrases import SEEN, lines_if, visible
from ablate.store.columns import WIDTHS
from ablate.store.frames import SIMULATED, as_texts, is_foreign, spellings, with_options

NO_TERMS: Mapping[str, str] = {}
# The columns that readers look for first: always shown, and the last to be dropped in a narrow terminal.
FACTORS = ("fusion", "heads", "out_proj")
BY_ITSELF = ("fusion",)  # a level of these columns needs no column beside it


@dataclass(frozen=True, eq=False)
class Variant:
    """levels: of each column that tells variants apart, as text, in the order of a comparison. arm: its name
    in a tuned study; empty if it has none. kind: what its names begin with, if no model was trained.
    difference: of a difference that stands like a variant, the columns in which its two sides differ."""

    levels: Mapping[str, str]
    arm: str = ""
    kind: str = ""
    difference: Collection[str] = ()

    @cached_property
    def name(self) -> str:
        """The name in tables: fusion=sum heads=4. No two variants of a comparison share one."""
        levels = (f"{_column(column)}={in_name(level)}" for column, level in self.levels.items())
        return " ".join([*lines_if(self.kind, self.kind), *levels])

    def label(
        self,
        columns: Collection[str] | None = None,
        *,
        terms: Mapping[str, str] = NO_TERMS,
        pattern: str = "{}={}",
        between: str = " ",
        bare: Collection[str] = BY_ITSELF,
    ) -> str:
        """The levels of these columns, by default of all, as far as there are any: sum heads=4. terms: words
        for its arm or for levels. pattern: of a column with its level. bare: columns whose levels stand by
        themselves."""
        if terms.get(self.arm):
            return terms[self.arm]
        kept = [(c, level) for c, level in self.levels.items() if level and (columns is None or c in columns)]
        return between.join(
            terms.get(level) or (in_name(level) if c in bare else pattern.format(c, in_name(level)))
            for c, level in kept
        )

    def title(self, columns: Collection[str], **how: Any) -> str:
        """Its name in a row or a chart: that of its arm or, without one, the levels of these columns. how: as
        of `label`."""
        return self.arm or self.label(columns, **how)

    def differing(self, other: "Variant") -> list[str]:
        """The columns in which the two differ."""
        return [column for column, level in self.levels.items() if level != other.levels.get(column)]


def variants_of(texts: pd.DataFrame, shown: Sequence[str]) -> list[Variant]:
    """The variant of each row, by the shown columns, which hold text."""
    kind = SIMULATED if "processor" in texts and texts["processor"].eq(SIMULATED).any() else ""
    rows = texts[[*shown]].itertuples(index=False, name=None)
    return [Variant(dict(zip(shown, row, strict=True)), kind=kind) for row in rows]


def names(rows: pd.DataFrame, shown: Sequence[str]) -> pd.Series:
    """The name of each row's variant, as in a comparison that shows these columns."""
    read = spellings if is_foreign(rows) else as_texts
    texts = with_options(rows)[[*dict.fromkeys([*shown, "processor"])]].apply(read)
    return pd.Series([one.name for one in variants_of(texts, shown)], index=rows.index, dtype=object)


def names_of_runs(rows: pd.DataFrame, shown: Sequence[str]) -> pd.Series:
    """The names of variants by run_id, of the rows that have one."""
    rows = rows[rows["run_id"].notna()]
    return names(rows, shown).set_axis(rows["run_id"].astype(str))


def varying(variants: Iterable[Variant]) -> list[str]:
    """The columns in which these differ."""
    each = [one.levels for one in variants]
    return [column for column in each[0] if len({levels.get(column) for levels in each}) > 1] if each else []


def distinguishing(table: pd.DataFrame, columns: Sequence[str], asked: Collection[str] = ()) -> list[str]:
    """The columns needed to tell the variants apart: always FACTORS and `asked`, if known, and no column that
    follows from the others, such as key_width from heads. Widths are dropped first, since they usually
    follow. A tuned value differs from arm to arm, so it tells no arms apart, only variants of one arm."""
    factors = [one for one in columns if one in (*FACTORS, *asked) and table[one].ne("").any()]
    kept = [column for column in columns if column in factors or table[column].nunique(dropna=False) > 1]
    of_tuned = {column_for(str(key)) for key in table["tuned"]} if "tuned" in table else set()
    tuned = [column for column in kept if column in of_tuned]
    settings = [column for column in kept if column not in tuned]
    arms = table.drop_duplicates(settings)
    for column in sorted(reversed(settings), key=lambda column: column not in WIDTHS):
        rest = [other for other in settings if other != column]
        if column not in factors and rest and not arms.duplicated(rest).any():
            settings = rest
    needed = {*settings, *(tuned if table.duplicated(settings).any() else [])}
    return [column for column in kept if column in needed]


def as_pairs(levels: Mapping[Any, str]) -> str:
    """K=V,K=V as --baseline takes it."""
    return ",".join(f"{_column(column)}={in_name(level)}" for column, level in levels.items())


@functools.cache
def in_name(level: str) -> str:
    """A level as it stands in a name: if it might be read as something else, between quotation marks."""
    read_otherwise = (
        re.search(rf"""^['"]|=| · |\\u|\s(and|or)\s|[{SEEN}]""", level) or visible(level) != level
    )
    return _marked(level) if read_otherwise else level


@functools.cache
def _column(column: str) -> str:
    return column if re.fullmatch(r"\w+", column) else _marked(column)


def _marked(text: str) -> str:
    return visible(json.dumps(text, ensure_ascii=False))
