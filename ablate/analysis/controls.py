"""What puts a difference in proportion: the worth of attention, and what remains at an equal start."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.analysis.contrasts import MATCH, Pair, column_in, pair_up
from ablate.analysis.roles import tuned_columns
from ablate.analysis.variants import Variants, is_own_value
from ablate.config.overrides import spelled
from ablate.config.rules import ConfigError
from ablate.phrases import only_if

YARDSTICK = "uniform"  # scores=uniform: every position reads all earlier ones alike, and learns no pattern
CONTROLLED = ("controlled", "controlled_low", "controlled_high")

Worth = Mapping[int, tuple[float, float, float]]


def worth(variants: Variants, bases: Iterable[int]) -> Worth:
    """What attention is worth to each of these variants, with its 95 % interval: the metric with
    scores=uniform minus its own, both otherwise equal. Variants without such a partner are left out."""
    if not variants.metric.endswith("_loss") or "scores" not in variants.columns:
        return {}
    partner = dict(_otherwise_equal(variants, {"scores": YARDSTICK}, free=MATCH))
    known = [base for base in dict.fromkeys(bases) if base in partner]
    if not known:
        return {}
    found = stats.paired(
        variants.values[[partner[base] for base in known]], variants.values[known], margin=np.inf
    )
    intervals = np.column_stack([found[name] for name in ("diff", "low_marginal", "high_marginal")])
    of_each = zip(known, intervals.tolist(), strict=True)
    return {base: (unit, low, high) for base, (unit, low, high) in of_each if np.isfinite(low)}


def shares(diff: pd.Series, pairs: Sequence[Pair], units: Worth) -> pd.Series:
    """(K,) each difference as a share of what attention is worth to its baseline; NaN unless that is above 0
    with its whole interval."""
    known = {base: unit for base, (unit, low, _) in units.items() if low > 0}
    return diff / np.array([known.get(base, np.nan) for _, base in pairs], float)


def on_worth(variants: Variants, units: Worth) -> list[str]:
    """A line for each variant on what attention is worth to it."""
    return [
        f"attention is worth {unit:.4g} [{low:.4g}, {high:.4g}] to {variants.names[base]}: its"
        f" {variants.metric} with scores=uniform less its own"
        f" ({'column share' if low > 0 else 'so nothing is a share of it'})"
        for base, (unit, low, high) in units.items()
    ]


def counterparts(variants: Variants, placebo: Mapping[str, Any]) -> dict[int, int]:
    """The variant that equals each one but for the overrides of a placebo, for those that have one.

    placebo: overrides that give a variant the start and the steps of its baseline, such as
    {value_scale: matched}.
    """
    try:
        wanted = {column_in(variants, key): value for key, value in placebo.items()}
        return dict(_otherwise_equal(variants, wanted)) if wanted else {}
    except ConfigError:  # these rows have no such variants
        return {}


def controlled(
    variants: Variants, pairs: Sequence[Pair], placebo: Mapping[str, Any], level: np.ndarray
) -> pd.DataFrame:
    """(K, 3) CONTROLLED: the difference of each pair that remains under the placebo, with its interval at the
    pair's own level; NaN without one, and if one of the two diverged on more seeds."""
    partner = counterparts(variants, placebo)
    table = pd.DataFrame(np.nan, index=range(len(pairs)), columns=[*CONTROLLED])
    for at, (variant, base) in enumerate(pairs):
        both = [partner.get(variant), partner.get(base, base)]  # the baseline too, if it has a counterpart
        if both[0] is not None and not more_diverged(variants, both):
            alpha = 1 - level[at] if level[at] == level[at] else 0.05
            one = stats.paired(*variants.values[both][:, None], margin=np.inf, alpha=alpha)
            table.loc[at] = [one["diff"][0], one["low"][0], one["high"][0]]
    return table


def more_diverged(variants: Variants, those: Sequence[int]) -> int:
    """On how many more seeds one of these variants diverged than another: what the rest of their seeds say is
    not the whole truth then."""
    return int(np.ptp(variants.diverged[[*those]].sum(1)))


def parametrization(table: pd.DataFrame, placebo: Mapping[str, Any]) -> list[str]:
    """Lines on contrasts (the primary ones, if there are any) whose start and steps were not made equal."""
    tested = table[table["p"].notna()]
    if (tested["family"] == "primary").any():
        tested = tested[tested["family"] == "primary"]
    lacking = tested[tested["controlled"].isna() & ~tested["same_class"]]
    named = spelled(placebo)
    line = (
        f"{len(lacking)} of {len(tested)} comparisons have no results at an equal start and equal steps"
        f" ({f'placebo: {named}' if named else 'the study names no placebo'}), so part of their difference"
        " may be parametrization"
    )
    return only_if(len(lacking), line)


def own_values(variants: Variants) -> tuple[list[int], list[str]]:
    """The variants that are at their arm's own value, all of a study that is not tuned; and the columns of
    the tuned keys, which may differ between such variants."""
    own = [at for at, role in enumerate(variants.table["role"]) if is_own_value(role)]
    return own, tuned_columns(variants)


def _otherwise_equal(variants: Variants, wanted: Mapping[str, Any], free: Sequence[str] = ()) -> list[Pair]:
    """Each variant with the one that has these values and is otherwise equal; of a tuned study, both at their
    own value. free: further columns that may differ."""
    own, tuned = own_values(variants)
    try:
        return pair_up(variants, wanted, own, free=[*tuned, *free])
    except ConfigError:  # none has them
        return []
