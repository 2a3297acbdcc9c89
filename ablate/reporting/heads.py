"""The data about heads in a report, from the files that `ablate probe` wrote. Loads no torch."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from ablate.analysis.probes import SORTED, at_the_end, named, over_seeds, read, silent, text_file

# Probes that only need attention patterns, for which the range of untrained models is known.
ATTENTION = (
    *("previous", "induction", "first", "distance", "distance_but_first", "entropy", "entropy_but_first"),
    *("jsd", "pattern_rank", "on_subject", "aligned", "alignment_errors"),
)
OVER_STEPS = ("previous", "induction", "loss_added", "grad_query", "grad_value")
MOST_MAPS = 4  # the most variants with attention maps


@dataclass(frozen=True)
class Heads:
    """values: as from analysis.probes.read. variant: names by run_id. maps: what `ablate probe --text` wrote
    about one run of each variant, by the variant's name."""

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
        """A probe by rank, heads sorted within their layer and run, mean over runs: variant, layer, rank,
        mean, n."""
        values = self._named(probe)
        values["rank"] = values.groupby(["run_id", "layer"])["value"].rank(method="first", ascending=False)
        groups = values.astype({"rank": int}).groupby(["variant", "layer", "rank"], sort=False)["value"]
        return groups.agg(mean="mean", n="size").reset_index()

    def prune_curve(self) -> pd.DataFrame:
        """The loss by the number of heads removed of a kind of attention, over runs: variant, kind, removed,
        mean, low, high, n. kind: empty if there is only one."""
        values = self._named("pruned")
        values["kind"] = [
            kind if number else ""
            for kind, _, number in values["layer"].astype(str).str.partition(" ").to_numpy()
        ]
        values["removed"] = values.groupby(["run_id", "kind"]).cumcount() + 1
        groups = values.groupby(["variant", "kind", "removed"], sort=False)["value"]
        return groups.agg(mean="mean", low="min", high="max", n="size").reset_index()

    def by_step(self) -> pd.DataFrame:
        """The largest head of any layer by step, if intermediate weights were kept, with the model before
        training as step 0: variant, probe, step, mean, n."""
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
        """The rows of a probe at the last step, with their variant."""
        values = self.values[self.values["probe"] == probe]
        return named(at_the_end(values), self.variant)


def find(probes: Path, variant: pd.Series) -> Heads | None:
    """The probes of these runs; None if there are none. variant: names by run_id. Raises ConfigError."""
    if not probes.is_file():
        return None
    values = read(probes)
    values = values[values["run_id"].isin(variant.index)]
    text = text_file(probes)
    runs = json.loads(text.read_text(encoding="utf-8")) if text.is_file() else {}
    maps = {variant[run_id]: found for run_id, found in runs.items() if run_id in variant.index}
    return Heads(values, variant, dict([*maps.items()][:MOST_MAPS])) if len(values) else None


def for_reading(table: pd.DataFrame) -> pd.DataFrame:
    """One row per variant, probe and layer, with means and intervals in one cell, and without the column
    `beyond` if it is empty. table: as from over_seeds."""
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
