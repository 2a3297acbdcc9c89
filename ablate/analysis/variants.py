"""Variants by what they set, and their results as arrays: variants times units."""

import functools
import itertools
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from ablate.analysis.foreign import FOLDS, STEPS
from ablate.analysis.stats import Array, bimodal, moments
from ablate.config.conditions import column_for
from ablate.config.rules import ConfigError, did_you_mean
from ablate.config.schema import PARTS
from ablate.phrases import SEEN, Note, lines_if, visible
from ablate.store.columns import CONFIG_COLUMNS, WIDTHS, Status, column_named, of_group
from ablate.store.frames import SIMULATED, as_texts, is_foreign, option_names, spellings, with_options

# The columns that readers look for first: always shown, and the last to be dropped in a narrow terminal.
FACTORS = ("fusion", "heads", "out_proj")
_PLACE = re.compile(r"(?:^| )(?=[\w.]+=)")  # what begins each key and value of an arm's place
BY_ITSELF = ("fusion",)  # a level of these columns needs no column beside it


@dataclass(frozen=True, eq=False)
class Variant:
    """levels: of each column that tells variants apart, as text, in the order of a comparison. arm: its name
    in a tuned study; empty if it has none. place: the columns by whose levels arms of this name are told
    apart. kind: what its names begin with, if no model was trained. difference: of a difference that stands
    like a variant, the columns in which its two sides differ."""

    levels: Mapping[str, str]
    arm: str = ""
    place: Sequence[str] = ()
    kind: str = ""
    difference: Collection[str] = ()

    @cached_property
    def name(self) -> str:
        """The name in tables: fusion=sum heads=4. No two variants of a comparison share one."""
        levels = (f"{_column(column)}={in_name(level)}" for column, level in self.levels.items())
        return " ".join([*lines_if(self.kind, self.kind), *levels])

    def label(
        self, columns: Collection[str], *, terms: Mapping[str, str] = {}, bare: Collection[str] = BY_ITSELF
    ) -> str:
        """The levels of these columns, as far as there are any, else as null: sum heads=4. terms: words for
        its arm or for levels. bare: columns whose levels stand by themselves."""
        if terms.get(self.arm) and not self.place:
            return terms[self.arm]
        asked = [(c, level) for c, level in self.levels.items() if c in columns]
        kept = [(c, level) for c, level in asked if level] or [(c, "null") for c, _ in asked]
        return " ".join(
            terms.get(level) or (in_name(level) if c in bare else f"{c}={in_name(level)}")
            for c, level in kept
        )

    def title(self, columns: Collection[str], **how: Any) -> str:
        """Its name in a row or a chart: that of its arm at its place or, without one, the levels of these
        columns. how: as of `label`."""
        return f"{self.arm} {self.label(self.place)}".rstrip() if self.arm else self.label(columns, **how)

    def differing(self, other: "Variant") -> list[str]:
        """The columns in which the two differ."""
        return [column for column, level in self.levels.items() if level != other.levels.get(column)]

    def minus(self, other: "Variant") -> "Variant":
        """The difference of the two, which stands like a variant."""
        apart = self.differing(other)
        levels = {name: f"{self.levels[name]} - {other.levels[name]}" for name in apart}
        arm = f"{self.arm} - {other.arm}" if self.arm and self.place and self.place == other.place else ""
        return replace(self, levels={**self.levels, **levels}, arm=arm, difference=apart)

    def called(self, arm: str, shared: Collection[str]) -> "Variant":
        """The variant as this arm of a study: a name, if it has one, and where there are several arms of that
        name, the keys and values that tell these apart, as `mine model=rung/r4`, but for those `shared`."""
        name, *place = _PLACE.split(arm)
        is_shared = {column_for(one.partition("=")[0]): one in shared for one in place}
        columns = [column for column, of in is_shared.items() if not of or column not in self.levels]
        is_known = all(of or column in self.levels for column, of in is_shared.items())
        return replace(self, arm=name, place=columns) if is_known else replace(self, arm=arm)


def variants_of(texts: pd.DataFrame, shown: Sequence[str]) -> list[Variant]:
    """The variant of each row, by the shown columns, which hold text."""
    kind = SIMULATED if "processor" in texts and texts["processor"].eq(SIMULATED).any() else ""
    rows = texts[[*shown]].itertuples(index=False, name=None)
    return [Variant(dict(zip(shown, row, strict=True)), kind=kind) for row in rows]


