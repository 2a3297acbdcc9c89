"""Rows of studies and CSV files as one DataFrame."""

import contextlib
import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from ablate.config.rules import ConfigError
from ablate.store.columns import COLUMNS, MEASURED_COLUMNS, Row, csv_text
from ablate.store.record import StudyRecord
from ablate.store.status import RESULTS, Status
from ablate.store.store import Store

# Words, whatever they look like: 12345678e012 is a hash, not a number.
TEXT = dict.fromkeys(
    ("run_id", "error", "corpus_sha256", "torch", "ablate", "code", "parts", "git", "study"), str
)


def load(targets: Sequence[str], store: Store | None = None) -> pd.DataFrame:
    """The rows of all targets, a run that stands in several of them once.

    targets: studies by name or directory, or CSV files with the same columns; without any, every run of
    the store. Raises ConfigError.
    """
    store = store or Store()
    frames = [_load(target, store) for target in targets] or [frame(store.rows())]
    rows = pd.concat([part for part in frames if len(part)] or frames, ignore_index=True)
    if rows.empty:
        raise ConfigError("no runs yet; ablate run makes one")
    # One run that several targets share; two results that differ stay, for the comparison to name.
    same = rows.columns.difference(["study", *MEASURED_COLUMNS])
    return rows.loc[~rows[same].astype(str).duplicated()].reset_index(drop=True)


def records(targets: Sequence[str], store: Store | None = None) -> list[StudyRecord]:
    """The records of those targets that are studies."""
    found = []
    for target in targets:
        path = Path(target)
        if path.is_file() or (path / "store").is_dir():
            continue
        if (path / "study.json").is_file():
            found.append(Store(path.resolve().parent.parent).read_study(path.resolve().name))
        else:
            found.append((store or Store()).read_study(target))
    return [record for record in found if record is not None]


def stores(targets: Sequence[str]) -> list[Store]:
    """The stores that hold the runs of these targets, the one below this directory first."""
    roots = [Path("runs")]
    for path in map(Path, targets):
        if (path / "store").is_dir():
            roots.append(path)
        elif (path / "study.json").is_file():
            roots.append(path.resolve().parent.parent)
    return [Store(root) for root in roots]


def metrics(directories: Mapping[str, Path]) -> pd.DataFrame:
    """run_id, step, val_loss: metrics.csv of these runs; a file that can't be read is left out.

    directories: of the runs, by run_id, as Store.directories gives them.
    """
    found: list[tuple[str, int, float]] = []
    for run_id, directory in directories.items():
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            with (directory / "metrics.csv").open(encoding="utf-8", newline="") as file:
                rows = [(run_id, int(row["step"]), float(row["val_loss"])) for row in csv.DictReader(file)]
            found += rows
    return pd.DataFrame(found, columns=["run_id", "step", "val_loss"])


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Rows of the store with the types that their CSV has in pandas."""
    return pd.read_csv(io.StringIO(csv_text(rows)), dtype=TEXT)


def as_results(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """Anybody's table, with the columns of results. name: what errors call it. Raises ConfigError."""
    lacking = {"fusion", "heads", "out_proj", "seed"} - set(rows.columns)
    if lacking:
        raise ConfigError(f"{name}: not a table of results; it lacks {', '.join(sorted(lacking))}")
    if "status" in rows:  # what has no result and no seed is a damaged run, which its status says
        rows = rows[rows["seed"].notna() | rows["status"].isin(RESULTS)]
    if rows["seed"].isna().any():
        raise ConfigError(f"{name}: a row has no seed; each row is one run, with its seed")
    if "status" not in rows:
        rows = rows.assign(status=Status.DONE)
    return rows.reindex(columns=[*COLUMNS, *rows.columns.difference(list(COLUMNS))])


def _load(target: str, store: Store) -> pd.DataFrame:
    path = Path(target)
    if path.is_file():
        try:
            rows = pd.read_csv(path, dtype=TEXT, encoding="utf-8-sig")
        except (ValueError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{target}: not a CSV file of results ({str(error).splitlines()[0]})"
            ) from error
        return as_results(rows, target)
    if (path / "store").is_dir():
        return frame(Store(path).rows())
    if (path / "study.json").is_file():
        return frame(Store(path.resolve().parent.parent).study_rows(path.resolve().name))
    return frame(store.study_rows(target))
