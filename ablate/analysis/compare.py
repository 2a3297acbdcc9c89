"""Variants side by side: which rows may be compared, and what each variant comes to over its seeds.

Numbers only: it reads no files, prints nothing, and loads no torch.
"""

from collections.abc import Iterable, Sequence

import pandas as pd

from ablate.columns import (
    CONFIG_COLUMNS,
    DERIVED_COLUMNS,
    HIGHER_IS_BETTER,
    MEASURED_COLUMNS,
    METRIC_COLUMNS,
    SEED_COLUMNS,
)
from ablate.config import ConfigError, did_you_mean

# A loss per token says nothing across these; nor do numbers that another program made.
TEXT_COLUMNS = ("corpus_sha256", "tokenizer", "vocab", "splits")
CODE_COLUMNS = ("code", "torch")
# The columns that a reader looks for first: always shown, and the last to be left out elsewhere.
FACTORS = ("fusion", "heads", "out_proj")
USABLE = ("done", "stale")


class Incomparable(ConfigError):
    """These rows can't stand in one table."""


def summarize(rows: pd.DataFrame, metric: str = "val_loss", *, mixed: bool = False) -> pd.DataFrame:
    """One row a variant: variant, its factors, n, diverged, mean, sd (over seeds, n − 1), best, params.

    Sorted, the best first. Runs without the metric count in no mean: diverged ones are counted apart;
    `unusable` names all of them. mixed: allow rows of several corpora, codes or torch versions.
    Raises Incomparable.
    """
    metrics = [
        column
        for column in (*METRIC_COLUMNS, *MEASURED_COLUMNS, *DERIVED_COLUMNS)
        if column in rows and pd.api.types.is_numeric_dtype(rows[column]) and rows[column].notna().any()
    ]
    if metric not in metrics and metric != "val_loss":
        raise Incomparable(f"--metric {metric}: no column of results{did_you_mean(metric, metrics)}")
    if not mixed:
        _refuse_mixed(rows)
    columns = [column for column in CONFIG_COLUMNS if column in rows.columns]
    keyed = rows.assign(**{column: rows[column].map(_as_key) for column in columns})
    _refuse_duplicates(keyed, columns)
    usable = keyed[keyed["status"].isin(USABLE) & keyed[metric].notna()]
    if usable.empty:
        raise Incomparable(f"{metric}: no finished run has it; ablate runs shows what there is")
    table = (
        usable.groupby(columns, sort=False, dropna=False)
        .agg(n=(metric, "size"), mean=(metric, "mean"), sd=(metric, "std"), params=("params", "first"))
        .reset_index()
    )
    diverged = keyed[keyed["status"] == "diverged"].groupby(columns).size()
    table["diverged"] = [int(diverged.get(tuple(row), 0)) for row in table[columns].itertuples(index=False)]
    shown = distinguishing(table, columns)
    table["variant"] = [
        " ".join(f"{column}={value}" for column, value in zip(shown, row, strict=True))
        for row in table[shown].itertuples(index=False)
    ]
    ascending = metric not in HIGHER_IS_BETTER
    table = table.sort_values(["mean", "variant"], ascending=[ascending, True]).reset_index(drop=True)
    table["best"] = table["mean"] == table["mean"].iloc[0]
    return table[["variant", *shown, "params", "n", "diverged", "mean", "sd", "best"]]


def for_reading(summary: pd.DataFrame) -> pd.DataFrame:
    """Without what a person sees anyway: the name made of the factors, a column of zeros."""
    hidden = ["variant"] if summary["diverged"].any() else ["variant", "diverged"]
    return summary.drop(columns=hidden)


def stale(rows: pd.DataFrame) -> list[str]:
    """A line if results of other code, or of another torch, are among the rows."""
    count = int((rows["status"] == "stale").sum())
    return [f"{count} rows are stale: other code or another torch made them; force=stale runs them again"] * (
        count > 0
    )


def distinguishing(table: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """The columns that tell the variants apart, the factors always among them and nothing that the
    others already say (key_width, say, where it follows from heads)."""
    kept = [column for column in columns if column in FACTORS or table[column].nunique(dropna=False) > 1]
    for column in reversed(kept):
        rest = [other for other in kept if other != column]
        if column not in FACTORS and not table.duplicated(rest).any():
            kept = rest
    return kept


def unusable(rows: pd.DataFrame, metric: str = "val_loss") -> list[str]:
    """A line for each run that no mean contains, with its reason."""
    lines = []
    for row in rows[~(rows["status"].isin(USABLE) & rows[metric].notna())].to_dict("records"):
        unfinished = {"interrupted": "it was cut off", "running": "it is still going on"}
        reason = (
            row["error"] if isinstance(row["error"], str) else unfinished.get(row["status"], f"no {metric}")
        )
        what = f"fusion={row['fusion']} heads={row['heads']} out_proj={_as_key(row['out_proj'])}"
        lines.append(f"{row['status']}: {what} seed={row['seed']} ({row['run_id']}): {reason}")
    return lines


def missing_seeds(rows: pd.DataFrame) -> list[str]:
    """A line for each variant that lacks a seed that another variant has."""
    columns = [column for column in CONFIG_COLUMNS if column in rows.columns]
    keyed = rows.assign(**{column: rows[column].map(_as_key) for column in columns})
    seeds = set(keyed["seed"])
    lines = []
    for _, group in keyed.groupby(columns, sort=False, dropna=False):
        lacking = sorted(seeds - set(group["seed"]))
        if lacking:
            first = group.iloc[0]
            what = " ".join(f"{column}={first[column]}" for column in distinguishing(keyed, columns))
            lines.append(f"missing: {what}: no run of seed {', '.join(map(str, lacking))}")
    return lines


def _as_key(value: object) -> str:
    """A cell as text, the same for 1, 1.0 and "1", so that CSV files of any origin group alike."""
    if isinstance(value, float) and value != value:
        return ""
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return str(bool(value)).lower()
    if isinstance(value, float):
        return f"{value:.12g}"
    return str(value)


def _refuse_mixed(rows: pd.DataFrame) -> None:
    for columns, what in ((TEXT_COLUMNS, "texts"), (CODE_COLUMNS, "programs")):
        present = [column for column in columns if column in rows.columns]
        kinds = rows[present].astype(str).drop_duplicates()
        if len(kinds) > 1:
            raise Incomparable(
                f"these rows come from {len(kinds)} {what}, so their numbers don't compare:"
                f" {_differences(kinds)}; compare them apart, or allow it with --mixed"
            )


def _differences(kinds: pd.DataFrame) -> str:
    differing = [column for column in kinds.columns if kinds[column].nunique() > 1]
    return ", ".join(f"{column} {' / '.join(_short(kinds[column].unique()))}" for column in differing)


def _short(values: Iterable[str]) -> list[str]:
    return [value[:12] for value in values]


def _refuse_duplicates(keyed: pd.DataFrame, columns: list[str]) -> None:
    replicate = [column for column in SEED_COLUMNS if column in keyed.columns]
    twice = keyed[keyed.duplicated([*columns, *replicate], keep=False)]
    if len(twice):
        row = twice.iloc[0]
        same = twice[(twice[columns] == row[columns]).all(axis=1) & (twice["seed"] == row["seed"])]
        raise Incomparable(
            f"two rows of one variant and seed: runs {' and '.join(same['run_id'].astype(str))}"
            f" (fusion={row['fusion']} heads={row['heads']} seed={row['seed']}); drop one"
        )
