"""The results of named arms, each at its own tuned value."""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from ablate.analysis.stats import Array
from ablate.config.rules import ConfigError
from ablate.store.record import StudyRecord
from ablate.store.status import RESULTS


def of_arms(
    names: Iterable[str], rows: pd.DataFrame, record: StudyRecord, metric: str, seeds: Iterable[int]
) -> dict[str, Array]:
    """(S,) the metric of each arm at its own value, by name; NaN for a run that diverged, all NaN for an arm
    that did at every value. Raises ConfigError if a run is missing or has no result."""
    seeds, found = list(seeds), dict[str, Array]()
    for name in names:
        choice = record.chosen.get(name)
        if choice is not None and choice.value is None:  # it diverged at every value
            found[name] = np.full(len(seeds), np.nan)
            continue
        own = {run_id for run_id, role in record.roles.items() if name in role.values.get("tuned", ())}
        of_arm = rows[rows["run_id"].isin(own) & rows["status"].isin(RESULTS)]
        of_arm = of_arm.drop_duplicates("seed").set_index("seed").reindex(seeds)
        if missing := int(of_arm["run_id"].isna().sum()):
            raise ConfigError(f"arm {name}: {missing} of its {len(seeds)} reporting runs have no result")
        found[name] = pd.to_numeric(of_arm[metric], errors="coerce").to_numpy(float)
        found[name] = np.where(np.isfinite(found[name]), found[name], np.nan)
    return found
