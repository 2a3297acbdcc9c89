"""Rows of studies and CSV files as one DataFrame."""

import io
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ablate.columns import Row, csv_text
from ablate.config import ConfigError, did_you_mean
from ablate.environment import provenance
from ablate.store import Store


def load(targets: Sequence[str], store: Store | None = None) -> pd.DataFrame:
    """The rows of all targets, a run that stands in several of them once.

    targets: studies by name or directory, or CSV files with the same columns; without any, every run of
    the store. Raises ConfigError.
    """
    store = store or Store()
    frames = [_load(target, store) for target in targets] or [frame(store.rows(provenance()))]
    rows = pd.concat([part for part in frames if len(part)] or frames, ignore_index=True)
    if rows.empty:
        raise ConfigError("no runs yet; ablate run makes one")
    return rows.drop_duplicates("run_id", ignore_index=True) if "run_id" in rows else rows


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Rows of the store with the types that their CSV has in pandas."""
    return pd.read_csv(io.StringIO(csv_text(rows)), dtype={"run_id": str, "error": str})


def _load(target: str, store: Store) -> pd.DataFrame:
    path = Path(target)
    if path.is_file():
        try:
            rows = pd.read_csv(path, dtype={"run_id": str, "error": str})
        except (ValueError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{target}: not a CSV file of results ({str(error).splitlines()[0]})"
            ) from error
        lacking = {"fusion", "seed", "status", "params"} - set(rows.columns)
        if lacking:
            raise ConfigError(f"{target}: not a table of results; it lacks {', '.join(sorted(lacking))}")
        return rows
    if (path / "study.json").is_file():
        return frame(Store(path.resolve().parent.parent).study_rows(path.resolve().name, provenance()))
    if target in store.study_names():
        return frame(store.study_rows(target, provenance()))
    names = store.study_names()
    known = did_you_mean(target, names) if names else "; there are none yet"
    raise ConfigError(f"{target}: no such study, directory or CSV file{known}")
