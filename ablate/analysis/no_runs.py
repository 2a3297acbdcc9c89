"""What is no run of its own in a table of another program: rows that sum up others, rows that stand twice,
copies under another seed; and arms that the seed never reached. Rows of ablate's own are known by their ids,
and exempt."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from ablate.analysis import replicas
from ablate.analysis.numbers import as_numbers, can_be_numbers
from ablate.analysis.stats import Array, moments
from ablate.analysis.variants import Variants
from ablate.config.rules import ConfigError
from ablate.phrases import Note, counted, first_few, joined
from ablate.store.columns import of_role
from ablate.store.frames import FILE, REPLICATE, matching

PLACES = ("value", "variant_", "unit_", "usable", "lost")
# Words that stand where a seed or a task does, in rows that sum up the others: the first may name a task.
SUMS = r"median|total|sum|all|min|max|minimum|maximum|count|best|worst|summary|aggregated?|ci|macro|micro"
MEANS = r"((grand|macro|micro|weighted)[ _-]?)?(mean|avg|average)|std(ev|err)?|sd|sem|stderr|overall|μ|σ"
SUMMARY = re.compile(rf"({SUMS}|{MEANS})(\W.*|_.*)?", re.IGNORECASE)
MEAN = re.compile(rf"({MEANS})(\W.*|_.*)?", re.IGNORECASE)
# When a run was, and what it took: by these, two rows of one result may differ.
OF_TIME = re.compile(
    r".*(time|date|created|updated|second|elapsed|wall|duration|latency|memory|gpu|cpu|speed|per_s|throughput).*"
    r"|_?(s|ms)|run_?id|run_?name|name",
    re.IGNORECASE,
)
ORDINAL = re.compile(r".*(\b|_)(id|index|step|epoch|line|row|rank|no|nr)", re.IGNORECASE)


def without_summaries(
    keyed: pd.DataFrame, columns: Sequence[str], rows: pd.DataFrame
) -> tuple[pd.DataFrame, list[Note]]:
    """The rows without those whose seed, or level of what pairs, is a word for several, and a line on them.
    Among numbers any word is one."""
    kept, said = pd.Series(True, keyed.index), list[Note]()
    for column in columns:
        levels = pd.Series(keyed[column].unique())
        numeric = pd.to_numeric(levels, errors="coerce").notna()
        named = levels.map(lambda level: bool(SUMMARY.fullmatch(str(level))))
        words = levels.str.fullmatch(r"[^\d\s][^\d]*")
        odd = ~numeric & (named | (words & (words.sum() < numeric.sum())))
        if not numeric.any():
            odd = levels.map(lambda level: bool(MEAN.fullmatch(str(level))))
        if odd.any() and not odd.all():
            of = keyed[column].isin(levels[odd])
            names = first_few([f"{column}={level}" for level in levels[odd]])
            said.append(Note(f"{counted(int(of.sum()), 'row')} of {names}: of several runs", "left out"))
            kept &= ~of
    return keyed[kept], said


def once(keyed: pd.DataFrame, place: Sequence[str]) -> tuple[pd.DataFrame, list[Note]]:
    """The rows without those that repeat another of their place in every value but its time, and a line."""
    if not keyed.duplicated([*place, "value"]).any():
        return keyed, []
    given = keyed.columns[keyed.notna().any()]
    same = [key for key in given if key != FILE and not OF_TIME.fullmatch(str(key))]
    again = keyed.duplicated([*dict.fromkeys([*place, "value"])]) & keyed[same].astype(str).duplicated()
    count = int(again.sum())
    line = f"{counted(count, 'row')} that {'stands' if count == 1 else 'stand'} twice"
    return keyed[~again], [Note(line, "left out")] if count else []


def measures_of(keyed: pd.DataFrame, placed: set[str]) -> list[Array]:
    """(N,) each of what else was measured, of which copies have the same."""
    free = keyed.columns[keyed.notna().any()].difference([*placed, *PLACES, *of_role("identity"), FILE])
    names = [key for key in map(str, free) if not (OF_TIME.fullmatch(key) or ORDINAL.fullmatch(key))]
    names = [key for key in names if not REPLICATE.fullmatch(key) and can_be_numbers(keyed[key])]
    return [as_numbers(keyed, key, str).to_numpy(float) for key in names]


def checked(variants: Variants, measures: Sequence[Array], fixed: Mapping[str, str] | None) -> Variants:
    """The variants without copies, with what is known beforehand (fixed) and what never varies, and notes on
    them. measures: (C, S) each, what else was measured. Raises ConfigError."""
    if variants.sampled:
        return replace(variants, fixed=_known(variants, variants.values, fixed))
    sure_CS, perhaps_CS = replicas.copies([variants.values, *measures])
    said = [*variants.notes]
    if sure_CS.any():
        line = f"{counted(int(sure_CS.sum()), 'run')} that {_copied(variants, sure_CS)}"
        said.append(Note(f"{line}: copies, which count once", "left out"))
    elif perhaps_CS.any():
        count = counted(int(perhaps_CS.sum()), "run")
        line = f"{count} that {_copied(variants, perhaps_CS)}, as copies do"
        said.append(Note(line, "doubt", "perhaps copies"))
    values = np.where(sure_CS, np.nan, variants.values)
    if variants.paired:
        for at in replicas.means_of_others(values):
            unit = _unit(variants, at)
            text = f"{unit} is the mean of the others in every variant, so it may be no run"
            said.append(Note(text, "doubt", f"{unit} looks like a mean"))
    known = _known(variants, values, fixed)
    constant = replicas.constant(values) & np.isnan(known)
    return replace(variants, values=values, fixed=known, constant=constant, copied=sure_CS, notes=said)


def _copied(variants: Variants, of_CS: Array) -> str:
    """Whose runs repeat another of their variant."""
    names = [variants.names[at] for at in np.flatnonzero(of_CS.any(1))]
    return f"repeat another of {joined(names[:3])} to the last digit"


def _unit(variants: Variants, at: int) -> str:
    return " ".join(f"{key}={value}" for key, value in variants.seeds.iloc[at].items())


def _known(variants: Variants, values: Array, fixed: Mapping[str, str] | None) -> Array:
    """(C,) the values of the variants that are known without scatter; NaN for others. Raises ConfigError."""
    known = np.full(len(values), np.nan)
    if fixed:
        option = f"--fixed {','.join(f'{key}={value}' for key, value in fixed.items())}"
        is_fixed = matching(variants.table, fixed, option, variants.columns)
        if not is_fixed.any():
            raise ConfigError(f"{option}: no such variant; choices: {first_few(variants.names, 8)}")
        for at in np.flatnonzero(is_fixed):
            n, mean, _ = moments(values[at : at + 1])
            if n[0] > 1 and not replicas.constant(values[at : at + 1])[0]:
                raise ConfigError(
                    f"{option}: it has {n[0]} different values, so it is not known; leave it out"
                )
            known[at] = mean[0]
    return known
