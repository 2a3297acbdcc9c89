"""Find the runs that a target of `ablate probe` names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from ablate.analysis import series
from ablate.analysis.load import load
from ablate.analysis.probes import FILE
from ablate.analysis.select import select, with_options
from ablate.analysis.variants import USABLE, collect
from ablate.config.rules import ConfigError
from ablate.store.run_files import read_started
from ablate.store.store import Store


@dataclass(frozen=True)
class Found:
    """directories: of the finished runs, by run_id. variant: the names of their variants, by run_id. path:
    the default path of the CSV."""

    directories: Mapping[str, Path]
    variant: pd.Series
    path: Path

    def first_of_each(self) -> list[str]:
        """The first run of each variant."""
        there = self.variant[self.variant.index.isin([*self.directories])]
        return there[~there.duplicated()].index.tolist()


def find(target: str, where: Sequence[str] = ()) -> Found:
    """The runs of a target that meet `where`. target: a study by name or directory, a CSV file of one, or a
    run by a prefix of its id or name. Raises ConfigError."""
    store = Store()
    if Path(target).exists() or target in store.study_names():
        results = load([target])
        path = results.sources[0].directory / FILE
    else:
        directory, results = store.find(target), load([])
        of_it = results.rows["run_id"] == read_started(directory)["run_id"]
        results, path = replace(results, rows=results.rows[of_it]), store.root / f"{directory.name}-{FILE}"
    rows = select(with_options(results.rows), where)
    if len(rows) and not (rows["status"].isin(USABLE) & rows["val_loss"].notna()).any():
        how = " and ".join(dict.fromkeys(rows["status"]))
        raise ConfigError(f"{target}: {how}, so there is nothing to probe; take a run that is done")
    shown = collect(rows, "val_loss", mixed=True).shown
    rows = rows[rows["status"].isin(USABLE) & rows["val_loss"].notna()]
    variant = pd.Series(series.names(rows, shown).to_numpy(), index=rows["run_id"], dtype=object)
    directories = {run_id: at for run_id, at in results.directories.items() if run_id in variant.index}
    if not directories:
        raise ConfigError(f"{target}: no finished run of it lies here; probe where the runs were made")
    return Found(directories, variant, path)
