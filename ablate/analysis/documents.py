"""Intervals of differences over the documents of a split, beside those over seeds: with these seeds, how far
a difference depends on which documents are held out. Reads no files.

legend: D documents, K pairs, S seeds.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ablate.analysis.contrasts import Pair
from ablate.analysis.stats import Array
from ablate.analysis.variants import Variants
from ablate.store.columns import column_named

COLUMNS = ("documents", "documents_low", "documents_high")
FEWEST = 50  # documents; intervals of fewer cover less than they say, since a few are large
LEVEL = 0.95
AGREES = 1e-3  # nats, between a difference and the mean of its documents, which are rounded


def over_documents(
    variants: Variants, pairs: Sequence[Pair], counted_KS: Array, losses: pd.DataFrame
) -> pd.DataFrame:
    """A row for each pair: the number of documents, and the ends of the interval of its mean difference over
    them; NaN where they are unknown, as if a document of some run is missing. counted_KS: which seeds count.
    losses: documents.csv of a study (store/documents)."""
    table = pd.DataFrame(np.nan, range(len(pairs)), [*COLUMNS])
    if variants.metric not in ("val_loss", "test_loss") or losses.empty:
        return table
    losses = losses[losses["split"] == column_named(variants.metric).split]
    for k, (one, base) in enumerate(pairs):
        diff_S = np.where(counted_KS[k], variants.values[one] - variants.values[base], np.nan)
        both_S = np.isfinite(diff_S)
        runs = [[*variants.run_ids[side][both_S]] for side in (one, base)]
        if not both_S.any() or {*runs[0], *runs[1]} - {*losses}:
            continue
        of_pair = losses[losses[[*runs[0], *runs[1]]].notna().any(axis=1)]
        diff_D = of_pair[runs[0]].mean(axis=1, skipna=False) - of_pair[runs[1]].mean(axis=1, skipna=False)
        weight_D = of_pair["targets"].to_numpy(float)
        middle, *ends = interval(diff_D.to_numpy(), weight_D) if len(of_pair) >= FEWEST else (np.nan,)
        if abs(middle - diff_S[both_S].mean()) < AGREES:
            table.loc[k] = [len(of_pair), *ends]
    return table


def interval(diff_D: Array, weight_D: Array) -> tuple[float, float, float]:
    """The weighted mean with its t-interval, by the variance of a ratio of two means over documents, which
    covers as well as a bootstrap. See: Cochran, Sampling Techniques, 1977, section 6.3."""
    from scipy.stats import t

    D, whole = len(diff_D), weight_D.sum()
    mean = float((weight_D * diff_D).sum() / whole)
    error = np.sqrt(D / (D - 1) * np.square(weight_D * (diff_D - mean)).sum()) / whole
    half = float(t.ppf((1 + LEVEL) / 2, D - 1) * error)
    return mean, mean - half, mean + half