def names(rows: pd.DataFrame, shown: Sequence[str]) -> pd.Series:
    """The name of each row's variant, by run_id, as in a comparison that shows these columns."""
    read = spellings if is_foreign(rows) else as_texts
    texts = with_options(rows)[[*dict.fromkeys([*shown, "processor"])]].apply(read)
    return pd.Series([one.name for one in variants_of(texts, shown)], rows["run_id"], dtype=object)


def varying(variants: Iterable[Variant]) -> list[str]:
    """The columns in which these differ."""
    each = [one.levels for one in variants]
    return [column for column in each[0] if len({levels.get(column) for levels in each}) > 1] if each else []


def distinguishing(table: pd.DataFrame, columns: Sequence[str], asked: Collection[str] = ()) -> list[str]:
    """The columns needed to tell the variants apart: always FACTORS and `asked`, if known, and the name of a
    text; no column that follows from the others, such as key_width from heads. Widths and fingerprints are
    dropped first, since they usually follow. A tuned value tells no arms apart, only variants of one arm."""
    factors = [one for one in columns if one in (*FACTORS, *asked) and table[one].ne("").any()]
    kept = [column for column in columns if column in factors or table[column].nunique(dropna=False) > 1]
    of_tuned = {column_for(str(key)) for key in table["tuned"]} if "tuned" in table else set()
    tuned = [column for column in kept if column in of_tuned]
    settings = [column for column in kept if column not in tuned]
    arms = table.drop_duplicates(settings)
    for column in sorted(reversed(settings), key=lambda column: column not in (*WIDTHS, "corpus_sha256")):
        rest = [other for other in settings if other != column]
        if column not in (*factors, "corpus") and rest and not arms.duplicated(rest).any():
            settings = rest
    needed = {*settings, *(tuned if table.duplicated(settings).any() else [])}
    return [column for column in kept if column in needed]


def as_pairs(levels: Mapping[Any, str]) -> str:
    """K=V,K=V as --baseline takes it."""
    return ",".join(f"{_column(column)}={in_name(level) or 'null'}" for column, level in levels.items())


@functools.cache
def in_name(level: str) -> str:
    """A level as it stands in a name: if it might be read as something else, between quotation marks."""
    is_odd = re.search(rf"""^['"]|=| · |\\u|\s(and|or)\s|[{SEEN}]""", level) or visible(level) != level
    return _marked(level) if is_odd else level


@functools.cache
def _column(column: str) -> str:
    return column if re.fullmatch(r"\w+", column) else _marked(column)


def _marked(text: str) -> str:
    return visible(json.dumps(text, ensure_ascii=False))


