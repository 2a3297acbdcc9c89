"""The interaction of heads and output projection: a difference of differences of four variants, one number
per seed, with a t-interval over seeds."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.analysis.contrasts import tuned_columns
from ablate.analysis.controls import more_diverged, otherwise_equal
from ablate.analysis.looks import Looks, spending
from ablate.analysis.variant import varying
from ablate.analysis.variants import Variants
from ablate.config.contrast import Contrast
from ablate.config.schema import STANDARD_FUSION


def projection_and_heads(
    variants: Variants, contrasts: Sequence[Contrast], looks: Looks | None, *, alpha: float
) -> pd.DataFrame:
    """Whether many heads need the projection: (L_h − L_1)_off − (L_h − L_1)_on for concat, one row per h and
    setting of all else, such as the steps; empty if no contrast is about one of them.

    The fewest heads in the rows, few, take the place of 1. Columns: effect, few, n (seeds), diff, sd, low,
    high (simultaneous; these rows are a family of their own), p, p_holm.
    more_diverged: on how many more seeds one variant diverged than another. at_few, with _low and _high:
    off − on with the fewest heads, NaN if one of these diverged on more seeds; at one head that is
    parametrization alone. looks: of a study that has any: each row spends what the look at its seeds does.
    """
    is_asked = any({"out_proj", "heads"} & contrast.baseline.keys() for contrast in contrasts)
    if not is_asked or any(variants.table[factor].nunique() < 2 for factor in ("heads", "out_proj")):
        return pd.DataFrame()
    few = min(variants.table["heads"].unique(), key=int)
    at_few, on = (otherwise_equal(variants, wanted) for wanted in ({"heads": few}, {"out_proj": "true"}))
    of_concat = (variants.table["fusion"] == STANDARD_FUSION) & (variants.table["out_proj"] == "false")
    blocks = [
        (many_off, few_off, on[many_off], on[few_off])
        for many_off, few_off in at_few.items()
        if of_concat.iloc[many_off]  # a readout by name is neither with the projection nor without it
        and {many_off, few_off} <= on.keys()
        and at_few.get(on[many_off]) == on[few_off]
    ]
    if not blocks:
        return pd.DataFrame()
    many = [variants.each[block[0]] for block in blocks]
    settings = [c for c in varying(many) if c not in ("heads", *tuned_columns(variants))]
    effects = [
        f"heads={one.levels['heads']} − heads={few}"
        + (f" at {label}" if (label := one.label(settings)) else "")
        for one in many
    ]
    many_off, few_off, many_on, few_on = (variants.values[[*side]] for side in zip(*blocks, strict=True))
    table = _tested(many_off - few_off - (many_on - few_on), looks, alpha)
    table.insert(0, "effect", effects)
    table["few"] = few
    table["more_diverged"] = [more_diverged(variants, block) for block in blocks]
    is_sound = np.array([[not more_diverged(variants, (block[1], block[3]))] for block in blocks])
    of_few = _tested(np.where(is_sound, few_off - few_on, np.nan), looks, alpha)
    table[["at_few", "at_few_low", "at_few_high"]] = of_few[["diff", "low", "high"]].to_numpy()
    return table


def _tested(values: stats.Array, looks: Looks | None, alpha: float) -> pd.DataFrame:
    """Means over seeds of each row of values, which is NaN for a seed that lacks a variant."""
    share: float | stats.Array = 1.0
    if looks:
        at = np.searchsorted(looks.at[:-1], np.isfinite(values).sum(1))
        share = spending(looks.at)[at]
    result = stats.paired(values, np.zeros_like(values), margin=np.inf, alpha=alpha, share=share)
    kept = ("n", "diff", "sd", "low", "high", "p", "p_holm")
    return pd.DataFrame({key: result[key] for key in kept})
