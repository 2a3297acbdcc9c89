"""Summarize over seeds what `ablate probe` measured of the heads, from its CSV. Loads no torch.

Heads have no identity across seeds: head 3 of one run does not correspond to head 3 of another. So a layer is
summarized by its largest, its median and its smallest head, which are averaged over seeds.
"""

from pathlib import Path

import pandas as pd

from ablate.config.rules import ConfigError

COLUMNS = ("run_id", "layer", "head", "probe", "value", "untrained", "null", "exact")
SORTED = ("largest", "median", "smallest")
FIRST = ("distance", "previous", "induction", "jsd", "kept", "loss_added")  # what the terminal shows
FILE = "probes.csv"  # beside the results of a study


def read(path: Path) -> pd.DataFrame:
    """The CSV of `ablate probe`, one row per value. Raises ConfigError for any other file."""
    try:
        table = pd.read_csv(path, dtype={"run_id": str})
    except (OSError, ValueError) as error:
        why = f"can't be read ({str(error).splitlines()[0]}); ablate probe writes it"
        raise ConfigError(f"{path}: {why}") from None
    if not {*COLUMNS} <= {*table.columns}:  # there once were more
        raise ConfigError(f"{path}: no file of ablate probe; move it away, and probe again")
    return table[[*COLUMNS]]


def over_seeds(values: pd.DataFrame, variant: pd.Series) -> pd.DataFrame:
    """Summary over runs: variant, probe, layer, n, then for each of SORTED its mean over runs with _low
    and _high, the lowest and highest run; untrained, the mean of the largest untrained head; null, the mean
    by chance. values: as from `read`. variant: its name by run_id; other runs are left out."""
    values = values.assign(variant=values["run_id"].map(variant)).dropna(subset="variant")
    keys = ["variant", "probe", "layer"]
    per_run = values.groupby([*keys, "run_id"], sort=False).agg(
        largest=("value", "max"),
        median=("value", "median"),
        smallest=("value", "min"),
        untrained=("untrained", "max"),
        null=("null", "mean"),
    )
    ends = {"": "mean", "_low": "min", "_high": "max"}
    return (
        per_run.groupby(level=keys, sort=False)
        .agg(
            n=("largest", "size"),
            **{f"{name}{end}": (name, of) for name in SORTED for end, of in ends.items()},
            untrained=("untrained", "mean"),
            null=("null", "mean"),
        )
        .reset_index()
    )
