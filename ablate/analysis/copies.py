"""Values that are no run of their own: copies, and means of the others; and arms that never vary.

Two runs of one arm may agree by chance, as where a metric has ten values. So copies are told by how many
agree: more than would in one of 1,000 tables, given the steps in which the metric comes and its scatter.

Shapes: C variants, S units; NaN without a value.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ablate.analysis.stats import Array, moments
from ablate.analysis.variants import Variants
from ablate.config.rules import ConfigError
from ablate.phrases import Note, counted, first_few, joined
from ablate.store.frames import matching, row_in_words

SURE = 1e-3  # the probability by chance below which equal values are copies
PERHAPS = 0.05  # below which they may be
NEAR = 1e-9  # relative: two ways to compute one number


def checked(variants: Variants, fixed: Mapping[str, str] | None) -> Variants:
    """The variants without copies, with what is known beforehand (fixed) and what never varies, and notes on
    them. Raises ConfigError."""
    if variants.sampled:
        return replace(variants, fixed=_known(variants, variants.values, fixed))
    sure_CS, perhaps_CS = copies([variants.values, *variants.measures])
    said = [*variants.notes]
    if sure_CS.any():
        said.append(Note(f"{_repeating(variants, sure_CS)}: copies, which count once", "left out"))
    elif perhaps_CS.any():
        line = f"{_repeating(variants, perhaps_CS)}, as copies do"
        said.append(Note(line, "doubt", "perhaps copies"))
    values = np.where(sure_CS, np.nan, variants.values)
    if variants.paired:
        for at in means_of_others(values):
            unit = row_in_words(variants.seeds.iloc[at], map(str, variants.seeds))
            text = f"{unit} is the mean of the others in every variant, so it may be no run"
            said.append(Note(text, "doubt", f"{unit} looks like a mean"))
    known = _known(variants, values, fixed)
    still = constant(values) & np.isnan(known)
    return replace(variants, values=values, fixed=known, constant=still, copied=sure_CS, notes=said)


def _repeating(variants: Variants, of_CS: Array) -> str:
    """How many runs repeat another of their variant, and of which."""
    names = [variants.names[at] for at in np.flatnonzero(of_CS.any(1))]
    return f"{counted(int(of_CS.sum()), 'run')} that repeat another of {joined(names[:3])} to the last digit"


def _known(variants: Variants, values: Array, fixed: Mapping[str, str] | None) -> Array:
    """(C,) the values of the variants that are known without scatter; NaN for others. Raises ConfigError."""
    if not fixed:
        return np.full(len(values), np.nan)
    fixed = variants.levels_of(fixed, "--fixed")
    option = f"--fixed {','.join(f'{key}={value}' for key, value in fixed.items())}"
    is_fixed = matching(variants.table, fixed, option, variants.columns)
    if not is_fixed.any():
        raise ConfigError(f"{option}: no such variant; choices: {first_few(variants.names, 8)}")
    n, mean, _ = moments(values)
    if len(several := n[is_fixed & (n > 1) & ~constant(values)]):
        raise ConfigError(f"{option}: it has {several[0]} different values, so it is not known; leave it out")
    return np.where(is_fixed, mean, np.nan)


def constant(values_CS: Array) -> Array:
    """(C,) which have several values, all the same."""
    n, _, sd = moments(values_CS)
    scale = np.nanmax(np.abs(np.where(np.isnan(values_CS), 0, values_CS)), 1)
    return (n >= 2) & ~(sd > NEAR * scale)


def equal(columns: Sequence[Array]) -> Array:
    """(C, S) the first unit of each variant that has the same values in all columns (C, S); itself for most,
    and where the first column has none. NaN equals NaN in the others."""
    C, S = columns[0].shape
    first_CS = np.tile(np.arange(S), (C, 1))
    for c in range(C):
        seen: dict[tuple[object, ...], int] = {}
        for s in np.flatnonzero(np.isfinite(columns[0][c])):
            key = tuple("nan" if value != value else value for value in (of[c, s] for of in columns))
            first_CS[c, s] = seen.setdefault(key, int(s))
    return first_CS


def copies(columns: Sequence[Array]) -> tuple[Array, Array]:
    """(C, S) which values are copies of another of their variant, as chance can't explain how many agree; and
    (C, S) which agree with another, but may do so by chance. The first of the columns (C, S) is the metric;
    copies agree in all of them. Constant variants have none."""
    from scipy.special import pdtrc

    values_CS = columns[0]
    varies_C = ~constant(values_CS)
    first_CS = equal(columns)
    again_CS = (first_CS != np.arange(first_CS.shape[1])) & varies_C[:, None]
    n_C = np.isfinite(values_CS).sum(1) * varies_C
    with np.errstate(divide="ignore", invalid="ignore"):  # normal values that are rounded agree so often
        each = np.array([_step(of) / (2 * math.sqrt(math.pi) * moments(of)[2]) for of in columns])
    p_C = np.where(each < 1, each, 1.0).min(0)
    # Twice the number that normal values come to, which a few seeds show too little of (Poisson).
    chance = pdtrc(again_CS.sum() - 1, (n_C * (n_C - 1) * p_C).sum()) if again_CS.any() else 1.0
    return again_CS & (chance < SURE), again_CS & (SURE <= chance < PERHAPS)


def means_of_others(values_CS: Array) -> list[int]:
    """The units whose value is the mean of all others in every variant, of two or more."""
    n, mean, sd = moments(values_CS)
    if len(values_CS) < 2 or (n < 3).any() or constant(values_CS).any():
        return []
    others_CS = (n[:, None] * mean[:, None] - values_CS) / (n[:, None] - 1)
    step = max(_step(values_CS), NEAR * float(np.nanmax(np.abs(values_CS))))
    by_chance = values_CS.shape[1] * np.prod(np.minimum(0.8 * step / sd, 1))
    near = np.abs(values_CS - others_CS) <= step
    return [int(at) for at in np.flatnonzero(near.all(0))] if by_chance < 10 * SURE else []


def _step(values_CS: Array) -> float:
    """The step in which values come: their least distance or a part of it, if all lie in such steps, as
    shares of ten do; else a unit of their last digit."""
    given = values_CS[np.isfinite(values_CS)]
    least_unit = NEAR * float(np.abs(given).max(initial=0)) or NEAR
    values = np.unique(np.round(given / least_unit)) * least_unit
    if len(values) < 2:
        return math.inf
    unit = max(next((10.0**-k for k in range(13) if _whole(given * 10.0**k)), 0), least_unit)
    values = values[np.diff(values, prepend=-math.inf) > 0.5 * unit]
    gaps = np.diff(values)
    if not len(gaps):
        return unit
    for parts in (1, 2, 3):
        steps = np.cumsum(np.round(gaps * parts / gaps.min()))
        step = float((steps * (values[1:] - values[0])).sum() / (steps**2).sum())
        off = np.abs(values[1:] - values[0] - steps * step)
        near = 1.5 * unit
        by_chance = 3 * min(2 * near / step, 1.0) ** (len(gaps) - 1)
        if step > 9 * unit and by_chance < SURE and (off <= near).all():
            return step
    return unit


def _whole(values: Array) -> bool:
    return bool((np.abs(values - np.round(values)) <= NEAR * np.maximum(np.abs(values), 1)).all())
