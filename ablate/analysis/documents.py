"""Intervals of differences over the documents of a split, beside those over seeds: how much of a difference
is due to which documents are held out. Reads no files.

legend: D documents, R resamples.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ablate.analysis.contrasts import Pair
from ablate.analysis.variants import Variants
from ablate.store.columns import column_named

COLUMNS = ("documents", "documents_low", "documents_high")
FEWEST = 20  # documents; of fewer a bootstrap knows too little
RESAMPLES = 4_000
CELLS = 1_000_000  # of resampled documents at a time
LEVEL = 0.95


def over_documents(variants: Variants, pairs: Sequence[Pair], losses: pd.DataFrame) -> pd.DataFrame:
    """A row for each pair: the number of documents, and the ends of the interval of its mean difference over
    the seeds that both have; NaN where they are unknown. losses: documents.csv of a study
    (store/documents)."""
    table = pd.DataFrame(np.nan, range(len(pairs)), [*COLUMNS])
    split = column_named(variants.metric).split
    if variants.metric not in ("val_loss", "test_loss") or losses.empty:
        return table
    losses = losses[losses["split"] == split]
    draws = np.random.default_rng(0)
    for k, (one, base) in enumerate(pairs):
        both_S = np.isfinite(variants.values[one] - variants.values[base])
        runs = [[*variants.run_ids[side][both_S]] for side in (one, base)]
        if not both_S.any() or {*runs[0], *runs[1]} - {*losses}:
            continue
        of_pair = losses[["targets", *{*runs[0], *runs[1]}]].dropna()
        if len(of_pair) >= FEWEST:
            diff_D = of_pair[runs[0]].mean(axis=1) - of_pair[runs[1]].mean(axis=1)
            ends = bootstrap(diff_D.to_numpy(), of_pair["targets"].to_numpy(float), draws)
            table.loc[k] = [len(of_pair), *ends]
    return table


def bootstrap(diff_D: np.ndarray, weight_D: np.ndarray, draws: np.random.Generator) -> np.ndarray:
    """The ends of the percentile interval of the weighted mean, over resampled documents."""
    sum_D, means, at_once = diff_D * weight_D, list[np.ndarray](), max(1, CELLS // len(diff_D))
    for first in range(0, RESAMPLES, at_once):
        size = (min(at_once, RESAMPLES - first), len(diff_D))
        drawn_RD = draws.integers(len(diff_D), size=size)
        means.append(sum_D[drawn_RD].sum(1) / weight_D[drawn_RD].sum(1))
    return np.quantile(np.concatenate(means), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
