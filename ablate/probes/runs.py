"""Which runs a target of `ablate probe` names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ablate.analysis.frames import frame
from ablate.analysis.load import load
from ablate.analysis.select import select, with_options
from ablate.analysis.variants import collect
from ablate.config.rules import ConfigError
from ablate.store.store import Store

FILE = "probes.csv"


@dataclass(frozen=True)
class Found:
    """directories: of the finished runs, by run_id. variant: the name of its variant, by run_id. path: where
    the CSV goes unless told otherwise."""

    directories: Mapping[str, Path]
    variant: pd.Series
    path: Path

    def first_of_each(self) -> list[str]:
        """A run of each variant."""
        there = self.variant[self.variant.index.isin([*self.directories])]
        return there[~there.duplicated()].index.tolist()


def find(target: str, where: Sequence[str] = ()) -> Found:
    """target: a study by name or directory, a CSV of one, or a run by the beginning of its id or name; of
    these the rows that meet `where`. Raises ConfigError."""
    store = Store()
    is_run = not Path(target).exists() and target not in store.study_names()
    if is_run:
        directory = store.find(target)
        rows, stores = (
            frame([row for row in store.rows() if directory.name.endswith(row["run_id"][:8])]),
            [store],
        )
        path = store.root / f"{directory.name}-{FILE}"
    else:
        results = load([target])
        rows, stores = results.rows, results.stores
        path = results.sources[0].directory / FILE
    chosen = select(with_options(rows), where) if where else rows
    variants = collect(chosen, "val_loss", mixed=True)
    ids = variants.run_ids
    names = np.repeat(np.array(variants.names, object)[:, None], ids.shape[1], 1)
    finished = (ids != "") & np.isfinite(variants.values)
    variant = pd.Series(names[finished], index=ids[finished], dtype=object)
    directories: dict[str, Path] = {}
    for store in stores:
        directories = {**store.directories(variant.index), **directories}
    if not directories:
        raise ConfigError(f"{target}: no finished run of it lies here; probe where the runs were made")
    return Found(
        {run_id: directories[run_id] for run_id in variant.index if run_id in directories}, variant, path
    )
