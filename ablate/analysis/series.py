"""The data of a report's charts besides the comparison: curves, learning rates, weights, costs, by variant.

They are means and ranges over seeds, without tests. It reads no files, prints nothing, and loads no torch.
"""

import json
from collections.abc import Sequence

import numpy as np
import pandas as pd

from ablate.analysis.select import as_texts, with_options
from ablate.analysis.variants import USABLE, diverged, variant_names

POINTS = 60  # the most points of a curve


def names(rows: pd.DataFrame, shown: Sequence[str]) -> pd.Series:
    """The name of each row's variant, as in a comparison that shows these columns."""
    texts = with_options(rows)[list(shown)].apply(as_texts)
    return pd.Series(variant_names(texts, shown), index=rows.index, dtype=object)


def curves(rows: pd.DataFrame, metrics: pd.DataFrame, shown: Sequence[str]) -> pd.DataFrame:
    """The validation loss by step, mean and range over the finished seeds: variant, step, mean, low, high, n.

    metrics: run_id, step, val_loss. Steps that are missing for some seed of a variant are left out.
    """
    rows = rows[rows["status"].isin(USABLE)]
    variant = dict(zip(rows["run_id"], names(rows, shown), strict=True))
    named = metrics[metrics["run_id"].isin(list(variant))]
    named = named.assign(variant=[variant[run_id] for run_id in named["run_id"]])
    table = _over_seeds(named, ["variant", "step"], "val_loss")
    table = table[table["n"] == table.groupby("variant")["n"].transform("max")]
    kept = [_thinned(curve) for _, curve in table.groupby("variant", sort=False)]
    return pd.concat(kept, ignore_index=True) if kept else table


def by_value(rows: pd.DataFrame, metric: str, shown: Sequence[str], column: str = "lr") -> pd.DataFrame:
    """The metric by the values of `column`: variant (named without `column`), phase, `column`, mean, low,
    high, n, diverged; empty if all rows have the same value.

    There is no mean if a seed diverged, as a tuned study counts its loss as infinite: a mean over the other
    seeds would be too good.
    """
    rows = with_options(rows)
    usable = rows["status"].isin(USABLE) & np.isfinite(rows[metric])
    lost = diverged(rows, rows[metric].to_numpy(float))
    rows = rows.assign(result=rows[metric].where(usable), lost=lost)[usable | lost]
    by = ["variant", "phase", column]
    if column not in rows or rows[column].nunique() < 2:
        return pd.DataFrame(columns=[*by, "mean", "low", "high", "n", "diverged"])
    named = rows.assign(
        variant=names(rows, [other for other in shown if other != column]),
        phase=as_texts(rows["phase"]) if "phase" in rows else "",
    )
    groups = named.groupby(by, sort=False)
    table = groups["result"].agg(mean="mean", low="min", high="max", n="count")
    table = table.assign(diverged=groups["lost"].sum())
    numbers = ["mean", "low", "high"]
    table[numbers] = table[numbers].where(table["diverged"] == 0)
    return table.reset_index().sort_values(by, ignore_index=True)


def per_seed(rows: pd.DataFrame, metric: str, shown: Sequence[str]) -> pd.DataFrame:
    """The metric of each finished run: variant, seed, value."""
    rows = rows[rows["status"].isin(USABLE) & np.isfinite(pd.to_numeric(rows[metric], errors="coerce"))]
    return pd.DataFrame(
        {"variant": names(rows, shown), "seed": rows["seed"], "value": rows[metric]}
    ).reset_index(drop=True)


def mean_interval(table: pd.DataFrame, level: float = 0.95) -> pd.DataFrame:
    """`table`, which has n, mean and sd, with low and high, the t-interval of each mean; NaN for one seed."""
    from scipy.stats import t

    n = table["n"].astype(float).where(table["n"] > 1)
    half = t.ppf((1 + level) / 2, n - 1) * table["sd"] / np.sqrt(n)
    return table.assign(low=table["mean"] - half, high=table["mean"] + half)


def weights(rows: pd.DataFrame, shown: Sequence[str]) -> pd.DataFrame:
    """The learned fusion weights: variant, layer, head (both from 1), mean, low, high, n."""
    rows = with_options(rows)  # of all rows: those with weights may lack an option that others have
    rows = rows[rows["status"].isin(USABLE) & rows["fusion_weights"].notna()]
    rows = rows.sort_values(list(shown), ignore_index=True)
    long = [
        (name, layer, head, weight)
        for name, text in zip(names(rows, shown), rows["fusion_weights"], strict=True)
        for layer, heads in enumerate(_numbers(text), 1)
        for head, weight in enumerate(heads, 1)
    ]
    table = pd.DataFrame(long, columns=["variant", "layer", "head", "weight"])
    return _over_seeds(table, ["variant", "layer", "head"], "weight")


def costs(rows: pd.DataFrame, shown: Sequence[str]) -> pd.DataFrame:
    """One row per variant: variant, fusion, out_proj, params, flops_per_token."""
    named = rows.assign(variant=names(rows, shown), out_proj=as_texts(rows["out_proj"]))
    named = named[["variant", "fusion", "out_proj", "params", "flops_per_token"]]
    return named.drop_duplicates("variant").reset_index(drop=True)


def _numbers(text: str) -> list[list[float]]:
    """fusion_weights, layers × heads; empty if the text is anything else."""
    try:
        return [[float(weight) for weight in layer] for layer in json.loads(text)]
    except (ValueError, TypeError, RecursionError):
        return []


def _over_seeds(table: pd.DataFrame, by: list[str], value: str) -> pd.DataFrame:
    groups = table.groupby(by, sort=False)[value]
    return groups.agg(mean="mean", low="min", high="max", n="size").reset_index()


def _thinned(curve: pd.DataFrame) -> pd.DataFrame:
    at = np.unique(np.linspace(0, len(curve) - 1, POINTS).round().astype(int))
    return curve.sort_values("step").iloc[at]