USABLE = (Status.DONE, Status.STALE)
TEXT_COLUMNS = of_group("corpus")
COUNTING = {"val_loss": "ngram_val_loss", "test_loss": "ngram_loss"}  # the column with the loss of counting
PROGRAM = ("numerics", "torch", "processor")  # a run has other losses under each
OWN_CODE = "parts"  # the column with the versions of its methods
MARKS = (*PROGRAM, "threads", OWN_CODE)
CARRIED = (
    *("fusion", "heads"),
    *("form", "function_class", "params", "tuned", "run_id", "processor", "corpus_sha256"),
    *("epochs", "overlap", "ngram_order", "ngram_val_loss", "ngram_loss"),
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """C variants by what they set. table: C rows of text, with the `columns` that define a variant, and with
    others. options: the option columns of each kind of part. is_foreign: whether another program made them.
    free: columns in which what is compared may differ, as in a learning rate that each variant has its own
    value of."""

    columns: list[str]
    options: dict[str, list[str]]
    table: pd.DataFrame
    is_foreign: bool
    free: Sequence[str] = ()

    @property
    def labels(self) -> list[str]:
        """The names without what follows from the rest, or is the same in all."""
        each = variants_of(self.table, distinguishing(self.table, self.columns))
        shown = varying(each)
        return [one.label(shown) for one in each]


@dataclass(frozen=True, kw_only=True)
class Variants(Settings):
    """C variants with S units.

    table: also with the CARRIED columns, each from the first run that has a value, finished runs first.
    shown: the columns that suffice to tell the variants apart. values: (C, S), the metric; NaN without a
    finished run. fixed: (C,), NaN but for a value that has no scatter. constant: (C,), which have one value
    at every seed. copied: (C, S), which repeat another. diverged: (C, S), also true for infinite results.
    run_ids: (C, S), text. seeds: S rows, what a unit is called, as text in each of its columns. paired:
    whether equal places in S are equal units; else they mean nothing. items: what a value is a mean over, as
    in `100 documents`; empty for single rows. sampled: the column whose values were sampled, where each
    variant is one run. twin: (C, S), the same metric of the validation split, if it has one. measures: (C, S)
    each, what else another program measured. marks: (C, S) each, columns that say how a row came about:
    MARKS, or what is left over. notes: on rows that are no runs. arms: by run id, what a study calls the
    variant. margin: of the question. waiting, unfinished: of each study whose runs have not all ended, or not
    all have a result, how many have.
    """

    metric: str
    higher_is_better: bool | None
    shown: list[str]
    values: Array
    fixed: Array
    constant: Array
    copied: Array
    diverged: Array
    run_ids: Array
    seeds: pd.DataFrame
    paired: bool
    items: str
    sampled: str
    twin: Array | None
    measures: Sequence[Array]
    marks: Mapping[str, Array]
    notes: list[Note]
    arms: Mapping[str, str] = field(default_factory=dict)
    margin: float = np.nan
    waiting: Mapping[str, str] = field(default_factory=dict)
    unfinished: dict[str, str] = field(default_factory=dict)

    @property
    def ran(self) -> Array:
        """(C, S) which runs have ended with a number, or diverged."""
        return np.isfinite(self.values) | self.diverged

    @property
    def unit(self) -> str:
        """What is counted: a seed, or what was sampled."""
        name = str(self.seeds.columns[0])
        return self.sampled or ("seed" if "seed" in name.lower() else name if self.paired else "run")

    @property
    def scope(self) -> str:
        """What a verdict is about, where each variant is one run: these models, over what was sampled."""
        if not self.sampled or self.together:
            return ""
        count = {2: "two"}.get(len(self.table), str(len(self.table)))
        return f"over {self.sampled}s, of these {count} models"

    @property
    def together(self) -> str:
        """Why units are not independent, if they are parts of one training; else empty."""
        shared = {FOLDS: "share their training data", STEPS: "are of one run"} if self.paired else {}
        names = [*map(str, self.seeds)]
        parts = (f"{self.unit}s {of}" for kind, of in shared.items() if any(map(kind.fullmatch, names)))
        return next(parts, "")

    @property
    def judged(self) -> Array:
        """(C, S) the values, with what is fixed at every unit."""
        return np.where(np.isnan(self.fixed)[:, None], self.values, self.fixed[:, None])

    @cached_property
    def crossed(self) -> bool:
        """Whether seeds of two streams are crossed, as seeds.backbone=0,1 seeds.data=0,1 are: four runs, but
        two draws of each, so they are not independent."""
        of_ours = [column for column in ("seed_backbone", "seed_data") if column in self.seeds]
        several = itertools.combinations([*map(str, self.seeds)] if self.is_foreign else of_ours, 2)
        return any(
            min(self.seeds.groupby(one)[other].nunique().max() for one, other in (two, two[::-1])) > 1
            for two in several
        )

    @cached_property
    def mean(self) -> Array:
        """(C,) of the values."""
        return moments(self.values)[1]

    def minor(self, values_KS: Array, of: int) -> Array:
        """(K, S) which of each row are in the smaller of two groups of seeds, if it has two; of resources,
        and of what was sampled, none. of: how many rows are looked at in all."""
        if column_named(self.metric).role == "resource" or self.sampled:
            return np.zeros(values_KS.shape, bool)
        return np.array([bimodal(values, of) for values in values_KS])

    @cached_property
    def untrained(self) -> Array:
        """(C,) which, unmixed, are nearer to guessing than to counting; none by a metric without counting."""
        mean, of = self.mean, self.metric
        if of == "mix_loss" and self.twin is not None:
            mean, of = moments(self.twin)[1], "val_loss"
        if self.is_foreign or of not in COUNTING:
            return np.zeros(len(self.table), bool)
        figures = self.table.reindex(columns=[COUNTING[of], "vocab"])
        counting, vocabulary = (pd.to_numeric(figures[at], errors="coerce").astype(float) for at in figures)
        return np.asarray(mean > (counting + np.log(vocabulary)) / 2)

    @cached_property
    def texts(self) -> list[str]:
        """(C,) what each was trained on, by hash, where the metric is a loss; else all alike."""
        is_loss = column_named(self.metric).unit == "nats"
        return [text * is_loss for text in as_texts(self.table["corpus_sha256"])]

    @cached_property
    def each(self) -> list[Variant]:
        arms = [[*filter(None, map(self.arms.get, ids))][-1:] for ids in self.run_ids.tolist()]
        each = variants_of(self.table, self.shown)
        places, apart = [{*_PLACE.split(arm)[1:]} for of in arms for arm in of], varying(each)
        everywhere = set[str]().union(*places).intersection(*places)
        shared = [one for one in everywhere if column_for(one.partition("=")[0]) not in apart]
        return [one.called(arm[0], shared) if arm else one for one, arm in zip(each, arms, strict=True)]

    @cached_property
    def names(self) -> list[str]:
        return [one.name for one in self.each]

    @property
    def titles(self) -> list[str]:
        """The names without what all share."""
        columns = varying(self.each) or self.shown
        return [one.title(columns) for one in self.each]

    def levels_of(self, given: Mapping[str, str | None], option: str) -> dict[str, Any]:
        """Levels by column, as given or, where a variant is given by its name, as those with this name share
        them. The name is that of an arm, one as a table prints it or, where one column alone varies, a level.
        Raises ConfigError."""
        text = " ".join(key if level is None else f"{key}={level}" for key, level in given.items())
        varied = varying(self.each)
        bare = varied if len(varied) == 1 else BY_ITSELF
        called = [{one.name, one.title(varied), one.title(varied, bare=bare)} for one in self.each]
        called = [of.union(map(self.arms.get, ids)) for of, ids in zip(called, self.run_ids, strict=True)]
        if not (at := [c for c, names in enumerate(called) if text in names]):
            if None not in given.values():
                return {**given}
            there = [one.title(varied, bare=bare) for one in self.each]
            raise ConfigError(f"{option} {text}: neither K=V[,K=V] nor a variant{did_you_mean(text, there)}")
        named = self.table.iloc[at]
        kept = [c for c in self.columns if c not in self.free and self.table[c].nunique() > 1]
        return {column: named[column].iloc[0] for column in kept if named[column].nunique() == 1}

    def best_first(self) -> pd.DataFrame:
        """One row per variant, best first: variant, the shown columns, params, n, diverged, mean, sd."""
        n, mean, sd = moments(self.values)
        table = self.table[[*dict.fromkeys([*self.shown, "params"])]].drop(columns="variant", errors="ignore")
        table.insert(0, "variant", self.names)
        table = table.assign(n=n, diverged=self.diverged.sum(1), mean=mean, sd=sd)
        ascending = [not self.higher_is_better, True]
        return table.sort_values(["mean", "variant"], ascending=ascending, ignore_index=True)


def settings_of(rows: pd.DataFrame) -> Settings:
    """The variants of these rows by what they set, whether or not there are results."""
    rows = with_options(rows)
    columns = setting_columns(rows)
    table = rows.assign(**{column: as_texts(rows[column]) for column in columns}).drop_duplicates(columns)
    table = table.reset_index(drop=True)
    return Settings(columns=columns, options=options_of(rows), table=table, is_foreign=is_foreign(rows))


def options_of(rows: pd.DataFrame) -> dict[str, list[str]]:
    return {kind: option_names(rows, kind) for kind in PARTS}


def setting_columns(rows: pd.DataFrame) -> list[str]:
    """The columns that define a variant: those of the config, with a column for each option of its parts. A
    text is known by its name, where this says as much as its fingerprint."""
    options = {f"{kind}_options": names for kind, names in options_of(rows).items()}
    config = (options.get(column, [column]) for column in CONFIG_COLUMNS)
    columns = [*dict.fromkeys(itertools.chain.from_iterable(config))]
    texts = rows[["corpus", *TEXT_COLUMNS]].drop_duplicates().astype(str).drop_duplicates()
    if len(texts) > 1:
        more = [] if texts["corpus"].is_unique else TEXT_COLUMNS
        columns = [*(one for one in columns if one in more or one not in TEXT_COLUMNS), "corpus"]
    return columns
