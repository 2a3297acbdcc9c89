"""What heads do, as a report has it: from the files that `ablate probe` wrote. Loads no torch."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from ablate.analysis.probes import SORTED, at_the_end, named, over_seeds, read, silent, text_file

# Scored on attention patterns alone, so that it is known what untrained models give.
ATTENTION = (
    *("previous", "induction", "first", "distance", "distance_but_first", "entropy", "entropy_but_first"),
    *("jsd", "pattern_rank", "on_subject"),
)
OVER_STEPS = ("previous", "induction", "loss_added", "grad_query", "grad_value")
MOST_MAPS = 4  # variants of which attention maps are drawn


@dataclass(frozen=True)
class Heads:
    """values: as of analysis.probes.read. variant: its name by run_id. maps: what `ablate probe --text` wrote
    of a run of each variant, by its name."""

    values: pd.DataFrame
    variant: pd.Series
    maps: Mapping[str, Mapping[str, Any]]

    @cached_property
    def summary(self) -> pd.DataFrame:
        return over_seeds(self.values[self.values["probe"] != "pruned"], self.variant)

    @cached_property
    def silent(self) -> dict[str, tuple[int, int]]:
        return silent(self.values, self.variant)

    def ranked(self, probe: str) -> pd.DataFrame:
        """variant, layer, rank, mean, n: heads sorted within their layer and run, a mean over runs."""
        values = self._named(probe)
        values["rank"] = values.groupby(["run_id", "layer"])["value"].rank(method="first", ascending=False)
        groups = values.astype({"rank": int}).groupby(["variant", "layer", "rank"], sort=False)["value"]
        return groups.agg(mean="mean", n="size").reset_index()

    def prune_curve(self) -> pd.DataFrame:
        """variant, removed, mean, low, high, n: the loss by how many heads are taken away, over runs."""
        values = self._named("pruned")
        values["removed"] = values.groupby("run_id").cumcount() + 1
        groups = values.groupby(["variant", "removed"], sort=False)["value"]
        return groups.agg(mean="mean", low="min", high="max", n="size").reset_index()

    def by_step(self) -> pd.DataFrame:
        """variant, probe, step, mean, n: the largest head of any layer, where weights were kept on the way;
        at step 0 that of the model before training."""
        values = self.values[self.values["probe"].isin(OVER_STEPS)]
        values = named(values, self.variant)
        if values["step"].nunique() < 2:
            return values.head(0)
        last = at_the_end(values)
        values = pd.concat([last.assign(step=0, value=last["untrained"]).dropna(subset="value"), values])
        runs = values.groupby(["variant", "probe", "step", "run_id"], sort=False)["value"].max()
        groups = runs.groupby(level=["variant", "probe", "step"], sort=False)
        return groups.agg(mean="mean", n="size").reset_index()

    def _named(self, probe: str) -> pd.DataFrame:
        """Its rows at the last step, with their variant."""
        values = self.values[self.values["probe"] == probe]
        return named(at_the_end(values), self.variant)


def find(probes: Path, variant: pd.Series) -> Heads | None:
    """What was probed of these runs; None where nothing was. variant: its name by run_id. Raises
    ConfigError."""
    if not probes.is_file():
        return None
    values = read(probes)
    values = values[values["run_id"].isin(variant.index)]
    text = text_file(probes)
    runs = json.loads(text.read_text(encoding="utf-8")) if text.is_file() else {}
    maps = {variant[run_id]: found for run_id, found in runs.items() if run_id in variant.index}
    return Heads(values, variant, dict([*maps.items()][:MOST_MAPS])) if len(values) else None


def for_reading(table: pd.DataFrame) -> pd.DataFrame:
    """A row a variant, probe and layer; means with their intervals in one cell, whole columns of nothing left
    out. table: as of over_seeds."""
    if table.empty:
        return table
    shown = table[["variant", "probe", "layer", "n"]].copy()
    for name in SORTED:
        columns = table[[name, f"{name}_low", f"{name}_high"]].itertuples(index=False, name=None)
        shown[name] = [_with_interval(*values) for values in columns]
    for name in ("untrained", "null"):
        shown[name] = [_short(value) for value in table[name]]
    if table["beyond"].notna().any():
        counts = zip(table["beyond"], table["n"], strict=True)
        shown["beyond"] = ["" if pd.isna(count) else f"{count:.0f}/{n}" for count, n in counts]
    return shown


def _with_interval(mean: float, low: float, high: float) -> str:
    return _short(mean) if pd.isna(low) else f"{_short(mean)} [{_short(low)}, {_short(high)}]"


def _short(value: float) -> str:
    return "" if pd.isna(value) else f"{value:.3g}"
